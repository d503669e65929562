/* Small collectives, the host's part: what is refused, on how many SMs, launch. The kernels are in
 * small.cu. */
#include <inttypes.h>

#include "sm/gpus.h"
#include "sm/small_args.h"

/* How the warps that a call takes, each of 1536 bytes of a block, are spread. The less an SM sends,
 * the sooner it has sent it; one block alone need not count with others at the end. Measured:
 * docs/measurements.md, "Small calls by one kernel". */
#define WARPS_ALONE 4 /* so many are one block; */
#define WARPS_EACH 2  /* more are blocks of so many, as far as there may be blocks */

_Static_assert(WARPS_ALONE <= CECL_SMALL_WARPS && WARPS_EACH <= CECL_SMALL_WARPS, "in a block");
_Static_assert(sizeof(struct cecl_small_args) <= 4096, "what a kernel's arguments may take");

#define WHO "small collective"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* SMs that a call may take, of GPUs that are prepared. */
static struct cecl_gpus known;

static ceclResult_t gpu_prepare(int ordinal, uint32_t *most)
{
    int sms = 0;
    CECL_GPU_TRY(WHO, cudaDeviceGetAttribute, &sms, cudaDevAttrMultiProcessorCount, ordinal);
    CECL_TRY(cecl_gpu_load(WHO, cecl_small_move_kernel()));
    for (int t = 0; t < CECL_NUM_TYPES; t++)
        for (int o = 0; o < CECL_NUM_RED_OPS; o++)
            CECL_TRY(
                cecl_gpu_load(WHO, cecl_small_reduce_kernel((ceclDataType_t)t, (ceclRedOp_t)o)));
    *most = cecl_gpu_waiting_sms((uint32_t)sms);
    cecl_gpus_keep(&known, ordinal, *most);
    return ceclSuccess;
}

/* Of the current GPU, prepared. */
static ceclResult_t gpu_current(uint32_t *most)
{
    int ordinal = 0;
    CECL_GPU_TRY(WHO, cudaGetDevice, &ordinal);
    *most = cecl_gpus_known(&known, ordinal);
    return *most > 0 ? ceclSuccess : gpu_prepare(ordinal, most);
}

ceclResult_t cecl_small_cuda_prepare(void)
{
    uint32_t most;
    return gpu_current(&most);
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
    if (small->bytes < 1 || small->bytes > small->slot_bytes || small->slot_bytes % 512 != 0 ||
        small->slot_bytes > CECL_SMALL_SLOT_MAX)
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

/* Where what `sender` sends in this call lies at `holder`. */
static unsigned char *slot_of(const struct cecl_small *small, int holder, int sender)
{
    const uint64_t half = (small->epoch & 1) * (uint64_t)small->nranks;
    return small->slots[holder] + (half + (uint64_t)sender) * 2 * small->slot_bytes;
}

/* In so many calls of a half as it has rows, each row has its turn. With the largest slots that are
 * 2^27 calls, also twice in a row, as it may be where epochs wrap around: far from the 2^31 in which
 * an epoch comes near that of a line. A thread's line 0 begins with its vector 0, and line l > 0 with
 * some of its vector l - 1: without that the call does not use it. */
static void args_renew(const struct cecl_small *small, struct cecl_small_args *args)
{
    const uint32_t in_slot = (uint32_t)(2 * small->slot_bytes / CECL_SMALL_ROW);
    const uint32_t row = (small->epoch >> 1) % (in_slot * (uint32_t)small->nranks);
    const uint32_t group = row % in_slot / CECL_SMALL_LINES;
    const uint32_t line = row % in_slot % CECL_SMALL_LINES;
    args->renewed = slot_of(small, small->rank, 0) + (uint64_t)row * CECL_SMALL_ROW;
    args->renewed_vector = 32 * (group * CECL_SMALL_VECTORS + (line > 0 ? line - 1 : 0));
}

static void args_make(const struct cecl_small *small, struct cecl_small_args *args)
{
    const uint32_t n = (uint32_t)small->nranks;
    *args = (struct cecl_small_args){
        .send = small->send,
        .recv = small->recv,
        .bytes = (uint32_t)small->bytes,
        .send_stride = has_blocks(small) ? (uint32_t)small->bytes : 0,
        .from = slot_of(small, small->rank, 0),
        .slot = 2 * small->slot_bytes,
        .rank = (uint32_t)small->rank,
        .nranks = n,
        .epoch = small->epoch,
        .end = small->end,
        .late = small->late,
        .timeout_ns = small->timeout_ns,
    };
    for (int i = 1; i < small->nranks; i++)
        args->to[i - 1] = slot_of(small, (small->rank + i) % small->nranks, small->rank);
    args_renew(small, args);
    if (small->meeting)
        args->meeting = *small->meeting;
    if (reduces(small))
        args->division = cecl_division_of(small->op, n);
}

ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small)
{
    struct cecl_small_args args;
    void *arguments[] = {&args};
    uint32_t most;
    CECL_TRY(check(small));
    CECL_TRY(gpu_current(&most));
    args_make(small, &args);
    const uint32_t each = 32 * CECL_SMALL_VECTORS * 16; /* bytes, a warp */
    const uint32_t wanted = (args.bytes + each - 1) / each;
    if (small->max_sms > 0)
        most = least(small->max_sms, most);
    const uint32_t blocks =
        wanted <= WARPS_ALONE ? 1 : least((wanted + WARPS_EACH - 1) / WARPS_EACH, most);
    const uint32_t warps = least((wanted + blocks - 1) / blocks, CECL_SMALL_WARPS) + 1;
    const void *kernel = reduces(small) ? cecl_small_reduce_kernel(small->type, small->op)
                                        : cecl_small_move_kernel();
    CECL_GPU_TRY(WHO, cudaLaunchKernel, kernel, (struct dim3){blocks, 1, 1},
                 (struct dim3){32 * warps, 1, 1}, arguments, 0, stream);
    return ceclSuccess;
}
