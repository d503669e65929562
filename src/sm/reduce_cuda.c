/* Reductions on GPUs, the host's part: checks, the choice of the kernel and of the number of SMs,
 * and the launch. The kernels are in reduce_wide.cu and reduce_bulk.cu. */
#include "sm/kernels.h"
#include "sm/reduce_args.h"

_Static_assert(sizeof(struct cecl_reduce_args) <= 4096,
               "a kernel's arguments have at most 4096 bytes");

#define DEFAULT_SMS 16 /* for callers that give no number */

/* ---- what GPUs can do, once their kernels are loaded */

/* The kernels of each GPU, once it is prepared. sums[type][n]: the kernel for exactly n sources, or NULL. */
static struct reduce_gpu {
    uint32_t sms;
    bool bulk;
    struct cecl_kernel_table any, bulks;
    CUkernel counted_any[CECL_KERNEL_TYPES], counted_bulk[CECL_KERNEL_TYPES];
    CUkernel sums[CECL_KERNEL_TYPES][CECL_REDUCE_SUMS_MOST + 1];
} gpus[CECL_GPUS_MAX];

static const struct {
    int type;
    uint32_t nsrc;
    const char *name;
} sums[] = {
#define SUM(name, type, nsrc) {type, nsrc, "cecl_reduce_sum_" #name "_of_" #nsrc},
    CECL_REDUCE_SUMS(SUM)
#undef SUM
};

static ceclResult_t load(const struct cecl_gpu *gpu)
{
    struct reduce_gpu *const mine = &gpus[gpu->device];
    int sms = 0, major = 0, shared = 0;
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms));
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    CECL_TRY(
        cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared));
    mine->sms = (uint32_t)sms;
    mine->bulk = major >= 9 && shared >= CECL_REDUCE_BULK_SHARED;
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
        CECL_TRY(cecl_kernel_load(gpu, CECL_KERNELS_reduce_wide, sums[i].name, 0,
                                  &mine->sums[sums[i].type][sums[i].nsrc]));
    CECL_TRY(
        cecl_kernel_table_load(gpu, CECL_KERNELS_reduce_wide, "cecl_reduce_any", 0, &mine->any));
    CECL_TRY(cecl_kernels_counted_load(gpu, CECL_KERNELS_reduce_wide, "cecl_reduce_any", 0,
                                       mine->counted_any));
    if (!mine->bulk)
        return ceclSuccess;
    CECL_TRY(cecl_kernel_table_load(gpu, CECL_KERNELS_reduce_bulk, "cecl_reduce_bulk",
                                    CECL_REDUCE_BULK_SHARED, &mine->bulks));
    return cecl_kernels_counted_load(gpu, CECL_KERNELS_reduce_bulk, "cecl_reduce_bulk",
                                     CECL_REDUCE_BULK_SHARED, mine->counted_bulk);
}

static struct cecl_gpus known = {.who = "reduction", .load = load};

ceclResult_t cecl_reduce_cuda_prepare(void)
{
    return cecl_gpus_prepare(&known);
}

ceclResult_t cecl_reduce_cuda_has_bulk(bool *has)
{
    struct cecl_gpu gpu;
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    *has = gpus[gpu.device].bulk;
    return ceclSuccess;
}

/* ---- one reduction */

static ceclResult_t check_buffer(const char *name, const void *at, uint64_t element)
{
    if ((uintptr_t)at % element)
        return cecl_fail(
            ceclInvalidArgument,
            "reduction: %s %p: an address aligned to its elements of %u bytes is expected", name,
            at, (unsigned)element);
    return ceclSuccess;
}

static ceclResult_t check(const struct cecl_reduction *r)
{
    CECL_TRY(cecl_reduction_check(r->type, r->op));
    if (r->widens)
        CECL_TRY(cecl_reduction_check_widens(r->type, r->op));
    if (r->counting && !cecl_reduction_counts(r->type, r->op))
        return cecl_fail(ceclInternalError,
                         "reduction: no kernel of this type and operation numbers calls");
    const uint64_t element = cecl_reduction_element_bytes(r->type),
                   result = cecl_reduction_result_bytes(r->widens, element);
    if (r->nsrc < 1 || r->nsrc > CECL_REDUCE_CUDA_SOURCES_MAX)
        return cecl_fail(ceclInvalidArgument, "reduction of %u sources: 1 to %d expected", r->nsrc,
                         CECL_REDUCE_CUDA_SOURCES_MAX);
    CECL_TRY(check_buffer("dst", r->dst, result));
    if (r->nalso > CECL_REDUCE_ALSO_MAX)
        return cecl_fail(ceclInvalidArgument, "reduction to %u more places: 0 to %d expected",
                         r->nalso, CECL_REDUCE_ALSO_MAX);
    for (uint32_t a = 0; a < r->nalso; a++)
        CECL_TRY(check_buffer("dst", r->also[a], result));
    for (uint32_t s = 0; s < r->nsrc; s++)
        CECL_TRY(check_buffer("source", r->src[s], element));
    return ceclSuccess;
}

/* How many elements lie before the body, whose vectors are aligned in all buffers. If no element begins an aligned
 * vector in every buffer, there is no body, and the result is the number of all elements. */
