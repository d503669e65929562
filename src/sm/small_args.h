/* Inside small collectives: what host and kernels agree upon. Plain C, for both. */
#ifndef CECL_SM_SMALL_ARGS_H
#define CECL_SM_SMALL_ARGS_H

#include "sm/small.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_SMALL_THREADS 512

struct cecl_small_args {
    const unsigned char *send;
    unsigned char *recv;
    uint64_t bytes;       /* of a block */
    uint64_t send_stride; /* from the block for a rank to that for the next: 0, they are one */
    uint64_t slot_bytes;
    unsigned char *slots[CECL_SMALL_RANKS_MAX];
    const uint32_t *end;
    uint32_t *late;
    uint64_t timeout_ns;
    int rank, nranks;
    uint32_t epoch;
    struct cecl_meeting meeting;
    uint32_t divisor; /* 0: not divided */
    float inverse;    /* 1 / divisor where that is exact, else 0 */
};

/* To be launched with one argument, a struct cecl_small_args. */
const void *cecl_small_reduce_kernel(ceclDataType_t type, ceclRedOp_t op);
const void *cecl_small_move_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
