/* The loop's device without a GPU: the calling thread computes while cecl's streams copy. Before
 * each layer the thread waits for the compute stream, which holds only waits for events. */
#include <stdio.h>
#include <stdlib.h>

#include "fsdp_loop.h"

const bool device_is_gpu = false;

void *device_alloc(size_t bytes)
{
    return calloc(1, bytes);
}

void device_free(void *memory)
{
    free(memory);
}

static void wait_for(ceclStream_t compute)
{
    if (ceclStreamSynchronize(comm, compute) != ceclSuccess)
        fprintf(stderr, "waiting for a stream: %s\n", ceclGetLastError(comm));
}

void layer_forward(float *x, const element *whole, size_t count, ceclStream_t compute)
{
    wait_for(compute);
    for (size_t i = 0; i < count; i++)
        x[i] = 2 * x[i] + widen(whole[i]);
}

void layer_backward(element *gradient, const element *whole, size_t count, int rank,
                    ceclStream_t compute)
{
    wait_for(compute);
    for (size_t i = 0; i < count; i++)
        gradient[i] = narrow((float)(rank + 1) * widen(whole[i]));
}

void layer_update(element *shard, const element *gradient, size_t count, ceclStream_t compute)
{
    wait_for(compute);
    for (size_t i = 0; i < count; i++)
        shard[i] = narrow(widen(shard[i]) - widen(gradient[i]));
}