static uint64_t head_of(const struct cecl_reduction *r, uint64_t element, uint64_t result)
{
    const uint64_t before = (16 - (uintptr_t)r->src[0] % 16) % 16 / element;
    uintptr_t differ = (uintptr_t)r->dst + before * result;
    for (uint32_t s = 1; s < r->nsrc; s++)
        differ |= (uintptr_t)r->src[s] ^ (uintptr_t)r->src[0];
    for (uint32_t a = 0; a < r->nalso; a++)
        differ |= (uintptr_t)r->also[a] ^ (uintptr_t)r->dst;
    return differ % 16 == 0 && before < r->count ? before : r->count;
}

static void args_make(const struct cecl_reduction *r, struct cecl_reduce_args *args)
{
    const uint64_t element = cecl_reduction_element_bytes(r->type), per = 16 / element,
                   result = cecl_reduction_result_bytes(r->widens, element);
    args->head = head_of(r, element, result);
    args->vectors = (r->count - args->head) / per;
    args->tail = r->count - args->head - args->vectors * per;
    args->nsrc = r->nsrc;
    args->meeting = r->meeting ? *r->meeting : (struct cecl_meeting){0};
    args->counting = r->counting ? *r->counting : (struct cecl_counting){0};
    args->average = cecl_average_of(r->op, r->divisor);
    args->dst = (unsigned char *)r->dst + args->head * result;
    args->nalso = r->nalso;
    for (uint32_t a = 0; a < r->nalso; a++)
        args->also[a] = (unsigned char *)r->also[a] + args->head * result;
    for (uint32_t s = 0; s < r->nsrc; s++)
        args->src[s] = (const unsigned char *)r->src[s] + args->head * element;
}

static uint32_t fewest(uint64_t work, uint64_t each, uint32_t most)
{
    const uint64_t blocks = (work + each - 1) / each;
    return blocks < 1 ? 1 : blocks < most ? (uint32_t)blocks : most;
}

/* The most blocks that the kernel may have: one for each SM that it may use. A kernel that waits for peers leaves SMs
 * to other kernels. */
static uint32_t most_blocks(const struct cecl_reduction *r, const struct reduce_gpu *gpu)
{
    const bool waits = r->meeting && (r->meeting->does & CECL_MEET_WAIT_FIRST);
    const uint32_t wanted = r->max_sms ? r->max_sms : DEFAULT_SMS,
                   room = waits ? cecl_gpu_waiting_sms(gpu->sms) : gpu->sms;
    return wanted < room ? wanted : room;
}

static CUkernel any_kernel(const struct reduce_gpu *gpu, const struct cecl_reduction *r)
{
    const int type = cecl_kernel_type(r->type, r->widens);
    return r->counting ? gpu->counted_any[type] : cecl_kernel_table_at(&gpu->any, type, r->op);
}

static CUkernel bulk_kernel(const struct reduce_gpu *gpu, const struct cecl_reduction *r)
{
    const int type = cecl_kernel_type(r->type, r->widens);
    return r->counting ? gpu->counted_bulk[type] : cecl_kernel_table_at(&gpu->bulks, type, r->op);
}

/* The wide kernel for exactly this number of sources, if there is one; otherwise the general wide kernel. */
static CUkernel wide_kernel(const struct reduce_gpu *gpu, const struct cecl_reduction *r)
{
    const bool is_sum = r->op == ceclSum || r->op == ceclAvg;
    const CUkernel made = is_sum && !r->counting && r->nsrc <= CECL_REDUCE_SUMS_MOST
                              ? gpu->sums[cecl_kernel_type(r->type, r->widens)][r->nsrc]
                              : NULL;
    return made ? made : any_kernel(gpu, r);
}

static struct cecl_launch launch_of(const struct cecl_reduction *r,
                                    const struct cecl_reduce_args *args,
                                    const struct reduce_gpu *gpu)
{
    const uint32_t most = most_blocks(r, gpu);
    if (args->vectors > 0 && r->kernel != CECL_REDUCE_WIDE && gpu->bulk)
        return (struct cecl_launch){bulk_kernel(gpu, r),
                                    fewest(args->vectors, CECL_REDUCE_TILE_BYTES / 16, most),
                                    CECL_REDUCE_BULK_THREADS, CECL_REDUCE_BULK_SHARED};
    if (args->vectors > 0)
        return (struct cecl_launch){wide_kernel(gpu, r),
                                    fewest(args->vectors, CECL_REDUCE_WIDE_THREADS, most),
                                    CECL_REDUCE_WIDE_THREADS, 0};
    return (struct cecl_launch){any_kernel(gpu, r),
                                fewest(r->count, CECL_REDUCE_WIDE_THREADS, most),
                                CECL_REDUCE_WIDE_THREADS, 0};
}

ceclResult_t cecl_reduce_cuda(ceclStream_t stream, const struct cecl_reduction *reduction)
{
    struct cecl_reduce_args args; /* sources beyond nsrc are not initialized */
    void *arguments[] = {&args};
    struct cecl_gpu gpu;
    CECL_TRY(check(reduction));
    if (reduction->count == 0)
        return ceclSuccess;
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    args_make(reduction, &args);
    const struct cecl_launch launch = launch_of(reduction, &args, &gpus[gpu.device]);
    return cecl_kernel_launch(&gpu, &launch, stream, arguments);
}
