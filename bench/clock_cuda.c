/* Measures with events on a GPU's stream, and on the host device with the host's clock. */
#include <cuda_runtime_api.h>

#include "clock_wall.h"

double clock_time(struct side *side, const struct run *run, const void *send, size_t block,
                  int iterations)
{
    if (!run->cuda)
        return wall_time(side, run, send, block, iterations);
    cudaEvent_t start, stop;
    float ms = -1;
    if (cudaEventCreate(&start) != cudaSuccess || cudaEventCreate(&stop) != cudaSuccess)
        return -1;
    bool fine = cudaEventRecord(start, run->stream) == cudaSuccess;
    for (int i = 0; i < iterations && fine; i++)
        fine = side->call(side, run, send, block);
    fine = fine && cudaEventRecord(stop, run->stream) == cudaSuccess &&
           cudaEventSynchronize(stop) == cudaSuccess &&
           cudaEventElapsedTime(&ms, start, stop) == cudaSuccess;
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return fine ? (double)ms * 1e3 : -1;
}

bool clock_mark(const struct run *run, struct clock_mark *mark)
{
    cudaEvent_t event = NULL;
    *mark = (struct clock_mark){NULL, wall_us()};
    if (!run->cuda)
        return true;
    if (cudaEventCreate(&event) != cudaSuccess)
        return false;
    mark->event = event;
    return cudaEventRecord(event, (cudaStream_t)run->stream) == cudaSuccess;
}

double clock_between(const struct run *run, struct clock_mark *from, struct clock_mark *to)
{
    float ms = -1;
    if (!run->cuda)
        return wall_us() - from->us;
    const cudaEvent_t first = from->event, last = to->event;
    const bool fine = cudaEventElapsedTime(&ms, first, last) == cudaSuccess;
    cudaEventDestroy(first);
    cudaEventDestroy(last);
    return fine ? (double)ms * 1e3 : -1;
}

bool clock_passed(const struct run *run, const struct clock_mark *mark)
{
    return run->cuda && cudaEventQuery((cudaEvent_t)mark->event) == cudaSuccess;
}

bool clock_urgent_stream(const struct run *run, ceclStream_t *stream)
{
    int least, most;
    cudaStream_t made;
    if (!run->cuda)
        return ceclStreamCreate(run->comm, stream) == ceclSuccess;
    if (cudaDeviceGetStreamPriorityRange(&least, &most) != cudaSuccess ||
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, most) != cudaSuccess)
        return false;
    *stream = made;
    return true;
}

void clock_free_stream(const struct run *run, ceclStream_t stream)
{
    if (run->cuda)
        cudaStreamDestroy((cudaStream_t)stream);
    else
        (void)!ceclStreamDestroy(run->comm, stream);
}
