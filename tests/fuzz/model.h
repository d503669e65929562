/* Collectives and messages as plain loops, for fuzzers that compare every byte. Each rank has one piece of memory; the
 * model has a mirror of it. A call is drawn from an input, with places of its own in that memory, so
 * calls of a batch do not touch each other. Then it is made, and applied to the mirrors. */
#ifndef CECL_TESTS_FUZZ_MODEL_H
#define CECL_TESTS_FUZZ_MODEL_H

#include <cecl/cecl.h>

#include "input.h"

#define MODEL_RANKS 4
#define MODEL_BYTES ((size_t)48 << 10) /* of a rank's memory */

enum model_kind {
    MODEL_ALL_GATHER,
    MODEL_ALL_TO_ALL,
    MODEL_BROADCAST,
    MODEL_GATHER,
    MODEL_SCATTER,
    MODEL_ALL_REDUCE,
    MODEL_REDUCE_SCATTER,
    MODEL_REDUCE,
    MODEL_NCCL_KINDS, /* those above are NCCL's too */
    MODEL_ALL_GATHER_STRIDED = MODEL_NCCL_KINDS,
    MODEL_ALL_TO_ALL_STRIDED,
    MODEL_ALL_GATHERV,
    MODEL_ALL_TO_ALLV,
    MODEL_BARRIER,
    MODEL_MESSAGE, /* ceclSend and ceclRecv */
    MODEL_KINDS
};

struct model_call {
    enum model_kind kind;
    ceclDataType_t type;
    ceclRedOp_t op;
    int root;      /* of a message: the sender */
    int peer;      /* of a message: the receiver */
    bool in_place; /* model_is_in_place tells for each rank */
    bool as_bytes; /* of a message: the receiver counts bytes */
    size_t size;   /* bytes of an element */
    size_t count;  /* elements */
    /* blocks, in elements: how large, where in sendbuff, where in recvbuff */
    size_t counts[MODEL_RANKS][MODEL_RANKS];
    size_t sent_at[MODEL_RANKS][MODEL_RANKS], wanted_at[MODEL_RANKS][MODEL_RANKS];
    ceclStrided_t strided; /* width 0: blocks without rows */
    /* where sendbuff and recvbuff begin in each rank's memory, in bytes */
    size_t send[MODEL_RANKS], recv[MODEL_RANKS];
};

struct model {
    int nranks;
    size_t used[MODEL_RANKS];     /* bytes that calls of this batch have */
    uint8_t *memory[MODEL_RANKS]; /* [MODEL_BYTES] what is tested */
    uint8_t *mirror[MODEL_RANKS]; /* [MODEL_BYTES] what must be in it */
    uint64_t seed;
};

/* Once in a process. */
void model_start(void);
bool model_reduces(enum model_kind kind);

/* Begins a batch: fills all memory anew. */
void model_begin(struct model *model, uint64_t seed);
/* Draws a call. False: no room is left for it in this batch. */
bool model_draw(struct input *in, struct model *model, enum model_kind kinds,
                struct model_call *call);
/* Does to the mirrors what the call does to memory. */
void model_apply(struct model *model, const struct model_call *call);
/* Whether the call is in place on this rank. */
bool model_is_in_place(const struct model_call *call, int rank);
/* Ends the run unless all memory is as its mirror. */
void model_compare(const struct model *model, const char *what);

static inline void *model_send(const struct model *model, const struct model_call *call, int rank)
{
    return model->memory[rank] + call->send[rank];
}

static inline void *model_recv(const struct model *model, const struct model_call *call, int rank)
{
    return model->memory[rank] + call->recv[rank];
}

#endif
