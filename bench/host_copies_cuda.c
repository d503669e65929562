/* Copies in both directions between a GPU and pinned memory of the host, on two streams. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "host_copies.h"

struct copies {
    void *up, *down;   /* on the GPU: what goes to the host, and what comes from there */
    void *host[2];     /* pinned */
    cudaStream_t back; /* the copies from the host; the others are on the run's stream */
    cudaEvent_t event;
};

static bool open_copies(struct side *side, const struct run *run, size_t send_bytes,
                        size_t recv_bytes)
{
    struct copies *c = side->state = calloc(1, sizeof(*c));
    (void)send_bytes;
    if (!c || cudaMalloc(&c->up, recv_bytes) != cudaSuccess ||
        cudaMalloc(&c->down, recv_bytes) != cudaSuccess ||
        cudaMallocHost(&c->host[0], recv_bytes) != cudaSuccess ||
        cudaMallocHost(&c->host[1], recv_bytes) != cudaSuccess ||
        cudaStreamCreateWithFlags(&c->back, cudaStreamNonBlocking) != cudaSuccess ||
        cudaEventCreateWithFlags(&c->event, cudaEventDisableTiming) != cudaSuccess)
        return complain(run, "--bulk copies", cudaGetErrorString(cudaGetLastError()));
    side->recv = c->down;
    return true;
}

/* The stream `later` waits for what is on `earlier`. */
static bool follows(struct copies *c, cudaStream_t later, cudaStream_t earlier)
{
    return cudaEventRecord(c->event, earlier) == cudaSuccess &&
           cudaStreamWaitEvent(later, c->event, 0) == cudaSuccess;
}

static bool call_copies(struct side *side, const struct run *run, const void *send, size_t block)
{
    struct copies *c = side->state;
    const cudaStream_t stream = (cudaStream_t)run->stream;
    (void)send;
    return follows(c, c->back, stream) &&
           cudaMemcpyAsync(c->host[0], c->up, block, cudaMemcpyDefault, stream) == cudaSuccess &&
           cudaMemcpyAsync(c->down, c->host[1], block, cudaMemcpyDefault, c->back) == cudaSuccess &&
           follows(c, stream, c->back);
}

static void close_copies(struct side *side)
{
    struct copies *c = side->state;
    cudaFree(c->up);
    cudaFree(c->down);
    cudaFreeHost(c->host[0]);
    cudaFreeHost(c->host[1]);
    cudaStreamDestroy(c->back);
    cudaEventDestroy(c->event);
    free(c);
}

bool side_host_copies_make(struct side *side)
{
    *side = (struct side){
        .name = "copies", .open = open_copies, .call = call_copies, .close = close_copies};
    return true;
}
