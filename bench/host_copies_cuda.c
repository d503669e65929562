/* Copies in both directions between a GPU and pinned memory of the host, on two streams. */
#include <stdint.h>
#include <stdlib.h>

#include "gpu.h"
#include "host_copies.h"

struct copies {
    CUdeviceptr up, down; /* on the GPU: what goes to the host, and what comes from it */
    void *host[2];        /* pinned */
    CUstream back;        /* has the copies from the host; the others are on the run's stream */
    CUevent event;
};

static bool open_copies(struct side *side, const struct run *run, size_t send_bytes,
                        size_t recv_bytes)
{
    struct copies *c = side->state = calloc(1, sizeof(*c));
    (void)send_bytes;
    if (!c)
        return complain(run, "--bulk copies", "no host memory");
    const struct cecl_driver *const cu = gpu_get()->cu;
    CUresult result = gpu_get()->cuMemAlloc(&c->up, recv_bytes);
    if (result == CUDA_SUCCESS)
        result = gpu_get()->cuMemAlloc(&c->down, recv_bytes);
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = cu->cuMemHostAlloc(&c->host[i], recv_bytes, 0);
    if (result == CUDA_SUCCESS)
        result = cu->cuStreamCreateWithPriority(&c->back, CU_STREAM_NON_BLOCKING, 0);
    if (result == CUDA_SUCCESS)
        result = cu->cuEventCreate(&c->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return complain(run, "--bulk copies", gpu_words(result));
    side->recv = (void *)(uintptr_t)c->down;
    return true;
}

/* Makes the stream `later` wait for all work on `earlier`. */
static bool follows(struct copies *c, CUstream later, CUstream earlier)
{
    const struct cecl_driver *const cu = gpu_get()->cu;
    return cu->cuEventRecord(c->event, earlier) == CUDA_SUCCESS &&
           cu->cuStreamWaitEvent(later, c->event, 0) == CUDA_SUCCESS;
}

static bool copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return gpu_get()->cu->cuMemcpyAsync(to, from, bytes, stream) == CUDA_SUCCESS;
}

static CUdeviceptr address_of(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static bool call_copies(struct side *side, const struct run *run, const void *send, size_t block)
{
    struct copies *c = side->state;
    const CUstream stream = run->stream;
    (void)send;
    return follows(c, c->back, stream) && copy(address_of(c->host[0]), c->up, block, stream) &&
           copy(c->down, address_of(c->host[1]), block, c->back) && follows(c, stream, c->back);
}

static void close_copies(struct side *side)
{
    struct copies *c = side->state;
    gpu_get()->cuMemFree(c->up);
    gpu_get()->cuMemFree(c->down);
    gpu_get()->cu->cuMemFreeHost(c->host[0]);
    gpu_get()->cu->cuMemFreeHost(c->host[1]);
    gpu_get()->cu->cuStreamDestroy(c->back);
    gpu_get()->cu->cuEventDestroy(c->event);
    free(c);
}

bool side_host_copies_make(struct side *side)
{
    *side = (struct side){
        .name = "copies", .open = open_copies, .call = call_copies, .close = close_copies};
    return true;
}
