/* Keeps a training in files, and continues from them.
 *
 *     DIR/step-00000100-rank-2-of-4    a rank's parameters and Adam state, with a checksum
 *     DIR/latest                       the step to continue from
 *
 * A file is written under another name, synced, and then renamed. `latest` names a step only after
 * the files of all ranks are complete. So the previous checkpoint stays whole, wherever writing is
 * interrupted. */
#ifndef CECL_FSDP_CHECKPOINT_H
#define CECL_FSDP_CHECKPOINT_H

#include "fsdp.h"

/* What a training and its continuation must have in common. */
struct identity {
    uint64_t layers, width, heads, sequence, batch, ranks, rank, seed, text_bytes, text_hash;
};

/* Both are collective and blocking. On failure they return false on all ranks, and the ranks that
 * know the reason write it to stderr. `step`: how many steps are done. */
bool checkpoint_save(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t step);
bool checkpoint_load(struct fsdp *f, const char *directory, const struct identity *identity,
                     uint64_t *step);

#endif
