/* Sums of rows on GPUs: the number of SMs, and the launch. The kernels are in sums.cu. */
#include "sm/kernels.h"
#include "sm/sums.h"

static struct sums_gpu {
    uint32_t sms;
    CUkernel kernel[CECL_NUM_TYPES]; /* NULL: no sums of this type */
} gpus[CECL_GPUS_MAX];

static ceclResult_t load(const struct cecl_gpu *gpu)
{
    struct sums_gpu *const mine = &gpus[gpu->device];
    int sms = 0;
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms));
#define LOAD(name, type) \
    CECL_TRY( \
        cecl_kernel_load(gpu, CECL_KERNELS_sums, "cecl_row_sums_" #name, 0, &mine->kernel[type]));
    CECL_ROW_SUMS_TYPES(LOAD)
#undef LOAD
    mine->sms = (uint32_t)sms;
    return ceclSuccess;
}

static struct cecl_gpus known = {.who = "sums of rows", .load = load};

ceclResult_t cecl_row_sums_cuda_prepare(void)
{
    return cecl_gpus_prepare(&known);
}

ceclResult_t cecl_row_sums_cuda(ceclStream_t stream, const struct cecl_row_sums *sums)
{
    struct cecl_row_sums args = *sums;
    void *arguments[] = {&args};
    struct cecl_gpu gpu;
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    const struct sums_gpu *const mine = &gpus[gpu.device];
    const uint32_t wanted = sums->max_sms > 0 ? sums->max_sms : CECL_ROW_SUMS_SMS,
                   most = wanted < mine->sms ? wanted : mine->sms;
    const uint64_t useful = (sums->tokens + CECL_ROW_SUMS_TEAMS - 1) / CECL_ROW_SUMS_TEAMS;
    const struct cecl_launch launch = {mine->kernel[sums->type],
                                       useful < most ? (uint32_t)useful : most,
                                       CECL_ROW_SUMS_THREADS, 0};
    return cecl_kernel_launch(&gpu, &launch, stream, arguments);
}
