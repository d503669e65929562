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
