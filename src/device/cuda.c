/* The CUDA device: finding a GPU, opening and closing the device. Its operations are in cuda_memory.c, cuda_pointer.c,
 * cuda_region.c, cuda_own.c, cuda_stream.c and cuda_graph.c, which call cuda_context.c. */
#include "device/cuda.h"

#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/nvtx.h"

/* ---- closing */

static bool has_ended(const struct cuda_device *cuda, CUstream stream)
{
    return !stream || cuda->cu->cuStreamQuery(stream) == CUDA_SUCCESS;
}

static ceclResult_t close_inside(struct cuda_device *cuda)
{
    const struct cecl_driver *cu = cuda->cu;
    /* cuMemFreeHost waits for the GPU, so the scratch words are not freed while work is pending. */
    const bool idle =
        cuda_streams_end(cuda) && has_ended(cuda, cuda->release) && has_ended(cuda, cuda->side);
    if (cuda->side)
        cu->cuStreamDestroy(cuda->side);
    if (cuda->release)
        cu->cuStreamDestroy(cuda->release);
    if (cuda->legacy)
        cu->cuStreamDestroy(cuda->legacy);
    if (cuda->order)
        cu->cuEventDestroy(cuda->order);
    if (cuda->scratch && idle)
        cu->cuMemFreeHost(cuda->scratch);
    return ceclSuccess;
}

void cuda_close(struct cecl_device *dev)
{
    struct cuda_device *cuda = cuda_of(dev);
    ceclResult_t closed = ceclSuccess;
    if (cuda->context) {
        CUDA_BESIDE(cuda, closed, close_inside(cuda));
        cuda->cu->cuDevicePrimaryCtxRelease(cuda->device);
    }
    (void)closed; /* an error here cannot be repaired */
    free(cuda);
}

static const struct cecl_device_ops cuda_ops = {
#define OP(name) .name = cuda_##name,
#include "device/ops_list.h"
};

/* ---- finding a GPU */

