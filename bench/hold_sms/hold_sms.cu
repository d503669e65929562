/* Holds every SM of a GPU: see hold_sms.h. One block of 1024 threads an SM would leave room for a
 * second and prove nothing. */
#include "hold_sms.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#define HOLDS_MAX 16    /* at a time */
#define BLOCKS_MAX 1022 /* in one hold */
#define LIMIT_NS 20000000000ull
#define START_MS 10000

/* Pinned: written by the host and by thread 0 of each block, each word by one of them alone, since
 * atomic operations on host memory are not to be had on every machine. */
struct hold_words {
    volatile int let_go;
    volatile int gave_up;
    volatile int runs[BLOCKS_MAX];
};

struct hold_sms {
    int ordinal;
    int blocks;
    bool own_stream;
    cudaStream_t stream;
    struct hold_words *words;
};

/* One allocation for all holds, made by the first and freed with the last: to pin memory while
 * another GPU is held might wait for it. */
static struct hold_words *all_words;
static bool taken[HOLDS_MAX];

__device__ unsigned long long now_ns()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* The threads that do not look wait at the barrier, and hold their places there. */
__global__ void __launch_bounds__(1024, 2) spin(struct hold_words *words)
{
    if (threadIdx.x == 0) {
        const unsigned long long start = now_ns();
        words->runs[blockIdx.x] = 1;
        __threadfence_system();
        while (!words->let_go) {
            if (now_ns() - start > LIMIT_NS) {
                words->gave_up = 1;
                __threadfence_system();
                break;
            }
            __nanosleep(1000);
        }
    }
    __syncthreads();
}

static bool works(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "hold_sms: %s: %s\n", what, cudaGetErrorString(error));
    cudaGetLastError();
    return false;
}

static struct hold_words *words_take(void)
{
    if (!all_words && !works(cudaHostAlloc((void **)&all_words, HOLDS_MAX * sizeof(*all_words),
                                           cudaHostAllocPortable),
                             "cudaHostAlloc"))
        return nullptr;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (!taken[i]) {
            taken[i] = true;
            memset((void *)&all_words[i], 0, sizeof(all_words[i]));
            return &all_words[i];
        }
    fprintf(stderr, "hold_sms: %d holds already\n", HOLDS_MAX);
    return nullptr;
}

static void words_give_back(struct hold_words *words)
{
    if (words)
        taken[words - all_words] = false;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (taken[i])
            return;
    if (all_words)
        works(cudaFreeHost(all_words), "cudaFreeHost");
    all_words = nullptr;
}

static bool all_run(const struct hold_sms *hold)
{
    for (int i = 0; i < hold->blocks; i++)
        if (!hold->words->runs[i])
            return false;
    return true;
}

/* Launches on the current device, and waits until every block runs. */
static bool launch(struct hold_sms *hold)
{
    int sms = 0, threads = 0, least = 0, most = 0;
    cudaFuncAttributes attributes;
    if (!works(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, hold->ordinal),
               "number of SMs") ||
        !works(
            cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, hold->ordinal),
            "threads of an SM") ||
        !works(cudaFuncGetAttributes(&attributes, spin), "loading the kernel") ||
        !works(cudaDeviceGetStreamPriorityRange(&least, &most), "stream priorities"))
        return false;
    if (2 * sms > BLOCKS_MAX) {
        fprintf(stderr, "hold_sms: %d SMs; raise BLOCKS_MAX\n", sms);
        return false;
    }
    if (!hold->stream) {
        if (!works(cudaStreamCreateWithPriority(&hold->stream, cudaStreamNonBlocking, least),
                   "cudaStreamCreateWithPriority"))
            return false;
        hold->own_stream = true;
    }
    hold->blocks = 2 * sms;
    cudaGetLastError(); /* no fault of the launch: a stream that the caller found not ready */
    spin<<<hold->blocks, threads / 2, 0, hold->stream>>>(hold->words);
    if (!works(cudaGetLastError(), "launch"))
        return false;
    for (int ms = 0; ms < START_MS; ms++) {
        if (all_run(hold))
            return true;
        const struct timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    fprintf(stderr, "hold_sms: GPU %d: not all of %d blocks run after %d ms; is it busy?\n",
            hold->ordinal, hold->blocks, START_MS);
    return false;
}

extern "C" struct hold_sms *hold_sms_start_on(int ordinal, struct CUstream_st *stream)
{
    int before = 0;
    struct hold_sms *hold = (struct hold_sms *)calloc(1, sizeof(*hold));
    if (!hold)
        return nullptr;
    hold->ordinal = ordinal;
    hold->stream = stream;
    bool held = works(cudaGetDevice(&before), "cudaGetDevice") &&
                works(cudaSetDevice(ordinal), "cudaSetDevice") && (hold->words = words_take()) &&
                launch(hold);
    works(cudaSetDevice(before), "cudaSetDevice");
    if (held)
        return hold;
    hold_sms_stop(hold);
    return nullptr;
}

extern "C" struct hold_sms *hold_sms_start(void)
{
    int current = 0;
    return works(cudaGetDevice(&current), "cudaGetDevice") ? hold_sms_start_on(current, nullptr)
                                                           : nullptr;
}

extern "C" int hold_sms_held(const struct hold_sms *hold)
{
    return hold->blocks > 0 && all_run(hold) && !hold->words->gave_up && !hold->words->let_go;
}

extern "C" int hold_sms_stop(struct hold_sms *hold)
{
    if (!hold)
        return 0;
    const int held = hold_sms_held(hold);
    if (hold->words)
        hold->words->let_go = 1;
    if (hold->blocks > 0)
        works(cudaStreamSynchronize(hold->stream), "waiting for the kernel's end");
    if (hold->own_stream)
        works(cudaStreamDestroy(hold->stream), "cudaStreamDestroy");
    words_give_back(hold->words);
    free(hold);
    return held;
}
