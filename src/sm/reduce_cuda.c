/* Reductions on GPUs, the host's part: checks, the choice of the kernel and of the number of SMs,
 * and the launch. The kernels are in reduce_wide.cu and reduce_bulk.cu. */
#include "sm/gpus.h"
#include "sm/reduce_args.h"

_Static_assert(sizeof(struct cecl_reduce_args) <= 4096, "what a kernel's arguments may take");

#define WHO "reduction"

#define DEFAULT_SMS 16 /* for callers that give no number */

/* ---- what GPUs can do, once their kernels are loaded */

struct gpu {
    uint32_t sms;
    bool bulk;
};

/* 2 * SMs + bulk, for each GPU that is prepared. */
static struct cecl_gpus known;

static ceclResult_t load(const void *kernel, int shared)
{
    CECL_TRY(cecl_gpu_load(WHO, kernel));
    if (shared)
        CECL_GPU_TRY(WHO, cudaFuncSetAttribute, kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                     shared);
    return ceclSuccess;
}

static ceclResult_t load_all(bool bulk)
{
    for (int t = 0; t < CECL_NUM_TYPES; t++)
        for (int o = 0; o < CECL_NUM_RED_OPS; o++) {
            const ceclDataType_t type = (ceclDataType_t)t;
            const ceclRedOp_t op = (ceclRedOp_t)o;
            for (uint32_t nsrc = 1; nsrc <= 8; nsrc++)
                CECL_TRY(load(cecl_reduce_wide_kernel(type, op, nsrc), 0));
            CECL_TRY(load(cecl_reduce_any_kernel(type, op), 0));
            if (bulk)
                CECL_TRY(load(cecl_reduce_bulk_kernel(type, op), CECL_REDUCE_BULK_SHARED));
        }
    return ceclSuccess;
}

static ceclResult_t gpu_prepare(int ordinal, struct gpu *gpu)
{
    int sms = 0, major = 0, shared = 0;
    CECL_GPU_TRY(WHO, cudaDeviceGetAttribute, &sms, cudaDevAttrMultiProcessorCount, ordinal);
    CECL_GPU_TRY(WHO, cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, ordinal);
    CECL_GPU_TRY(WHO, cudaDeviceGetAttribute, &shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                 ordinal);
    gpu->sms = (uint32_t)sms;
    gpu->bulk = major >= 9 && shared >= CECL_REDUCE_BULK_SHARED;
    CECL_TRY(load_all(gpu->bulk));
    cecl_gpus_keep(&known, ordinal, 2 * gpu->sms + gpu->bulk);
    return ceclSuccess;
}

/* What is known of the current GPU. Prepares the GPU if that was not done. */
static ceclResult_t gpu_current(struct gpu *gpu)
{
    int ordinal = 0;
    CECL_GPU_TRY(WHO, cudaGetDevice, &ordinal);
    const uint32_t word = cecl_gpus_known(&known, ordinal);
    if (word == 0)
        return gpu_prepare(ordinal, gpu);
    gpu->sms = word / 2;
    gpu->bulk = word % 2;
    return ceclSuccess;
}

ceclResult_t cecl_reduce_cuda_prepare(void)
{
    struct gpu gpu;
    return gpu_current(&gpu);
}

ceclResult_t cecl_reduce_cuda_has_bulk(bool *has)
{
    struct gpu gpu;
    CECL_TRY(gpu_current(&gpu));
    *has = gpu.bulk;
    return ceclSuccess;
}

/* ---- one reduction */

static ceclResult_t check_buffer(const char *name, const void *at, uint32_t element)
{
    if ((uintptr_t)at % element)
        return cecl_fail(ceclInvalidArgument,
                         "reduction: %s %p: aligned to its elements of %u bytes "
                         "expected",
                         name, at, element);
    return ceclSuccess;
}

static ceclResult_t check(const struct cecl_reduction *r)
{
    CECL_TRY(cecl_reduction_check(r->type, r->op));
    const uint32_t element = cecl_reduction_element_bytes(r->type);
    if (r->nsrc < 1 || r->nsrc > CECL_REDUCE_CUDA_SOURCES_MAX)
        return cecl_fail(ceclInvalidArgument, "reduction of %u sources: 1 to %d expected", r->nsrc,
                         CECL_REDUCE_CUDA_SOURCES_MAX);
    CECL_TRY(check_buffer("dst", r->dst, element));
    if (r->nalso > CECL_REDUCE_ALSO_MAX)
        return cecl_fail(ceclInvalidArgument, "reduction to %u more places: 0 to %d expected",
                         r->nalso, CECL_REDUCE_ALSO_MAX);
    for (uint32_t a = 0; a < r->nalso; a++)
        CECL_TRY(check_buffer("dst", r->also[a], element));
    for (uint32_t s = 0; s < r->nsrc; s++)
        CECL_TRY(check_buffer("source", r->src[s], element));
    return ceclSuccess;
}

