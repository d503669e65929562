/* Collectives and messages as plain loops, for fuzzers that compare every byte. Each rank has one
 * piece of memory; the model has a mirror of it. A call is drawn from an input. Its buffers have
 * their own places in that memory, so calls of a batch do not overlap. Then the call is made, and
 * applied to the mirrors. */
#ifndef CECL_TESTS_FUZZ_MODEL_H
#define CECL_TESTS_FUZZ_MODEL_H

#include <cecl/cecl.h>

#include "input.h"

#define MODEL_RANKS 8
#define MODEL_BYTES ((size_t)48 << 10) /* size of a rank's memory */

enum model_kind {
    MODEL_ALL_GATHER,
    MODEL_ALL_TO_ALL,
    MODEL_BROADCAST,
    MODEL_GATHER,
    MODEL_SCATTER,
    MODEL_ALL_REDUCE,
    MODEL_REDUCE_SCATTER,
    MODEL_REDUCE,
    MODEL_NCCL_KINDS, /* the kinds above are also NCCL's */
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
    int root;      /* in a message: the sender */
    int peer;      /* in a message: the receiver */
    bool in_place; /* model_is_in_place decides for each rank */
    bool as_bytes; /* in a message: the receiver counts bytes */
    size_t size;   /* bytes of an element */
    size_t count;  /* elements */
    /* Blocks in elements: size, offset in sendbuff, offset in recvbuff. */
    size_t counts[MODEL_RANKS][MODEL_RANKS];
    size_t sent_at[MODEL_RANKS][MODEL_RANKS], wanted_at[MODEL_RANKS][MODEL_RANKS];
    ceclStrided_t strided; /* width 0: blocks without rows */
    /* Where sendbuff and recvbuff begin in each rank's memory, in bytes. */
    size_t send[MODEL_RANKS], recv[MODEL_RANKS];
};

struct model {
    int nranks;
    size_t used[MODEL_RANKS];     /* bytes that the calls of this batch use */
    uint8_t *memory[MODEL_RANKS]; /* [MODEL_BYTES] the tested memory */
    uint8_t *mirror[MODEL_RANKS]; /* [MODEL_BYTES] its expected contents */
    uint64_t seed;
};

/* Called once in a process. */
void model_start(void);
bool model_reduces(enum model_kind kind);

/* Begins a batch: fills all memory with new bytes. */
void model_begin(struct model *model, uint64_t seed);
/* Draws a call. False: this batch has no room for another call. */
bool model_draw(struct input *in, struct model *model, enum model_kind kinds,
                struct model_call *call);
/* Applies the call to the mirrors. */
void model_apply(struct model *model, const struct model_call *call);
/* Whether the call is in place on this rank. */
bool model_is_in_place(const struct model_call *call, int rank);
/* Ends the run unless all memory equals its mirror. */
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
