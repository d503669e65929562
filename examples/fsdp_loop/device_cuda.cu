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

bool device_open(cudaStream_t *compute, cudaStream_t *transfer, cudaEvent_t *events[], int count)
{
    int device = -1;
    if (ceclCommCuDevice(comm, &device) != ceclSuccess || device < 0) {
        fprintf(stderr,
                "fsdp_loop: this program is for GPUs; example_fsdp_loop runs on the host\n");
        return false;
    }
    if (!FINE(cudaSetDevice(device)) ||
        !FINE(cudaStreamCreateWithFlags(compute, cudaStreamNonBlocking)) ||
        !FINE(cudaStreamCreateWithFlags(transfer, cudaStreamNonBlocking)))
        return false;
    for (int i = 0; i < count; i++)
        if (!FINE(cudaEventCreateWithFlags(events[i], cudaEventDisableTiming)))
            return false;
    return true;
}

void device_close(cudaStream_t compute, cudaStream_t transfer, cudaEvent_t *events[], int count)
{
    for (int i = 0; i < count; i++)
        cudaEventDestroy(*events[i]);
    cudaStreamDestroy(compute);
    cudaStreamDestroy(transfer);
}

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

bool device_wait(cudaStream_t compute)
{
    return FINE(cudaStreamSynchronize(compute));
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

void layer_forward(float *x, const element *whole, size_t count, cudaStream_t compute)
{
    forward_kernel<<<blocks_for(count), THREADS, 0, compute>>>(x, whole, count);
}

void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    cudaStream_t compute)
{
    backward_kernel<<<blocks_for(count), THREADS, 0, compute>>>(gradient, whole, count, rank);
}

void layer_update(element *shard, const element *gradient, size_t count, cudaStream_t compute)
{
    update_kernel<<<blocks_for(count), THREADS, 0, compute>>>(shard, gradient, count);
}