/* Whether all buffers have the same offset from a multiple of 16 bytes. */
static bool aligned_alike(const struct cecl_reduction *r)
{
    uintptr_t differ = 0;
    for (uint32_t s = 0; s < r->nsrc; s++)
        differ |= (uintptr_t)r->src[s] ^ (uintptr_t)r->dst;
    for (uint32_t a = 0; a < r->nalso; a++)
        differ |= (uintptr_t)r->also[a] ^ (uintptr_t)r->dst;
    return differ % 16 == 0;
}

static void args_make(const struct cecl_reduction *r, struct cecl_reduce_args *args)
{
    const uint64_t element = cecl_reduction_element_bytes(r->type), per = 16 / element;
    const uint64_t before = (16 - (uintptr_t)r->dst % 16) % 16 / element;
    args->head = r->count;
    args->vectors = 0;
    if (aligned_alike(r) && before < r->count) {
        args->head = before;
        args->vectors = (r->count - before) / per;
    }
    args->tail = r->count - args->head - args->vectors * per;
    args->nsrc = r->nsrc;
    args->meeting = r->meeting ? *r->meeting : (struct cecl_meeting){0};
    args->division = cecl_division_of(r->op, r->divisor);
    args->dst = (unsigned char *)r->dst + args->head * element;
    args->nalso = r->nalso;
    for (uint32_t a = 0; a < r->nalso; a++)
        args->also[a] = (unsigned char *)r->also[a] + args->head * element;
    for (uint32_t s = 0; s < r->nsrc; s++)
        args->src[s] = (const unsigned char *)r->src[s] + args->head * element;
}

static uint32_t fewest(uint64_t work, uint64_t each, uint32_t most)
{
    const uint64_t blocks = (work + each - 1) / each;
    return blocks < 1 ? 1 : blocks < most ? (uint32_t)blocks : most;
}

/* Most blocks that the kernel may have, one for each SM. A kernel that waits for peers leaves SMs
 * to others. */
static uint32_t most_blocks(const struct cecl_reduction *r, const struct gpu *gpu)
{
    const bool waits = r->meeting && (r->meeting->does & CECL_MEET_WAIT_FIRST);
    const uint32_t wanted = r->max_sms ? r->max_sms : DEFAULT_SMS,
                   room = waits ? cecl_gpu_waiting_sms(gpu->sms) : gpu->sms;
    return wanted < room ? wanted : room;
}

/* Which kernel reduces, and how it is launched. */
struct launch {
    const void *kernel;
    uint32_t blocks, threads;
    size_t shared;
};

static struct launch launch_of(const struct cecl_reduction *r, const struct cecl_reduce_args *args,
                               const struct gpu *gpu)
{
    const uint32_t most = most_blocks(r, gpu);
    if (args->vectors > 0 && r->kernel != CECL_REDUCE_WIDE && gpu->bulk)
        return (struct launch){cecl_reduce_bulk_kernel(r->type, r->op),
                               fewest(args->vectors, CECL_REDUCE_TILE_BYTES / 16, most),
                               CECL_REDUCE_BULK_THREADS, CECL_REDUCE_BULK_SHARED};
    if (args->vectors > 0)
        return (struct launch){cecl_reduce_wide_kernel(r->type, r->op, r->nsrc),
                               fewest(args->vectors, CECL_REDUCE_WIDE_THREADS, most),
                               CECL_REDUCE_WIDE_THREADS, 0};
    return (struct launch){cecl_reduce_any_kernel(r->type, r->op),
                           fewest(r->count, CECL_REDUCE_WIDE_THREADS, most),
                           CECL_REDUCE_WIDE_THREADS, 0};
}

ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction)
{
    struct cecl_reduce_args args; /* sources beyond nsrc are not initialized */
    void *arguments[] = {&args};
    struct gpu gpu;
    CECL_TRY(check(reduction));
    if (reduction->count == 0)
        return ceclSuccess;
    CECL_TRY(gpu_current(&gpu));
    args_make(reduction, &args);
    const struct launch l = launch_of(reduction, &args, &gpu);
    CECL_GPU_TRY(WHO, cudaLaunchKernel, l.kernel, (struct dim3){l.blocks, 1, 1},
                 (struct dim3){l.threads, 1, 1}, arguments, l.shared, stream);
    return ceclSuccess;
}
