/* The loop's device on GPUs. */
#include <stdio.h>

#include "fsdp_loop.h"

enum { THREADS = 256 };

static bool fine(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}
#define FINE(call) fine((call), #call)

const bool device_is_gpu = true; /* visible to other files, because the header declares it extern */

void *device_alloc(size_t bytes)
{
    void *memory = NULL;
    if (!FINE(cudaMalloc(&memory, bytes)) || !FINE(cudaMemset(memory, 0, bytes)) ||
        !FINE(cudaDeviceSynchronize()))
        return NULL;
    return memory;
}

void device_free(void *memory)
{
    cudaFree(memory);
}

static __global__ void forward_kernel(float *x, const element *whole, size_t count)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        x[i] = 2 * x[i] + widen(whole[i]);
}

static __global__ void backward_kernel(element *gradient, const element *whole, size_t count,
                                       int rank)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        gradient[i] = narrow((float)(rank + 1) * widen(whole[i]));
}

static __global__ void update_kernel(element *shard, const element *gradient, size_t count)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        shard[i] = narrow(widen(shard[i]) - widen(gradient[i]));
}

static unsigned blocks_for(size_t count)
{
    return (unsigned)((count + THREADS - 1) / THREADS);
}

void layer_forward(float *x, const element *whole, size_t count, ceclStream_t compute)
{
    forward_kernel<<<blocks_for(count), THREADS, 0, compute>>>(x, whole, count);
}

void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    ceclStream_t compute)
{
    backward_kernel<<<blocks_for(count), THREADS, 0, compute>>>(gradient, whole, count, rank);
}

void layer_update(element *shard, const element *gradient, size_t count, ceclStream_t compute)
{
    update_kernel<<<blocks_for(count), THREADS, 0, compute>>>(shard, gradient, count);
}
