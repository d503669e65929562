/* The arithmetic of reductions: dst[i] = src[0][i] op src[1][i] op ..., on the host or on SMs.
 *
 * This file knows pointers, element types and operations, but no plan, communicator or rank.
 *
 * The inputs alone decide every bit of the result. Elements are combined in the order of `src`, so host and GPU agree,
 * and max_sms, alignment and the chosen kernel have no influence:
 *
 *   integers    wrap around; min and max compare numbers of the type, signed or unsigned.
 *   fp64, fp32  are accumulated in their own type, each step rounded to nearest even. No step is
 *               fused with another, and subnormals are not flushed.
 *   fp16, bf16, fp8   are accumulated in fp32 and rounded once, at the end, to nearest even. A reduction
 *               that widens keeps the fp32.
 *   overflow    fp64, fp32, fp16, bf16, e5m2 give an infinity. e4m3 has none and gives 448 with the
 *               result's sign, also for an infinity of the fp32 accumulator.
 *   NaN         in any source gives a NaN, in min and max too; so do inf - inf and 0 * inf. A NaN
 *               result is always the same: positive, all bits of the fraction set, as GPUs make it.
 *   zeros       a sum of -0 alone is -0, any other zero sum is +0. For min and max -0 < +0.
 *   ceclAvg     the sum, divided once by `divisor` in the accumulator's type, before it is rounded to the
 *               element type. Each element is multiplied by a power of two first (struct cecl_average), so
 *               no sum overflows if the average does not. The products are exact, except that fp64
 *               and fp32 products below the smallest normal number are rounded.
 *
 * The host's arithmetic needs the default floating-point environment: rounding to nearest, subnormals not flushed. */
#ifndef CECL_SM_REDUCE_H
#define CECL_SM_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "sm/meeting.h"
#include "util/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CECL_REDUCE_SOURCES_MAX 1024 /* on the host */
#define CECL_REDUCE_ALSO_MAX 15
#define CECL_REDUCE_CUDA_SOURCES_MAX 128 /* sources are passed as kernel arguments */

struct cecl_reduction {
    void *dst;              /* [count]; equal to one of src (in place), or overlapping none */
    const void *const *src; /* [nsrc], reduced in this order; read during the call */
    uint32_t nsrc;    /* 1 .. CECL_REDUCE_SOURCES_MAX; on CUDA 1 .. CECL_REDUCE_CUDA_SOURCES_MAX */
    uint32_t max_sms; /* CUDA: the most SMs to use, with one block each; 0 means 16 */
    uint64_t count;   /* elements; with 0 nothing is done */
    ceclDataType_t type;
    ceclRedOp_t op;
    bool widens; /* dst holds fp32 numbers; only for sums and averages of fp16 and bf16 */
    /* For ceclAvg only: the number of ranks, by which the sum is divided; 0 or 1: not divided */
    uint32_t divisor;
    uint8_t kernel; /* CUDA: enum cecl_reduce_kernel */
    /* CUDA: [nalso] further places, usually at peers, where the result is written; read during the call. */
    void *const *also;
    uint32_t nalso; /* 0 .. CECL_REDUCE_ALSO_MAX */
    /* CUDA: the exchange of flags in which the kernel takes part; NULL: none. Read during the call. A reduction with a
     * meeting has count > 0. */
    const struct cecl_meeting *meeting;
    /* CUDA, not NULL: a captured call, whose kernel counts its own runs */
    const struct cecl_counting *counting;
};

/* CUDA: which kernel reads the sources. All kernels give the same bits. */
enum cecl_reduce_kernel {
    /* the value in a zeroed struct: as BULK */
    CECL_REDUCE_AUTO = 0,
    CECL_REDUCE_WIDE, /* 16-byte loads into registers; any GPU, any alignment */
    /* bulk copies into shared memory; if the GPU or the buffers do not allow them, as WIDE */
    CECL_REDUCE_BULK
};

/* Refuses unknown types and operations, and undefined pairs (ceclAvg of integers), with ceclInvalidArgument. */
ceclResult_t cecl_reduction_check(ceclDataType_t type, ceclRedOp_t op);
/* Refuses types and operations for which no reduction widens. */
ceclResult_t cecl_reduction_check_widens(ceclDataType_t type, ceclRedOp_t op);
/* How many bytes the result has if each source has `bytes` bytes. */
static inline uint64_t cecl_reduction_result_bytes(bool widens, uint64_t bytes)
{
    return widens ? 2 * bytes : bytes;
}
/* Whether kernels can count the runs of captured calls of this type and operation. GPUs have such kernels only
 * for the usual sums (CECL_REDUCE_COUNTED). Host devices give the same answer, because ranks must agree. */
static inline bool cecl_reduction_counts(ceclDataType_t type, ceclRedOp_t op)
{
    return (op == ceclSum || op == ceclAvg) && (type == ceclFloat16 || type == ceclBfloat16 ||
                                                type == ceclFloat32 || type == ceclFloat64);
}

/* Bytes of an element; 0 for an unknown type. */
uint32_t cecl_reduction_element_bytes(ceclDataType_t type);

/* Reduces on the calling thread. Type and operation have been checked. Buffers may have any alignment. */
void cecl_reduce_host(const struct cecl_reduction *reduction);

/* Loads all kernels onto the calling thread's current GPU. Call it when a communicator is made: if the first
 * reduction loaded them, CUDA might wait for running work, and that work might wait for a peer that waits for
 * this rank. Local. */
ceclResult_t cecl_reduce_cuda_prepare(void);

/* Enqueues the reduction on `stream` of the calling thread's current GPU. Sources are memory of that GPU, or peers'
 * memory mapped by it. dst is memory of that GPU, or a peer's memory if the peer is signalled only after the stream has
 * reached the end of the reduction. Each buffer is aligned to its elements. Refuses what cecl_reduction_check refuses,
 * too many sources, and a buffer that is not aligned; nothing is enqueued then. */
ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction);

/* Whether the current GPU can run the bulk kernel. */
ceclResult_t cecl_reduce_cuda_has_bulk(bool *has);

#ifdef __cplusplus
}
#endif
#endif
