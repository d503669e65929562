/* See kernels.h. For each image the driver makes a library (CUlibrary), once in a process. A library belongs to
 * no context, and is never unloaded, because contexts may use its kernels until the process ends. */
#include "sm/kernels.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The library of each image, once it is made. Guarded by `lock`. */
#define IMAGES_MAX 32
static CUlibrary libraries[IMAGES_MAX];

static ceclResult_t check(const struct cecl_gpu *gpu, CUresult result, const char *what)
{
    char call[160];
    if (result == CUDA_SUCCESS)
        return ceclSuccess;
    snprintf(call, sizeof(call), "%s: %s", gpu->who, what);
    return cecl_driver_check(gpu->cu, result, call);
}
#define CALL(gpu, function, ...) check((gpu), (gpu)->cu->function(__VA_ARGS__), #function)

static ceclResult_t find_current(const char *who, struct cecl_gpu *gpu)
{
    const char *why = NULL;
    *gpu = (struct cecl_gpu){.who = who, .cu = cecl_driver_get(&why)};
    if (!gpu->cu)
        return cecl_fail(ceclInvalidUsage, "%s: %s", who, why);
    CECL_TRY(CALL(gpu, cuCtxGetDevice, &gpu->device));
    if (gpu->device >= CECL_GPUS_MAX)
        return cecl_fail(ceclInvalidUsage, "%s on GPU %d: 0 to %d expected", who, gpu->device,
                         CECL_GPUS_MAX - 1);
    return ceclSuccess;
}

ceclResult_t cecl_gpu_attribute(const struct cecl_gpu *gpu, CUdevice_attribute which, int *value)
{
    return CALL(gpu, cuDeviceGetAttribute, value, which, gpu->device);
}

static ceclResult_t load(struct cecl_gpus *gpus, const struct cecl_gpu *gpu)
{
    unsigned long long context = 0;
    ceclResult_t result = ceclSuccess;
    CECL_TRY(CALL(gpu, cuCtxGetId, NULL, &context));
    pthread_mutex_lock(&lock);
    if (atomic_load(&gpus->loaded[gpu->device]) != context + 1) {
        result = gpus->load(gpu);
        if (result == ceclSuccess)
            atomic_store(&gpus->loaded[gpu->device], context + 1);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ceclResult_t cecl_gpus_prepare(struct cecl_gpus *gpus)
{
    struct cecl_gpu gpu;
    CECL_TRY(find_current(gpus->who, &gpu));
    return load(gpus, &gpu);
}

ceclResult_t cecl_gpus_current(struct cecl_gpus *gpus, struct cecl_gpu *gpu)
{
    CECL_TRY(find_current(gpus->who, gpu));
    return atomic_load_explicit(&gpus->loaded[gpu->device], memory_order_acquire) != 0
               ? ceclSuccess
               : load(gpus, gpu);
}

static ceclResult_t library_of(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                               CUlibrary *library)
{
    int major = 0, minor = 0;
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
    CECL_TRY(cecl_gpu_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
    const struct cecl_image *image = cecl_image_for(file, 10 * major + minor);
    const size_t i = image ? (size_t)(image - cecl_images) : IMAGES_MAX;
    if (i >= IMAGES_MAX)
        return cecl_fail(ceclInvalidUsage,
                         "%s: this libcecl has no kernels for GPU %d, of compute capability %d.%d",
                         gpu->who, gpu->device, major, minor);
    if (!libraries[i]) {
        const CUresult result =
            gpu->cu->cuLibraryLoadData(&libraries[i], image->data, NULL, NULL, 0, NULL, NULL, 0);
        if (result != CUDA_SUCCESS) {
            char call[128];
            libraries[i] = NULL;
            snprintf(call, sizeof(call),
                     "loading kernels that were compiled by CUDA %d.%d (the driver's is %d.%d)",
                     CECL_KERNELS_CUDA / 1000, CECL_KERNELS_CUDA % 1000 / 10,
                     gpu->cu->version / 1000, gpu->cu->version % 1000 / 10);
            return check(gpu, result, call);
        }
    }
    *library = libraries[i];
    return ceclSuccess;
}

ceclResult_t cecl_kernel_load(const struct cecl_gpu *gpu, enum cecl_kernel_file file,
                              const char *name, int shared, CUkernel *kernel)
{
    CUlibrary library = NULL;
    CUfunction here = NULL;
    CECL_TRY(library_of(gpu, file, &library));
    CECL_TRY(check(gpu, gpu->cu->cuLibraryGetKernel(kernel, library, name), name));
    CECL_TRY(CALL(gpu, cuKernelGetFunction, &here, *kernel));
    CECL_TRY(CALL(gpu, cuFuncLoad, here));
    if (shared > 0)
        CECL_TRY(CALL(gpu, cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                      shared, *kernel, gpu->device));
    return ceclSuccess;
}

ceclResult_t cecl_kernel_launch(const struct cecl_gpu *gpu, const struct cecl_launch *launch,
                                ceclStream_t stream, void **arguments)
{
    return CALL(gpu, cuLaunchKernel, (CUfunction)launch->kernel, launch->blocks, 1, 1,
                launch->threads, 1, 1, launch->shared, stream, arguments, NULL);
}
