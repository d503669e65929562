/* Holds every SM of a GPU; see hold_sms.h. The kernel is the library's, from src/sm/hold.cu. */
#include "hold_sms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sm/hold.h"
#include "util/driver.h"

#define HOLDS_MAX 16 /* at the same time */
#define LIMIT_NS 20000000000ull
#define START_MS 10000

struct hold_sms {
    int ordinal;
    struct cecl_hold_size size; /* blocks is 0 before the launch */
    bool own_stream;
    CUstream stream;
    struct cecl_hold_words *words;
};

/* One allocation serves all holds. The first hold makes it and the last one frees it, because
 * pinning memory while another GPU is held might wait for that GPU. */
static struct cecl_hold_words *all_words;
static bool taken[HOLDS_MAX];

static const struct cecl_driver *cu; /* set by the first hold */

static bool works(ceclResult_t result)
{
    if (result != ceclSuccess)
        fprintf(stderr, "hold_sms: %s\n", ceclGetLastError(NULL));
    return result == ceclSuccess;
}
#define WORKS(function, ...) works(cecl_driver_check(cu, cu->function(__VA_ARGS__), #function))

static bool has_driver(void)
{
    const char *why = NULL;
    cu = cecl_driver_get(&why);
    if (!cu)
        fprintf(stderr, "hold_sms: %s\n", why);
    return cu != NULL;
}

static struct cecl_hold_words *words_take(void)
{
    if (!all_words && !WORKS(cuMemHostAlloc, (void **)&all_words, HOLDS_MAX * sizeof(*all_words),
                             CU_MEMHOSTALLOC_PORTABLE))
        return NULL;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (!taken[i]) {
            taken[i] = true;
            memset((void *)&all_words[i], 0, sizeof(all_words[i]));
            return &all_words[i];
        }
    fprintf(stderr, "hold_sms: %d holds already\n", HOLDS_MAX);
    return NULL;
}

static void words_give_back(struct cecl_hold_words *words)
{
    if (words)
        taken[words - all_words] = false;
    for (int i = 0; i < HOLDS_MAX; i++)
        if (taken[i])
            return;
    if (all_words)
        WORKS(cuMemFreeHost, all_words);
    all_words = NULL;
}

/* Launches on the current device, and waits until every block runs. */
static bool launch(struct hold_sms *hold)
{
    int least = 0, most = 0;
    struct cecl_hold_size size = {0, 0};
    if (!works(cecl_hold_prepare(&size)) || !WORKS(cuCtxGetStreamPriorityRange, &least, &most))
        return false;
    if (!hold->stream) {
        if (!WORKS(cuStreamCreateWithPriority, &hold->stream, CU_STREAM_NON_BLOCKING, least))
            return false;
        hold->own_stream = true;
    }
    if (!works(cecl_hold_launch(hold->stream, size, hold->words, LIMIT_NS)))
        return false;
    hold->size = size;
    for (int ms = 0; ms < START_MS; ms++) {
        if (cecl_hold_all_run(hold->words, size))
            return true;
        const struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "hold_sms: GPU %d: not all of %d blocks run after %d ms; is it busy?\n",
            hold->ordinal, size.blocks, START_MS);
    return false;
}

struct hold_sms *hold_sms_start_on(int ordinal, struct CUstream_st *stream)
{
    CUcontext before = NULL;
    struct hold_sms *hold = calloc(1, sizeof(*hold));
    if (!hold)
        return NULL;
    hold->ordinal = ordinal;
    hold->stream = stream;
    bool held = has_driver() && WORKS(cuCtxGetCurrent, &before) &&
                works(cecl_driver_set_device(cu, ordinal)) && (hold->words = words_take()) &&
                launch(hold);
    if (cu)
        WORKS(cuCtxSetCurrent, before);
    if (held)
        return hold;
    hold_sms_stop(hold);
    return NULL;
}

struct hold_sms *hold_sms_start(void)
{
    CUdevice current = 0;
    return has_driver() && WORKS(cuCtxGetDevice, &current) ? hold_sms_start_on(current, NULL)
                                                           : NULL;
}

int hold_sms_held(const struct hold_sms *hold)
{
    return hold->size.blocks > 0 && cecl_hold_holds(hold->words, hold->size);
}

int hold_sms_stop(struct hold_sms *hold)
{
    if (!hold)
        return 0;
    const int held = hold_sms_held(hold);
    if (hold->words)
        hold->words->let_go = 1;
    if (hold->size.blocks > 0)
        WORKS(cuStreamSynchronize, hold->stream);
    if (hold->own_stream)
        WORKS(cuStreamDestroy, hold->stream);
    words_give_back(hold->words);
    free(hold);
    return held;
}
