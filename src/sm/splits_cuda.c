/* Splits on GPUs: the number of SMs, and the launch. The kernels are in splits.cu. */
#include "sm/kernels.h"
#include "sm/splits.h"

_Static_assert(sizeof(struct cecl_splits) <= 4096, "a kernel's arguments have at most 4096 bytes");

static struct splits_gpu {
    uint32_t sms;
    CUkernel tell, move;
} gpus[CECL_GPUS_MAX];

static ceclResult_t load(const struct cecl_gpu *gpu)
{
    struct splits_gpu *const mine = &gpus[gpu->device];
    int sms = 0;
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms));
    CECL_TRY(cecl_kernel_load(gpu, CECL_KERNELS_splits, "cecl_splits_tell", 0, &mine->tell));
    CECL_TRY(cecl_kernel_load(gpu, CECL_KERNELS_splits, "cecl_splits_move", CECL_SPLITS_SHARED,
                              &mine->move));
    mine->sms = (uint32_t)sms;
    return ceclSuccess;
}

static struct cecl_gpus known = {.who = "splits on the device", .load = load};

ceclResult_t cecl_splits_cuda_prepare(void)
{
    return cecl_gpus_prepare(&known);
}

/* How many thread blocks move rows: one for each SM that may be used, but only so many that each of their warps has a
 * chunk if all of sendbuff is sent. */
static uint32_t blocks_of(const struct cecl_splits *call, uint32_t sms)
{
    const uint64_t each = CECL_SPLITS_CHUNK * (uint64_t)(CECL_SPLITS_THREADS / 32),
                   useful = call->form.send_rows * (call->form.row_bytes + call->form.scale_bytes) /
                                each +
                            1;
    const uint32_t wanted = call->max_sms > 0 ? call->max_sms : CECL_SPLITS_SMS,
                   most = wanted < sms ? wanted : sms;
    return useful < most ? (uint32_t)useful : most;
}

ceclResult_t cecl_splits_cuda(ceclStream_t stream, const struct cecl_splits *call)
{
    struct cecl_splits args = *call;
    void *arguments[] = {&args};
    struct cecl_gpu gpu;
    CECL_TRY(cecl_splits_check(&call->form));
    CECL_TRY(cecl_gpus_current(&known, &gpu));
    const struct splits_gpu *const mine = &gpus[gpu.device];
    const bool tells = call->step == CECL_SPLITS_TELL;
    const struct cecl_launch launch = {tells ? mine->tell : mine->move,
                                       tells ? 1 : blocks_of(call, mine->sms), CECL_SPLITS_THREADS,
                                       tells ? 0 : CECL_SPLITS_SHARED};
    return cecl_kernel_launch(&gpu, &launch, stream, arguments);
}