static int attribute(const struct cecl_driver *cu, CUdevice device, CUdevice_attribute which)
{
    int value = 0;
    return cu->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* Names a feature that cecl needs and the GPU lacks; NULL: it has all. */
static const char *lacks(const struct cecl_driver *cu, CUdevice device)
{
    if (attribute(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 8)
        return "its compute capability is below 8.0";
    if (!attribute(cu, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return "it has no virtual memory management";
    if (!attribute(cu, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        return "its memory cannot be shared by file descriptor";
    if (!attribute(cu, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING))
        return "it has no unified addressing";
    /* CUDA has no attribute for 32-bit stream memory operations, so a GPU without 64-bit ones counts as having none. */
    if (!attribute(cu, device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        return "it has no stream memory operations";
    if (attribute(cu, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED)
        return "its compute mode prohibits contexts";
    return NULL;
}

/* The ordinal of the GPU that `which` names. Asks the driver for the current device, and no copy of the CUDA runtime: a
 * process may have several. Asking creates no context. */
static int choose(const struct cecl_driver *cu, int which, int rank, int count)
{
    CUcontext current = NULL;
    CUdevice device;
    if (which == CECL_CUDA_DEVICE_BY_RANK)
        return rank % count;
    if (which >= 0)
        return which;
    if (cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        cu->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        return device;
    return 0; /* the CUDA runtime's default in a thread that has chosen no device */
}

ceclResult_t cecl_cuda_probe(int which, int rank, struct cecl_gpu_id *id, char *why, size_t bytes)
{
    const char *reason = NULL;
    const struct cecl_driver *cu = cecl_driver_get(&reason);
    int count = 0;

    *id = (struct cecl_gpu_id){.ordinal = -1};
    snprintf(why, bytes, "%s", "");
    if (cu && (cu->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0))
        reason = "no GPU is visible";
    if (reason) {
        snprintf(why, bytes, "%s", reason);
        return ceclSuccess;
    }
    const int ordinal = choose(cu, which, rank, count);
    id->ordinal = ordinal;
    CUdevice device;
    CUuuid uuid;
    size_t memory;
    if (cu->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) {
        snprintf(why, bytes, "GPU %d: 0..%d are visible", ordinal, count - 1);
        return ceclSuccess;
    }
    reason = lacks(cu, device);
    if (reason) {
        snprintf(why, bytes, "GPU %d: %s", ordinal, reason);
        return ceclSuccess;
    }
    CECL_TRY(cecl_driver_check(cu, cu->cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
    CECL_TRY(cecl_driver_check(cu, cu->cuDeviceTotalMem(&memory, device), "cuDeviceTotalMem"));
    if (which == CECL_CUDA_DEVICE_BY_RANK)
        CECL_TRY(cecl_driver_set_device(cu, device));
    memcpy(id->uuid, uuid.bytes, sizeof(id->uuid));
    id->memory = memory;
    id->usable = 1;
    return ceclSuccess;
}

/* ---- opening the device */

static ceclResult_t open_inside(struct cuda_device *cuda)
{
    int least = 0, most = 0;
    size_t granularity = 0;
    CECL_TRY(CUDA_CALL(cuda, cuCtxGetStreamPriorityRange, &least, &most));
    CECL_TRY(
        CUDA_CALL(cuda, cuStreamCreateWithPriority, &cuda->side, CU_STREAM_NON_BLOCKING, most));
    CECL_TRY(
        CUDA_CALL(cuda, cuStreamCreateWithPriority, &cuda->release, CU_STREAM_NON_BLOCKING, most));
    CECL_TRY(
        CUDA_CALL(cuda, cuStreamCreateWithPriority, &cuda->legacy, CU_STREAM_NON_BLOCKING, least));
    CECL_TRY(CUDA_CALL(cuda, cuEventCreate, &cuda->order, CU_EVENT_DISABLE_TIMING));
    CECL_TRY(cuda_words_alloc(&cuda->base, CUDA_SCRATCH_ALL, &cuda->scratch));
    cuda->rdma = attribute(cuda->cu, cuda->device,
                           CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
    CECL_TRY(cuda_granularity(cuda, &granularity));
    if (granularity == 0 || (granularity & (granularity - 1)) != 0)
        return cecl_fail(ceclUnhandledCudaError,
                         "GPU %d: allocation granularity %zu; a power of two is expected",
                         cuda->base.ordinal, granularity);
    cuda->base.granularity = granularity;
    /* Loads the kernels now, while no work of ours is pending (see sm/reduce.h). They are loaded
     * once per process and GPU. */
    CECL_TRY(cecl_reduce_cuda_prepare());
    CECL_TRY(cecl_small_cuda_prepare());
    CECL_TRY(cecl_splits_cuda_prepare());
    return cecl_row_sums_cuda_prepare();
}

ceclResult_t cecl_cuda_open(int ordinal, struct cecl_device **dev)
{
    const char *reason = NULL;
    const struct cecl_driver *cu = cecl_driver_get(&reason);
    if (!cu)
        return cecl_fail(ceclInvalidUsage, "GPU %d: %s", ordinal, reason);
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    if (!cuda)
        return cecl_fail(ceclOutOfMemory, "no host memory for a device");
    cuda->base = (struct cecl_device){
        .ops = &cuda_ops, .kind = CECL_KIND_CUDA, .ordinal = ordinal, .meets = true};
    cuda->cu = cu;

    ceclResult_t result = CUDA_CALL(cuda, cuDeviceGet, &cuda->device, ordinal);
    if (result == ceclSuccess)
        result = CUDA_CALL(cuda, cuDevicePrimaryCtxRetain, &cuda->context, cuda->device);
    if (result == ceclSuccess)
        CUDA_WITHIN(cuda, result, open_inside(cuda));
    if (result == ceclSuccess)
        *dev = &cuda->base;
    else
        cuda_close(&cuda->base);
    return result;
}

bool cecl_cuda_reaches(struct cecl_device *dev, const uint8_t uuid[16])
{
    struct cuda_device *cuda = cuda_of(dev);
    int count = 0, can = 1;
    CUdevice other;
    CUuuid id;
    cuda->cu->cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++)
        if (cuda->cu->cuDeviceGet(&other, i) == CUDA_SUCCESS &&
            cuda->cu->cuDeviceGetUuid(&id, other) == CUDA_SUCCESS &&
            memcmp(id.bytes, uuid, sizeof(id.bytes)) == 0 && other != cuda->device)
            cuda->cu->cuDeviceCanAccessPeer(&can, cuda->device, other);
    return can != 0;
}

/* ---- NVTX ranges in a domain of cecl's own, for profilers. NVTX is header-only: it looks for a profiler at the first
 * call. Without one, later calls only check a pointer. */

static nvtxDomainHandle_t domain;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("cecl");
}

bool cecl_nvtx_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_domain);
    return true;
}

void cecl_nvtx_push(const char *name)
{
    const nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                         .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                         .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                         .message.ascii = name};
    nvtxDomainRangePushEx(domain, &range);
}

void cecl_nvtx_pop(void)
{
    nvtxDomainRangePop(domain);
}
