/* Sets a thread's current GPU. */
#include <pthread.h>

#include "driver/driver.h"

ceclResult_t cecl_driver_set_device(const struct cecl_driver *cu, CUdevice device)
{
    static CUcontext retained[CECL_GPUS_MAX];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult result = CUDA_SUCCESS;
    if (device < 0 || device >= CECL_GPUS_MAX)
        return cecl_fail(ceclInvalidUsage, "GPU %d: 0 to %d expected", device, CECL_GPUS_MAX - 1);
    pthread_mutex_lock(&lock);
    if (!retained[device])
        result = cu->cuDevicePrimaryCtxRetain(&retained[device], device);
    const CUcontext context = retained[device];
    pthread_mutex_unlock(&lock);
    CECL_TRY(cecl_driver_check(cu, result, "cuDevicePrimaryCtxRetain"));
    return cecl_driver_check(cu, cu->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}
