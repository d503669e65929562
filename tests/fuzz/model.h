/* Batches of calls of world/model.h, for fuzzers that compare every byte. A call is drawn from an input. Its buffers
 * get places of their own in each rank's memory, so the calls of a batch do not overlap. The call is made, and applied
 * to a mirror of the memory. */
#ifndef CECL_TESTS_FUZZ_MODEL_H
#define CECL_TESTS_FUZZ_MODEL_H

#ifndef RANKS
#define RANKS 8 /* CMakeLists.txt compiles world/model.c with the same value */
#endif
#include "world/model.h"

#include "input.h"

#define MODEL_BYTES ((size_t)96 << 10) /* size of a rank's memory */

struct model {
    int nranks;
    size_t used[RANKS];     /* bytes that the calls of this batch use */
    uint8_t *memory[RANKS]; /* [MODEL_BYTES] the tested memory */
    uint8_t *mirror[RANKS]; /* [MODEL_BYTES] its expected contents */
};

/* Sets the environment of the process, which uses the host device, and allocates the mirrors. */
void model_prepare(struct model *model);
/* Runs a thread for each rank to its end. `rank` is an intptr_t. */
void model_run(const struct model *model, void *(*run)(void *rank));
/* Begins a batch: fills all memory with new bytes. */
void model_begin(struct model *model, uint64_t seed);
/* Draws a call of this kind, of all ranks, and writes its input. False: the batch has no room for it. out_of_place:
 * all-to-alls are never in place, as NCCL's. */
bool model_draw(struct input *in, struct model *model, enum kind kind, bool out_of_place,
                struct random_call call[RANKS]);
/* Applies the call to the mirrors. */
void model_apply(struct model *model, const struct random_call call[RANKS]);
/* Ends the run unless all memory equals its mirror. */
void model_compare(const struct model *model, const char *what);

#endif
