/* Four ranks in this process that share windows of symmetric memory, for tests of one-sided calls on the host device. */
#ifndef CECL_TESTS_UNIT_ONE_SIDED_H
#define CECL_TESTS_UNIT_ONE_SIDED_H

#include "../with_cmocka.h"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

#include <cecl/cecl.h>

#define RANKS 4
#include "comms.h"

#define BYTES 6000

static unsigned char *memory[RANKS], from[BYTES];
static ceclWindow_t window[RANKS];

static void fill(unsigned char *at, size_t bytes, int seed)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)((uint64_t)(i + 1) * 2654435761u * (uint64_t)(seed + 1) >> 13);
}

static void expect(const unsigned char *at, size_t bytes, int seed)
{
    unsigned char wanted[BYTES];
    assert_true(bytes <= sizeof(wanted));
    fill(wanted, bytes, seed);
    assert_memory_equal(at, wanted, bytes);
}

struct sharing {
    int rank;
    void *ptr;
    size_t bytes;
    ceclWindow_t *window;
    ceclResult_t result;
    char words[512];
};

static void *share_one(void *argument)
{
    struct sharing *s = argument;
    s->result = s->ptr || s->bytes ? ceclWindowShare(comms[s->rank], s->ptr, s->bytes, s->window)
                                   : ceclWindowFree(comms[s->rank], *s->window);
    snprintf(s->words, sizeof(s->words), "%s", ceclGetLastError(NULL));
    return NULL;
}

static void together(struct sharing s[RANKS])
{
    pthread_t threads[RANKS];
    for (int r = 0; r < RANKS; r++) {
        s[r].rank = r;
        assert_int_equal(pthread_create(&threads[r], NULL, share_one, &s[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

static void share(unsigned char *const at[RANKS], size_t bytes, ceclWindow_t out[RANKS])
{
    struct sharing s[RANKS];
    for (int r = 0; r < RANKS; r++)
        s[r] = (struct sharing){.ptr = at[r], .bytes = bytes, .window = &out[r]};
    together(s);
    for (int r = 0; r < RANKS; r++)
        if (s[r].result != ceclSuccess)
            fail_msg("rank %d: %s", r, s[r].words);
}

static inline void end_windows(ceclWindow_t at[RANKS], ceclResult_t wanted, const char *words)
{
    struct sharing s[RANKS];
    for (int r = 0; r < RANKS; r++)
        s[r] = (struct sharing){.window = &at[r]};
    together(s);
    for (int r = 0; r < RANKS; r++)
        if (s[r].result != wanted || !strstr(s[r].words, words))
            fail_msg("rank %d: %s: %s", r, ceclGetErrorString(s[r].result), s[r].words);
}

static int setup(void **state)
{
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    open_all(state);
    allocate_all(memory, BYTES);
    share(memory, BYTES, window);
    return 0;
}

static ceclStream_t stream_of(int rank)
{
    ceclStream_t stream;
    OK(ceclStreamCreate(comms[rank], &stream));
    return stream;
}

static void finish(int rank, ceclStream_t stream)
{
    if (ceclStreamSynchronize(comms[rank], stream) != ceclSuccess)
        fail_msg("rank %d: %s", rank, ceclGetLastError(comms[rank]));
}

static void end(int rank, ceclStream_t stream)
{
    finish(rank, stream);
    OK(ceclStreamDestroy(comms[rank], stream));
}

static inline void pause_ms(int ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000L};
    nanosleep(&time, NULL);
}

static void wait_for(int rank, int peer, int signal, int count, ceclStream_t stream)
{
    const ceclSignalWait_t wait = {peer, signal, count};
    OK(ceclWaitSignal(1, &wait, comms[rank], stream));
}

#endif
