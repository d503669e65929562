/* The loop's device without a GPU: cecl's streams copy while the calling thread computes. */
#include <stdio.h>
#include <stdlib.h>

#include "fsdp_loop.h"

void cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->stream = stream;
}

void cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)flags;
    if (event->stream && ceclStreamSynchronize(comm, event->stream) != ceclSuccess)
        fprintf(stderr, "waiting for a stream: %s\n", ceclGetLastError(comm));
}

bool device_open(cudaStream_t *compute, cudaStream_t *transfer, cudaEvent_t *events[], int count)
{
    int device = -1;
    *compute = NULL;
    if (ceclCommCuDevice(comm, &device) != ceclSuccess || device >= 0) {
        fprintf(stderr, "fsdp_loop: this program is for the host: CECL_DEVICE=host, or "
                        "example_fsdp_loop_cuda\n");
        return false;
    }
    for (int i = 0; i < count; i++) {
        *events[i] = calloc(1, sizeof(**events[i]));
        if (!*events[i])
            return false;
    }
    return ceclStreamCreate(comm, transfer) == ceclSuccess;
}

void device_close(cudaStream_t compute, cudaStream_t transfer, cudaEvent_t *events[], int count)
{
    (void)compute;
    for (int i = 0; i < count; i++)
        free(*events[i]);
    ceclStreamDestroy(comm, transfer);
}

void *device_alloc(size_t bytes)
{
    return calloc(1, bytes);
}

void device_free(void *memory)
{
    free(memory);
}

bool device_wait(cudaStream_t compute)
{
    (void)compute;
    return true;
}

void layer_forward(float *x, const element *whole, size_t count, cudaStream_t compute)
{
    (void)compute;
    for (size_t i = 0; i < count; i++)
        x[i] = 2 * x[i] + widen(whole[i]);
}

void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    cudaStream_t compute)
{
    (void)compute;
    for (size_t i = 0; i < count; i++)
        gradient[i] = narrow((float)(rank + 1) * widen(whole[i]));
}

void layer_update(element *shard, const element *gradient, size_t count, cudaStream_t compute)
{
    (void)compute;
    for (size_t i = 0; i < count; i++)
        shard[i] = narrow(widen(shard[i]) - widen(gradient[i]));
}
