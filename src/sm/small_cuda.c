/* Small collectives, the host's part: what is refused, on how many SMs, launch. The kernels are in
 * small.cu. */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdatomic.h>

#include "sm/small_args.h"

/* A block for each 4 KiB: what one thread has to wait for is a line of each peer then. Reckoned. */
#define MOST_BLOCKS 32

_Static_assert(sizeof(struct cecl_small_args) <= 4096, "what a kernel's arguments may take");

static ceclResult_t cuda_result(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return ceclSuccess;
    cudaGetLastError(); /* told once, here */
    return cecl_fail(ceclUnhandledCudaError, "small collective: %s: %s", what,
                     cudaGetErrorString(error));
}
#define CUDA_TRY(function, ...) CECL_TRY(cuda_result(function(__VA_ARGS__), #function))

#define GPUS_KEPT 64
static _Atomic bool prepared[GPUS_KEPT];

ceclResult_t cecl_small_cuda_prepare(void)
{
    struct cudaFuncAttributes attributes;
    int ordinal = 0;
    CUDA_TRY(cudaGetDevice, &ordinal);
    if (ordinal < GPUS_KEPT && atomic_load(&prepared[ordinal]))
        return ceclSuccess;
    CUDA_TRY(cudaFuncGetAttributes, &attributes, cecl_small_move_kernel());
    for (int t = 0; t < CECL_NUM_TYPES; t++)
        for (int o = 0; o < CECL_NUM_RED_OPS; o++)
            CUDA_TRY(cudaFuncGetAttributes, &attributes,
                     cecl_small_reduce_kernel((ceclDataType_t)t, (ceclRedOp_t)o));
    if (ordinal < GPUS_KEPT)
        atomic_store(&prepared[ordinal], true);
    return ceclSuccess;
}

static bool reduces(const struct cecl_small *small)
{
    return small->kind == CECL_SMALL_ALL_REDUCE || small->kind == CECL_SMALL_REDUCE_SCATTER;
}

/* Whether there is a block for each rank, and not one for all. */
static bool has_blocks(const struct cecl_small *small)
{
    return small->kind == CECL_SMALL_ALL_TO_ALL || small->kind == CECL_SMALL_REDUCE_SCATTER;
}

static ceclResult_t check(const struct cecl_small *small)
{
    if (small->nranks < 2 || small->nranks > CECL_SMALL_RANKS_MAX || small->rank < 0 ||
        small->rank >= small->nranks)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: rank %d of %d: 2 to %d ranks expected", small->rank,
                         small->nranks, CECL_SMALL_RANKS_MAX);
    if (small->bytes < 1 || small->bytes > small->slot_bytes || small->slot_bytes % 512 != 0)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: %" PRIu64 " bytes for slots of %" PRIu64, small->bytes,
                         small->slot_bytes);
    if (!reduces(small))
        return ceclSuccess;
    CECL_TRY(cecl_reduction_check(small->type, small->op));
    if (small->bytes % cecl_reduction_element_bytes(small->type) != 0)
        return cecl_fail(ceclInvalidArgument,
                         "small collective: %" PRIu64 " bytes are no whole elements", small->bytes);
    return ceclSuccess;
}

static void args_make(const struct cecl_small *small, struct cecl_small_args *args)
{
    const uint32_t n = (uint32_t)small->nranks;
    *args = (struct cecl_small_args){.send = small->send,
                                     .recv = small->recv,
                                     .bytes = small->bytes,
                                     .send_stride = has_blocks(small) ? small->bytes : 0,
                                     .slot_bytes = small->slot_bytes,
                                     .end = small->end,
                                     .late = small->late,
                                     .timeout_ns = small->timeout_ns,
                                     .rank = small->rank,
                                     .nranks = small->nranks,
                                     .epoch = small->epoch};
    for (int r = 0; r < small->nranks; r++)
        args->slots[r] = small->slots[r];
    if (small->meeting)
        args->meeting = *small->meeting;
    if (reduces(small) && small->op == ceclAvg) {
        args->divisor = n;
        args->inverse = (n & (n - 1)) == 0 ? 1.0f / (float)n : 0;
    }
}

ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small)
{
    struct cecl_small_args args;
    void *arguments[] = {&args};
    CECL_TRY(check(small));
    args_make(small, &args);
    const uint64_t vectors = (small->bytes + 15) / 16;
    const uint64_t wanted = (vectors + CECL_SMALL_THREADS - 1) / CECL_SMALL_THREADS;
    const uint32_t most =
        small->max_sms && small->max_sms < MOST_BLOCKS ? small->max_sms : MOST_BLOCKS;
    const uint32_t blocks = wanted < most ? (uint32_t)wanted : most;
    const void *kernel = reduces(small) ? cecl_small_reduce_kernel(small->type, small->op)
                                        : cecl_small_move_kernel();
    CUDA_TRY(cudaLaunchKernel, kernel, (struct dim3){blocks, 1, 1},
             (struct dim3){CECL_SMALL_THREADS, 1, 1}, arguments, 0, stream);
    return ceclSuccess;
}
