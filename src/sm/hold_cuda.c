/* The kernel that holds every SM, the host's part; see hold.h. */
#include "sm/hold.h"

#include "sm/kernels.h"

#define WHO "holding SMs"

static CUkernel kernels[CECL_GPUS_MAX];

static ceclResult_t load(const struct cecl_gpu *gpu)
{
    return cecl_kernel_load(gpu, CECL_KERNELS_hold, "cecl_hold", 0, &kernels[gpu->device]);
}

static struct cecl_gpus known = {.who = WHO, .load = load};

ceclResult_t cecl_hold_prepare(struct cecl_hold_size *size)
{
    struct cecl_gpu gpu;
    int sms = 0, threads = 0;
    CECL_TRY(cecl_gpus_prepare(&known));
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    CECL_TRY(cecl_gpu_attribute(&gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms));
    CECL_TRY(
        cecl_gpu_attribute(&gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &threads));
    if (2 * sms > CECL_HOLD_BLOCKS_MAX)
        return cecl_fail(ceclInvalidUsage, WHO ": GPU %d has %d SMs; at most %d are expected",
                         gpu.device, sms, CECL_HOLD_BLOCKS_MAX / 2);
    *size = (struct cecl_hold_size){2 * sms, threads / 2};
    return ceclSuccess;
}

ceclResult_t cecl_hold_launch(ceclStream_t stream, struct cecl_hold_size size,
                              struct cecl_hold_words *words, uint64_t limit_ns)
{
    struct cecl_gpu gpu;
    void *arguments[] = {&words, &limit_ns};
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    const struct cecl_launch launch = {kernels[gpu.device], (uint32_t)size.blocks,
                                       (uint32_t)size.threads, 0};
    return cecl_kernel_launch(&gpu, &launch, stream, arguments);
}
