/* Holds every SM of a GPU; see hold_sms.h. The kernel is the library's, from src/sm/hold.cu. */
#include "hold_sms.h"

#include "sm/hold.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#define HOLDS_MAX 16 /* at the same time */
#define LIMIT_NS 20000000000ull
#define START_MS 10000

struct hold_sms {
    int ordinal;
    struct cecl_hold_size size; /* blocks is 0 before the launch */
    bool own_stream;
    cudaStream_t stream;
    struct cecl_hold_words *words;
};

/* One allocation serves all holds. The first hold makes it and the last one frees it, because
 * pinning memory while another GPU is held might wait for that GPU. */
static struct cecl_hold_words *all_words;
static bool taken[HOLDS_MAX];

static bool works(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    fprintf(stderr, "hold_sms: %s: %s\n", what, cudaGetErrorString(error));
    cudaGetLastError();
    return false;
}

static struct cecl_hold_words *words_take(void)
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

static void words_give_back(struct cecl_hold_words *words)
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

/* Launches on the current device, and waits until every block runs. */
static bool launch(struct hold_sms *hold)
{
    int least = 0, most = 0;
    struct cecl_hold_size size = {0, 0};
    if (!works(cecl_hold_prepare(hold->ordinal, &size), "loading the kernel") ||
        !works(cudaDeviceGetStreamPriorityRange(&least, &most), "stream priorities"))
        return false;
    if (!hold->stream) {
        if (!works(cudaStreamCreateWithPriority(&hold->stream, cudaStreamNonBlocking, least),
                   "cudaStreamCreateWithPriority"))
            return false;
        hold->own_stream = true;
    }
    if (!works(cecl_hold_launch(hold->stream, size, hold->words, LIMIT_NS), "launch"))
        return false;
    hold->size = size;
    for (int ms = 0; ms < START_MS; ms++) {
        if (cecl_hold_all_run(hold->words, size))
            return true;
        const struct timespec pause = {0, 1000000};
        nanosleep(&pause, nullptr);
    }
    fprintf(stderr, "hold_sms: GPU %d: not all of %d blocks run after %d ms; is it busy?\n",
            hold->ordinal, size.blocks, START_MS);
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
    return hold->size.blocks > 0 && cecl_hold_holds(hold->words, hold->size);
}

extern "C" int hold_sms_stop(struct hold_sms *hold)
{
    if (!hold)
        return 0;
    const int held = hold_sms_held(hold);
    if (hold->words)
        hold->words->let_go = 1;
    if (hold->size.blocks > 0)
        works(cudaStreamSynchronize(hold->stream), "waiting for the kernel's end");
    if (hold->own_stream)
        works(cudaStreamDestroy(hold->stream), "cudaStreamDestroy");
    words_give_back(hold->words);
    free(hold);
    return held;
}
