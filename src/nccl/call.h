/* A call of a collective, as far as it decides what becomes of the call; and that decision. */
#ifndef CECL_NCCL_CALL_H
#define CECL_NCCL_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "nccl/abi.h"
#include "nccl/names.h"

/* CECL_NCCL_OP_ncclAllGather and so on: the functions of collectives.c. */
enum cecl_nccl_op {
#define COUNTED(name) CECL_NCCL_OP_##name,
#define JUMP(name, answer)
    CECL_NCCL_NAMES(COUNTED, JUMP)
#undef COUNTED
#undef JUMP
        CECL_NCCL_OPS
};
extern const char *const cecl_nccl_op_names[CECL_NCCL_OPS];

struct cecl_nccl_call {
    enum cecl_nccl_op op;
    bool reduces; /* computes, which needs SMs; otherwise the call only moves data */
    ncclDataType_t datatype;
    size_t count;    /* elements, as the call names them */
    ncclComm_t comm; /* NCCL's own, never a wrapper: programs hand it to NCCL by other ways too */
    const void *caller; /* the code that the call returns to */
};

/* Why a call is passed to NCCL: X(id, "in words"). */
#define CECL_NCCL_REASONS(X)                                                                       \
    X(FORKED, "this process was forked after its parent called NCCL")                              \
    X(OLD, "NCCL is older than 2.19")                                                              \
    X(BY_SETTING, "CECL_NCCL=off")                                                                 \
    X(UNSERVED, "this version of cecl serves no call")

enum cecl_nccl_reason {
#define REASON(id, words) CECL_NCCL_##id,
    CECL_NCCL_REASONS(REASON)
#undef REASON
        CECL_NCCL_REASON_COUNT
};
extern const char *const cecl_nccl_reason_words[CECL_NCCL_REASON_COUNT];

/* Decides on `call`, and counts it. Returns whether the call is passed to NCCL; otherwise it is
 * refused, which happens under CECL_NCCL=strict alone. */
bool cecl_nccl_admit(const struct cecl_nccl_call *call);

/* `count` elements, in bytes. */
size_t cecl_nccl_call_bytes(const struct cecl_nccl_call *call);

#endif
