/* Keeping a training in files, and going on from them.
 *
 *     DIR/step-00000100-rank-2-of-4    a rank's parameters and Adam state, with a checksum
 *     DIR/latest                       the step to go on from
 *
 * A file is written under another name, synced, and then renamed. `latest` names a step only after
 * the files of all ranks are complete. So whenever the writing breaks off, the checkpoint before is
 * whole. */
#ifndef CECL_FSDP_CHECKPOINT_H
#define CECL_FSDP_CHECKPOINT_H

#include "fsdp.h"

/* What a training must have in common with its continuation. */
struct identity {
    uint64_t layers, width, heads, sequence, batch, ranks, rank, seed, text_bytes, text_hash;
};

/* Both are collective and blocking; false on all ranks, with words on stderr from those that know.
 * `step`: how many are done. */
bool checkpoint_save(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t step);
bool checkpoint_load(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t *step);

#endif
