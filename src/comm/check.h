/* CECL_CHECK: ranks compare what they are about to do. */
#ifndef CECL_COMM_CHECK_H
#define CECL_COMM_CHECK_H

#include "comm/comm.h"

/* The calls that are compared. */
enum cecl_called {
    CECL_CALLED_ALL_GATHER,
    CECL_CALLED_ALL_TO_ALL,
    CECL_CALLED_ALL_GATHERV,
    CECL_CALLED_BROADCAST,
    CECL_CALLED_ALL_TO_ALLV,
    CECL_CALLED_ALL_TO_ALLV_AT,
    CECL_CALLED_GATHER,
    CECL_CALLED_SCATTER,
    CECL_CALLED_ALL_GATHER_STRIDED,
    CECL_CALLED_ALL_TO_ALL_STRIDED,
    CECL_CALLED_REDUCE_SCATTER,
    CECL_CALLED_ALL_REDUCE,
    CECL_CALLED_REDUCE,
    CECL_CALLED_MEM_ALLOC,
    CECL_CALLED_MEM_FREE,
    CECL_CALLED_GROUP, /* each of its calls follows */
    CECL_CALLED_COUNT
};

/* A call's name: a literal. */
const char *cecl_called_name(enum cecl_called called);

/* One rank's call, as far as ranks must agree. */
struct cecl_signature {
    uint64_t call;        /* enum cecl_called */
    uint64_t count;       /* elements; of ceclMemAlloc bytes */
    uint64_t type;        /* ceclDataType_t */
    uint64_t in_place;    /* 0 or 1 */
    uint64_t offset;      /* in the pool, of recvbuff or ptr */
    uint64_t is_read;     /* 0 or 1: by peers, sendbuff */
    uint64_t send_offset; /* of sendbuff, if so */
    uint64_t layout;      /* a hash of sizes and places of blocks that differ */
    uint64_t shape;       /* a hash of that of strided blocks */
    uint64_t root;
    uint64_t red_op; /* ceclRedOp_t */
    uint64_t choice; /* of options: 10 * sm_policy + direction */
    uint64_t max_sms;
    int32_t status; /* ceclResult_t: whether this rank's own checks passed */
    char text[180]; /* why not */
};

/* Room for the ranks' signatures, made when the communicator is; NULL without memory. */
void *cecl_check_room(int nranks);

/* Collective under CECL_CHECK=1, otherwise no more than `local`: this rank's verdict on its own
 * arguments, its message recorded. All ranks go on, or all refuse: ceclInvalidUsage with both
 * ranks' values, or the words of the rank that refused. */
ceclResult_t cecl_check_call(ceclComm_t comm, struct cecl_signature *mine, ceclResult_t local);

/* What a peer's refusal, `status` with its words, is on this rank. */
ceclResult_t cecl_check_refused(int rank, int32_t status, const char *words);

#endif
