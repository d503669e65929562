/* Inside the reductions on GPUs: what host and kernels agree upon. Plain C, for both. */
#ifndef CECL_SM_REDUCE_ARGS_H
#define CECL_SM_REDUCE_ARGS_H

#include "sm/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The average's: of nothing where it is zeroed. */
struct cecl_division {
    uint32_t divisor; /* 0: not divided */
    float inverse;    /* 1 / divisor where that is exact, else 0 */
};

static inline struct cecl_division cecl_division_of(ceclRedOp_t op, uint32_t divisor)
{
    struct cecl_division division = {0, 0};
    if (op != ceclAvg || divisor <= 1)
        return division;
    division.divisor = divisor;
    if ((divisor & (divisor - 1)) == 0)
        division.inverse = 1.0f / (float)divisor;
    return division;
}

/* The body of a reduction is made of 16-byte vectors, all aligned; head and tail are what is before
 * and behind it, element by element. Where the buffers are not aligned alike, all is head. */
struct cecl_reduce_args {
    unsigned char *dst; /* where the body begins; the head lies before it */
    uint64_t head;      /* elements */
    uint64_t vectors;
    uint64_t tail; /* elements */
    uint32_t nsrc;
    struct cecl_division division;
    struct cecl_meeting meeting;
    uint32_t nalso;
    unsigned char *also[CECL_REDUCE_ALSO_MAX];              /* as dst */
    const unsigned char *src[CECL_REDUCE_CUDA_SOURCES_MAX]; /* as dst */
};

#define CECL_REDUCE_WIDE_THREADS 512

/* The bulk kernel keeps a ring of tiles, one source's each, in shared memory. 192 KiB are on their
 * way to each SM: over NVLink, with 1 to 2 us of latency, enough for 100 GB/s. */
#define CECL_REDUCE_TILE_BYTES 16384
#define CECL_REDUCE_TILES 12
#define CECL_REDUCE_BULK_READERS 512 /* threads that reduce */
#define CECL_REDUCE_BULK_THREADS (CECL_REDUCE_BULK_READERS + 32)
#define CECL_REDUCE_BULK_SHARED (CECL_REDUCE_TILES * (CECL_REDUCE_TILE_BYTES + 16))

/* The kernels, to be launched with one argument, a struct cecl_reduce_args. The wide one for just
 * `nsrc` sources where there is one, else that for any number. */
const void *cecl_reduce_wide_kernel(ceclDataType_t type, ceclRedOp_t op, uint32_t nsrc);
const void *cecl_reduce_any_kernel(ceclDataType_t type, ceclRedOp_t op);
const void *cecl_reduce_bulk_kernel(ceclDataType_t type, ceclRedOp_t op);

#ifdef __cplusplus
}
#endif
#endif
