/* Copies from the GPU to pinned host memory and back, as offloading makes them, beside the measurements. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock_wall.h"
#include "cuda_try.h"

#define CHUNK ((size_t)32 << 20)
/* copies in flight in each direction: while one runs, the next one is enqueued, so that the link stays busy */
#define IN_FLIGHT 2

struct way {
    enum cudaMemcpyKind kind;
    cudaStream_t stream;
    cudaEvent_t done[IN_FLIGHT];
    void *host, *device;
};

struct copies {
    const struct run *run;
    pthread_t thread;
    atomic_bool stop, failed;
    struct way ways[2];
    long long turns;
    double us;
};

static bool copy(struct way *w, const struct run *run, cudaEvent_t done)
{
    const bool to_device = w->kind == cudaMemcpyHostToDevice;
    CUDA_TRY(run, cudaMemcpyAsync(to_device ? w->device : w->host, to_device ? w->host : w->device,
                                  CHUNK, w->kind, w->stream));
    CUDA_TRY(run, cudaEventRecord(done, w->stream));
    return true;
}

static bool copy_until_stopped(struct copies *c)
{
    const double start = wall_us();
    if (!gpu_make_current(c->run))
        return false;
    for (; !atomic_load(&c->stop); c->turns++)
        for (int i = 0; i < 2; i++) {
            cudaEvent_t done = c->ways[i].done[c->turns % IN_FLIGHT];
            /* returns at once if the event was never recorded */
            CUDA_TRY(c->run, cudaEventSynchronize(done));
            if (!copy(&c->ways[i], c->run, done))
                return false;
        }
    for (int i = 0; i < 2; i++)
        CUDA_TRY(c->run, cudaStreamSynchronize(c->ways[i].stream));
    c->us = wall_us() - start;
    return true;
}

static void *loop(void *data)
{
    struct copies *c = data;
    if (!copy_until_stopped(c))
        atomic_store(&c->failed, true);
    return NULL;
}

static bool make_way(struct way *w, const struct run *run, enum cudaMemcpyKind kind)
{
    w->kind = kind;
    CUDA_TRY(run, cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
    /* events for which the thread sleeps while it waits, so that it takes no core from the ranks */
    for (int i = 0; i < IN_FLIGHT; i++)
        CUDA_TRY(run, cudaEventCreateWithFlags(&w->done[i],
                                               cudaEventDisableTiming | cudaEventBlockingSync));
    CUDA_TRY(run, cudaMallocHost(&w->host, CHUNK));
    CUDA_TRY(run, cudaMalloc(&w->device, CHUNK));
    return true;
}

static void free_way(struct way *w)
{
    for (int i = 0; i < IN_FLIGHT; i++)
        if (w->done[i])
            cudaEventDestroy(w->done[i]);
    if (w->stream)
        cudaStreamDestroy(w->stream);
    cudaFree(w->device);
    cudaFreeHost(w->host);
}

static void free_copies(struct copies *c)
{
    for (int i = 0; i < 2; i++)
        free_way(&c->ways[i]);
    free(c);
}

static bool make_copies(struct copies *c, const struct run *run)
{
    if (!make_way(&c->ways[0], run, cudaMemcpyHostToDevice) ||
        !make_way(&c->ways[1], run, cudaMemcpyDeviceToHost))
        return false;
    return pthread_create(&c->thread, NULL, loop, c) == 0 ||
           complain(run, "--hostcopies", "no thread could be made");
}

struct copies *copies_start(const struct run *run)
{
    struct copies *c = calloc(1, sizeof(*c));
    if (!c) {
        complain(run, "--hostcopies", "no host memory");
        return NULL;
    }
    c->run = run;
    if (make_copies(c, run))
        return c;
    free_copies(c);
    return NULL;
}

bool copies_fine(struct copies *c, const struct run *run)
{
    return !c || !atomic_load(&c->failed) || complain(run, "--hostcopies", "the copies ended");
}

double copies_stop(struct copies *c)
{
    if (!c)
        return 0;
    atomic_store(&c->stop, true);
    pthread_join(c->thread, NULL);
    const double rate = c->us > 0 ? (double)c->turns * (double)CHUNK / c->us * 1e-3 : 0;
    free_copies(c);
    return rate;
}
