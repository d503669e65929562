/* Small collectives on GPUs, the part that launches: on how many SMs. The kernels are in small.cu. */
#include "sm/gpus.h"
#include "sm/small_args.h"

/* How the warps that a call takes, each of 1536 bytes of a block, are spread. The less an SM sends,
 * the sooner it has sent it; one block alone need not count with others at the end. Measured:
 * docs/measurements.md, "Small calls by one kernel". */
#define MOST_BLOCKS 32
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
    *most = least(cecl_gpu_waiting_sms((uint32_t)sms), MOST_BLOCKS);
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

ceclResult_t cecl_small_cuda(ceclStream_t stream, const struct cecl_small *small)
{
    struct cecl_small_args args;
    void *arguments[] = {&args};
    uint32_t most;
    CECL_TRY(cecl_small_check(small));
    CECL_TRY(gpu_current(&most));
    cecl_small_args_make(small, &args);
    const uint32_t each = CECL_SMALL_GROUP_BYTES; /* bytes, a warp */
    const uint32_t wanted = (args.bytes + each - 1) / each;
    if (small->max_sms > 0)
        most = least(small->max_sms, most);
    const uint32_t blocks =
        wanted <= WARPS_ALONE ? 1 : least((wanted + WARPS_EACH - 1) / WARPS_EACH, most);
    const uint32_t warps = least((wanted + blocks - 1) / blocks, CECL_SMALL_WARPS) + 1;
    const void *kernel = cecl_small_reduces(small)
                             ? cecl_small_reduce_kernel(small->type, small->op)
                             : cecl_small_move_kernel();
    CECL_GPU_TRY(WHO, cudaLaunchKernel, kernel, (struct dim3){blocks, 1, 1},
                 (struct dim3){32 * warps, 1, 1}, arguments, 0, stream);
    return ceclSuccess;
}
