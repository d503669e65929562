/* Small calls on GPUs: the number of SMs, and the launch. The kernels are in small.cu. */
#include "sm/kernels.h"
#include "sm/small_args.h"

/* How the warps of a call are spread over SMs; each warp moves 1536 bytes of a block. A larger call uses many SMs,
 * because an SM with less to send is done sooner. The smallest calls are a single thread block, so that no blocks need
 * to be counted at the end. Measured: docs/data/results.md, "Small calls by one kernel". */
#define WARPS_ALONE 4 /* up to this many warps make one block of threads */
/* more warps are divided into thread blocks of this many warps, if the call may have so many blocks */
#define WARPS_EACH 2

_Static_assert(WARPS_ALONE <= CECL_SMALL_WARPS && WARPS_EACH <= CECL_SMALL_WARPS,
               "the warps fit into a thread block");
_Static_assert(sizeof(struct cecl_small_args) <= 4096,
               "a kernel's arguments have at most 4096 bytes");

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* For each GPU, once it is prepared: how many SMs a call may take, and the kernels. */
static struct small_gpu {
    uint32_t most;
    CUkernel move, counted_move, counted[CECL_KERNEL_TYPES];
    struct cecl_kernel_table reduce;
} gpus[CECL_GPUS_MAX];

static ceclResult_t load(const struct cecl_gpu *gpu)
{
    struct small_gpu *const mine = &gpus[gpu->device];
    int sms = 0;
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms));
    CECL_TRY(cecl_kernel_load(gpu, CECL_KERNELS_small, "cecl_small_move", 0, &mine->move));
    CECL_TRY(cecl_kernel_load(gpu, CECL_KERNELS_small, "cecl_small_move_counted", 0,
                              &mine->counted_move));
    CECL_TRY(cecl_kernel_table_load(gpu, CECL_KERNELS_small, "cecl_small", 0, &mine->reduce));
    CECL_TRY(cecl_kernels_counted_load(gpu, CECL_KERNELS_small, "cecl_small", 0, mine->counted));
    mine->most = cecl_gpu_waiting_sms((uint32_t)sms);
    return ceclSuccess;
}

static struct cecl_gpus known = {.who = "small collective", .load = load};

ceclResult_t cecl_small_cuda_prepare(void)
{
    return cecl_gpus_prepare(&known);
}

static CUkernel kernel_of(const struct small_gpu *gpu, const struct cecl_small *small)
{
    const bool is_counted = small->counting;
    if (!cecl_small_reduces(small))
        return is_counted ? gpu->counted_move : gpu->move;
    const int type = cecl_kernel_type(small->type, small->widens);
    return is_counted ? gpu->counted[type] : cecl_kernel_table_at(&gpu->reduce, type, small->op);
}

ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small)
{
    struct cecl_small_args args;
    void *arguments[] = {&args};
    struct cecl_gpu gpu;
    CECL_TRY(cecl_small_check(small));
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    const struct small_gpu *const mine = &gpus[gpu.device];
    cecl_small_args_make(small, &args);
    const uint32_t each = CECL_SMALL_GROUP_BYTES; /* bytes that a warp moves */
    const uint32_t wanted = (args.bytes + each - 1) / each;
    const uint32_t most = small->max_sms > 0 ? least(small->max_sms, mine->most) : mine->most;
    const uint32_t blocks =
        wanted <= WARPS_ALONE ? 1 : least((wanted + WARPS_EACH - 1) / WARPS_EACH, most);
    const uint32_t warps = least((wanted + blocks - 1) / blocks, CECL_SMALL_WARPS) + 1;
    const struct cecl_launch launch = {kernel_of(mine, small), blocks, 32 * warps, 0};
    return cecl_kernel_launch(&gpu, &launch, stream, arguments);
}
