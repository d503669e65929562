/* Measures with events on a GPU's stream, and on the host device with the host's clock. */
#include "clock_wall.h"
#include "gpu.h"

static const struct cecl_driver *driver(void)
{
    return gpu_get()->cu;
}

static double time_on_gpu(struct side *side, const struct run *run, const void *send, size_t block,
                          int iterations)
{
    CUevent start, stop;
    float ms = -1;
    if (driver()->cuEventCreate(&start, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        driver()->cuEventCreate(&stop, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return -1;
    bool fine = driver()->cuEventRecord(start, run->stream) == CUDA_SUCCESS;
    for (int i = 0; i < iterations && fine; i++)
        fine = side->call(side, run, send, block);
    fine = fine && driver()->cuEventRecord(stop, run->stream) == CUDA_SUCCESS &&
           gpu_get()->cuEventSynchronize(stop) == CUDA_SUCCESS &&
           gpu_get()->cuEventElapsedTime(&ms, start, stop) == CUDA_SUCCESS;
    driver()->cuEventDestroy(start);
    driver()->cuEventDestroy(stop);
    return fine ? (double)ms * 1e3 : -1;
}

double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations)
{
    return run->cuda ? time_on_gpu(side, run, send, block, iterations)
                     : wall_time(side, run, send, block, iterations);
}

bool clock_mark(const struct run *run, struct clock_mark *mark)
{
    CUevent event = NULL;
    *mark = (struct clock_mark){NULL, wall_us()};
    if (!run->cuda)
        return true;
    if (driver()->cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return false;
    mark->event = event;
    return driver()->cuEventRecord(event, (CUstream)run->stream) == CUDA_SUCCESS;
}

double clock_between(const struct run *run, struct clock_mark *from, struct clock_mark *to)
{
    float ms = -1;
    if (!run->cuda)
        return wall_us() - from->us;
    const CUevent first = from->event, last = to->event;
    const bool fine = gpu_get()->cuEventElapsedTime(&ms, first, last) == CUDA_SUCCESS;
    driver()->cuEventDestroy(first);
    driver()->cuEventDestroy(last);
    return fine ? (double)ms * 1e3 : -1;
}

bool clock_passed(const struct run *run, const struct clock_mark *mark)
{
    return run->cuda && gpu_get()->cuEventQuery((CUevent)mark->event) == CUDA_SUCCESS;
}

bool clock_urgent_stream(const struct run *run, ceclStream_t *stream)
{
    int least, most;
    CUstream made;
    if (!run->cuda)
        return ceclStreamCreate(run->comm, stream) == ceclSuccess;
    if (driver()->cuCtxGetStreamPriorityRange(&least, &most) != CUDA_SUCCESS ||
        driver()->cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, most) != CUDA_SUCCESS)
        return false;
    *stream = made;
    return true;
}

void clock_free_stream(const struct run *run, ceclStream_t stream)
{
    if (run->cuda)
        driver()->cuStreamDestroy((CUstream)stream);
    else
        (void)!ceclStreamDestroy(run->comm, stream);
}
