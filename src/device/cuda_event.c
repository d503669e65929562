/* Events of the program on CUDA: the driver's own. */
#include "device/cuda.h"

/* Names what is wrong with the caller's event, as far as CUDA tells. */
static ceclResult_t check(struct cuda_device *cuda, CUresult result, CUevent event,
                          const char *call)
{
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return cecl_fail(ceclInvalidArgument,
                         "event %p: no event of this process and of GPU %d (destroyed?)",
                         (void *)event, cuda->base.ordinal);
    return cecl_driver_check(cuda->cu, result, call);
}

ceclResult_t cuda_event_create(struct cecl_device *dev, ceclEvent_t *event)
{
    CUDA_RETURN_BESIDE(cuda, dev, CUDA_CALL(cuda, cuEventCreate, event, CU_EVENT_DISABLE_TIMING));
}

ceclResult_t cuda_event_destroy(struct cecl_device *dev, ceclEvent_t event)
{
    CUDA_RETURN_BESIDE(cuda, dev,
                       check(cuda, cuda->cu->cuEventDestroy(event), event, "cuEventDestroy"));
}

/* The stream is checked first, so that CUDA's refusal is about the event. */
static ceclResult_t record(struct cuda_device *cuda, CUevent event, CUstream stream)
{
    struct cecl_capture capture;
    CECL_TRY(cuda_check_stream(cuda, stream, &capture));
    return check(cuda, cuda->cu->cuEventRecord(event, stream), event, "cuEventRecord");
}

ceclResult_t cuda_event_record(struct cecl_device *dev, ceclEvent_t event, ceclStream_t stream)
{
    CUDA_RETURN_WITHIN(cuda, dev, record(cuda, event, stream));
}

static ceclResult_t follow(struct cuda_device *cuda, CUstream stream, CUevent event)
{
    struct cecl_capture capture;
    CECL_TRY(cuda_check_stream(cuda, stream, &capture));
    return check(cuda, cuda->cu->cuStreamWaitEvent(stream, event, 0), event, "cuStreamWaitEvent");
}

ceclResult_t cuda_event_wait(struct cecl_device *dev, ceclStream_t stream, ceclEvent_t event)
{
    CUDA_RETURN_WITHIN(cuda, dev, follow(cuda, stream, event));
}
