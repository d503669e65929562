/* The arithmetic of reductions: dst[i] = src[0][i] op src[1][i] op ..., on the host or on SMs.
 *
 * A leaf: it knows pointers, element types and operations; no plan, no communicator, no rank.
 *
 * The result is fixed to the bit by the inputs alone. Elements are taken in the order of `src`, so
 * host and GPU agree, and max_sms, alignment and the kernel chosen change nothing:
 *
 *   integers    wrap around; min and max are those of the type.
 *   fp64, fp32  are accumulated in their own type, each step rounded to nearest even. No step is
 *               fused with another, and subnormals count.
 *   fp16, bf16, fp8   are accumulated in fp32 and rounded once, at the end, to nearest even.
 *   overflow    fp64, fp32, fp16, bf16, e5m2 give an infinity; e4m3 has none and gives 448 with the
 *               result's sign, for an infinity of the fp32 accumulator too.
 *   NaN         in any source gives a NaN, in min and max too, as does inf - inf or 0 * inf. A NaN
 *               result is always the same: positive, all bits of the fraction set, as GPUs make it.
 *   zeros       a sum of -0 alone is -0, any other zero sum is +0. For min and max -0 < +0.
 *   ceclAvg     the sum, divided once by `divisor` in the type of the accumulator, before the
 *               rounding.
 *
 * The host's arithmetic needs the caller's floating-point environment to be the usual one: rounding
 * to nearest, subnormals not flushed. */
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
#define CECL_REDUCE_CUDA_SOURCES_MAX 128 /* they travel as a kernel's arguments */

struct cecl_reduction {
    void *dst; /* [count]; exactly one of src (in place), or overlapping none */
    const void *const
        *src;         /* [nsrc] in the order in which they are reduced; read during the call */
    uint32_t nsrc;    /* 1 .. CECL_REDUCE_SOURCES_MAX, CUDA: .. _CUDA_SOURCES_MAX */
    uint32_t max_sms; /* CUDA: most SMs that are used, one block each; 0: 16 */
    uint64_t count;   /* elements; 0: nothing is done */
    ceclDataType_t type;
    ceclRedOp_t op;
    /* ceclAvg: the number of ranks, in the last phase of a reduction. 0 or 1: not divided, as in the
     * phases before. Other operations do not look at it. */
    uint32_t divisor;
    uint8_t kernel; /* CUDA: enum cecl_reduce_kernel */
    /* CUDA: where else the result is written, at peers as a rule; [nalso], read during the call. */
    void *const *also;
    uint32_t nalso; /* .. CECL_REDUCE_ALSO_MAX */
    /* CUDA: what of an exchange of flags the kernel takes part in; NULL: of none. Read during the
     * call. With it count is not 0. */
    const struct cecl_meeting *meeting;
};

/* CUDA: which kernel reads the sources. All give the same bits. */
enum cecl_reduce_kernel {
    CECL_REDUCE_AUTO = 0, /* BULK; the tuning table says from which size on it pays */
    CECL_REDUCE_WIDE,     /* 16-byte loads into registers; any GPU, any alignment */
    CECL_REDUCE_BULK      /* bulk copies into shared memory; where they cannot be, WIDE */
};

/* Refuses, with ceclInvalidArgument, an unknown type or operation, and pairs that are not defined:
 * ceclAvg of integers. */
ceclResult_t cecl_reduction_check(ceclDataType_t type, ceclRedOp_t op);

/* Bytes of an element; 0: no such type. */
uint32_t cecl_reduction_element_bytes(ceclDataType_t type);

/* Reduces, and returns when it is done. Type and operation have been checked. Buffers may have any
 * alignment. */
void cecl_reduce_host(const struct cecl_reduction *reduction);

/* Loads all kernels onto the calling thread's current GPU. Left out, the first reduction there does
 * it: then CUDA may wait for what runs on that GPU, and what runs may wait for a peer that waits for
 * us. So it is done at init. Local. */
ceclResult_t cecl_reduce_cuda_prepare(void);

/* Enqueues the reduction on `stream`, of the calling thread's current GPU. Sources are memory of
 * that GPU or peers' mapped by it; dst is its own, or a peer's if nothing tells that peer before the
 * stream's end; each is aligned to its elements. Refuses, enqueuing nothing: what
 * cecl_reduction_check refuses, more sources than fit, a buffer that is not aligned. */
ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction);

/* Whether the current GPU has the bulk kernel. */
ceclResult_t cecl_reduce_cuda_has_bulk(bool *has);

#ifdef __cplusplus
}
#endif
#endif
