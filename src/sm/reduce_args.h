/* The arguments that host code passes to the kernels of reductions. Plain C. */
#ifndef CECL_SM_REDUCE_ARGS_H
#define CECL_SM_REDUCE_ARGS_H

#include "sm/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An average multiplies each element by `scale`, and divides the sum of the products by `divisor`. The scale is the
 * largest power of two that is at most 1 / ranks, so the sum is no larger than the largest element and cannot overflow.
 * Both numbers are exact. In other reductions both are 1. */
struct cecl_average {
    float scale, divisor;
};

static inline struct cecl_average cecl_average_of(ceclRedOp_t op, uint32_t ranks)
{
    struct cecl_average average = {1, 1};
    if (op != ceclAvg)
        return average;
    while (average.scale * (float)ranks > 1)
        average.scale /= 2;
    if (ranks > 0)
        average.divisor = average.scale * (float)ranks;
    return average;
}

/* The arguments of a kernel. The body of a reduction consists of aligned 16-byte vectors of the sources; head and tail
 * are the elements before and after it. If aligned vectors do not begin at the same element in all buffers, all
 * elements are in the head. */
struct cecl_reduce_args {
    unsigned char *dst; /* where the body begins; the head lies in front of it */
    uint64_t head;      /* elements */
    uint64_t vectors;
    uint64_t tail; /* elements */
    uint32_t nsrc;
    struct cecl_average average;
    struct cecl_meeting meeting;
    uint32_t nalso;
    unsigned char *also[CECL_REDUCE_ALSO_MAX];              /* where the body begins, as for dst */
    const unsigned char *src[CECL_REDUCE_CUDA_SOURCES_MAX]; /* where the body begins, as for dst */
    /* for kernels of captured calls; last, so that all other fields have the same place in all kernels */
    struct cecl_counting counting;
};

#define CECL_REDUCE_WIDE_THREADS 512

/* The bulk kernel keeps a ring of tiles in shared memory; each tile has data of one source. 192 KiB in flight to an SM
 * suffice for 100 GB/s to that SM over NVLink, whose latency is 1 to 2 us. */
#define CECL_REDUCE_TILE_BYTES 16384
#define CECL_REDUCE_TILES 12
#define CECL_REDUCE_BULK_READERS 512 /* threads that reduce */
#define CECL_REDUCE_BULK_THREADS (CECL_REDUCE_BULK_READERS + 32)
#define CECL_REDUCE_BULK_SHARED (CECL_REDUCE_TILES * (CECL_REDUCE_TILE_BYTES + 16))

#ifdef __cplusplus
}
#endif
#endif
