/* Batches of calls of world/model.h, for fuzzers that compare every byte. Each rank has one piece of memory; the model has a
 * mirror of it. A call is drawn from an input. Its buffers have their own places in that memory, so calls of a batch do not
 * overlap. Then the call is made, and applied to the mirrors. */
#ifndef CECL_TESTS_FUZZ_MODEL_H
#define CECL_TESTS_FUZZ_MODEL_H

#ifndef RANKS
#define RANKS 8 /* for world/model.c, CMakeLists.txt says so */
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

/* Begins a batch: fills all memory with new bytes. */
void model_begin(struct model *model, uint64_t seed);
/* Draws a call of this kind, of all ranks, and writes its input. False: this batch has no room for another call.
 * out_of_place: all-to-alls are never in place, as NCCL's */
bool model_draw(struct input *in, struct model *model, enum kind kind, bool out_of_place,
                struct random_call call[RANKS]);
/* Applies the call to the mirrors. */
void model_apply(struct model *model, const struct random_call call[RANKS]);
/* Ends the run unless all memory equals its mirror. */
void model_compare(const struct model *model, const char *what);

#endif
