/* A call of a collective, a send or a receive, and which library makes it. */
#ifndef CECL_NCCL_CALL_H
#define CECL_NCCL_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "nccl/abi.h"
#include "nccl/reason.h"

/* CECL_NCCL_OP_ncclAllGather and so on, one for each function of collectives.c. */
enum cecl_nccl_op {
#define COUNTED(name) CECL_NCCL_OP_##name,
#include "nccl/names.h"
    CECL_NCCL_OPS
};
extern const char *const cecl_nccl_op_names[CECL_NCCL_OPS];

/* The arguments of each function, without the last two (communicator and stream). NCCL and cecl have the same
 * arguments. ncclBcast is missing, because cecl has no such function. */
#define CECL_NCCL_CALLS(X) \
    X(AllGather, send, recv, count, type) \
    X(AllReduce, send, recv, count, type, op) \
    X(AlltoAll, send, recv, count, type) \
    X(Broadcast, send, recv, count, type, root) \
    X(Gather, send, recv, count, type, root) \
    X(Recv, recv, count, type, root) \
    X(Reduce, send, recv, count, type, op, root) \
    X(ReduceScatter, send, recv, count, type, op) \
    X(Scatter, send, recv, count, type, root) \
    X(Send, send, count, type, root)

/* What decide.c has decided for a call. */
struct cecl_nccl_way {
    enum cecl_nccl_reason reason; /* why NCCL makes the call; NO_REASON: cecl makes it */
    int policy;                   /* the ceclSmPolicy_t with which cecl makes the call */
    bool is_captured;             /* a graph captures the call; false if decide.c did not ask */
    bool is_open;                 /* not decided yet: the end of the call's group decides */
};

struct cecl_nccl_call {
    enum cecl_nccl_op op;
    bool reduces; /* the call is a reduction, so it needs SMs; false: it only moves data */
    /* NCCL's own handle, never a wrapper: NCCL also gets it in calls that jump.c passes on */
    ncclComm_t comm;
    size_t count; /* number of elements, as in the program's call */
    ncclDataType_t datatype;
    ncclRedOp_t redop; /* for reductions */
    int root;          /* for calls with a root; for a send or a receive, the peer */
    const void *sendbuff;
    void *recvbuff;
    cudaStream_t stream;
    struct cecl_nccl_way way;
};

/* call.c. Decides which library makes `call`. Returns true if the caller must return `*result`: cecl has made the call
 * or has failed, or the call is kept for the end of a group or refused (by CECL_NCCL=strict, or while the communicator
 * is not ready). False: the caller must pass the call to NCCL.
 * caller  the call's return address */
bool cecl_nccl_take(struct cecl_nccl_call *call, const void *caller, ncclResult_t *result);

/* Whether the call is a send or a receive. Only two ranks make it: this rank and `root`, the peer. */
static inline bool cecl_nccl_is_message(enum cecl_nccl_op op)
{
    return op == CECL_NCCL_OP_ncclSend || op == CECL_NCCL_OP_ncclRecv;
}

/* Whether all ranks use recvbuff; otherwise only root does. */
static inline bool cecl_nccl_has_result_on_all(enum cecl_nccl_op op)
{
    return op != CECL_NCCL_OP_ncclGather && op != CECL_NCCL_OP_ncclReduce;
}

static inline bool cecl_nccl_is_served(const struct cecl_nccl_call *call)
{
    return call->way.reason == CECL_NCCL_NO_REASON;
}

/* Bytes of an element; 0: NCCL has no such type. */
static inline size_t cecl_nccl_type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[] = CECL_NCCL_TYPE_BYTES;
    return (size_t)type < sizeof(bytes) ? bytes[type] : 0;
}

/* Bytes of the call's `count` elements. */
static inline size_t cecl_nccl_call_bytes(const struct cecl_nccl_call *call)
{
    return call->count * cecl_nccl_type_bytes(call->datatype);
}

#endif
