/* The context in which a CUDA device's calls run. All files of the device use this file. */
#include "device/cuda.h"

ceclResult_t cuda_enter(struct cuda_device *cuda, bool *pushed)
{
    CUcontext current = NULL;
    *pushed = false;
    if (cuda->cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == cuda->context)
        return ceclSuccess;
    CECL_TRY(CUDA_CALL(cuda, cuCtxPushCurrent, cuda->context));
    *pushed = true;
    return ceclSuccess;
}

void cuda_leave(struct cuda_device *cuda, bool pushed)
{
    CUcontext ours;
    if (pushed)
        cuda->cu->cuCtxPopCurrent(&ours);
}

ceclResult_t cuda_within(struct cecl_device *dev, ceclResult_t (*function)(void *context),
                         void *context)
{
    ceclResult_t result;
    CUDA_WITHIN(cuda_of(dev), result, function(context));
    return result;
}
