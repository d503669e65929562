/* Small calls on GPUs: the number of SMs, and the launch. The kernels are in small.cu. */
#include "sm/gpus.h"
#include "sm/small_args.h"

/* How the warps of a call are spread over SMs; each warp moves 1536 bytes of a block. An SM with
 * less to send is done sooner. A call of a single thread block need not count its blocks at the
 * end. Measured: docs/measurements.md, "Small calls by one kernel". */
#define WARPS_ALONE 4 /* up to this many warps make one block of threads */
/* more warps are divided into thread blocks of so many, up to the largest number of thread
 * blocks */
#define WARPS_EACH 2

_Static_assert(WARPS_ALONE <= CECL_SMALL_WARPS && WARPS_EACH <= CECL_SMALL_WARPS, "in a block");
_Static_assert(sizeof(struct cecl_small_args) <= 4096, "what a kernel's arguments may take");

#define WHO "small collective"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* How many SMs a call may take, for each GPU that is prepared. */
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

/* How many SMs a call may take on the current GPU. Prepares the GPU if that was not done. */
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
    const uint32_t each = CECL_SMALL_GROUP_BYTES; /* bytes that a warp moves */
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
