/* 32-bit words that streams of several processes write and wait for. A waiter sleeps in the kernel,
 * because many ranks share few cores. */
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/host.h"

#define SPINS 100 /* how many times a waiter looks before it sleeps; a word often comes at once */
/* The longest sleep, in ns, before a waiter looks at the word again. Sleeps begin short, because only a look finds a
 * word that was written without waking. */
#define SLICE_NS 50000000L
#define FIRST_SLICE_NS 500000L

static _Atomic uint32_t *atomic_of(const uint32_t *word)
{
    return (_Atomic uint32_t *)(uintptr_t)word;
}

/* A shared futex also wakes waiters in other processes, and at other mappings of the page. */
void host_word_wake(const uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void host_word_write(uint32_t *word, uint32_t value)
{
    atomic_store_explicit(atomic_of(word), value, memory_order_seq_cst);
    host_word_wake(word);
}

void host_word_copy(uint32_t *dst, const void *src)
{
    uint32_t value;
    /* loaded atomically, because `src` may be a flag's value, which the watchdog may change meanwhile */
    if ((uintptr_t)src % sizeof(value) == 0)
        value = atomic_load_explicit(atomic_of(src), memory_order_relaxed);
    else
        memcpy(&value, src, sizeof(value));
    host_word_write(dst, value);
}

static bool ends_wait(uint32_t now, uint32_t value, enum cecl_memop_kind kind)
{
    if (kind == CECL_MEMOP_WAIT_SAME)
        return now == value;
    return kind == CECL_MEMOP_WAIT ? (int32_t)(now - value) >= 0 : (now & value) != 0;
}

void host_word_wait(const uint32_t *word, uint32_t value, enum cecl_memop_kind kind)
{
    struct timespec slice = {.tv_nsec = FIRST_SLICE_NS};
    for (int tries = 0;; tries++) {
        const uint32_t now = atomic_load_explicit(atomic_of(word), memory_order_seq_cst);
        if (ends_wait(now, value, kind))
            return;
        if (tries >= SPINS) {
            syscall(SYS_futex, word, FUTEX_WAIT, now, &slice, NULL, 0);
            slice.tv_nsec = slice.tv_nsec < SLICE_NS / 2 ? 2 * slice.tv_nsec : SLICE_NS;
        }
    }
}

ceclResult_t host_words_alloc(struct cecl_device *dev, size_t count, uint32_t **words)
{
    *words = calloc(count, sizeof(**words));
    return *words ? ceclSuccess : cecl_fail(ceclOutOfMemory, "no host memory for %zu words", count);
}

void host_words_free(struct cecl_device *dev, uint32_t *words)
{
    free(words);
}

void host_host_write(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        host_word_write(&words[i], value);
}

void host_host_set_bits(struct cecl_device *dev, uint32_t *word, uint32_t bits)
{
    atomic_fetch_or(atomic_of(word), bits);
    host_word_wake(word);
}

ceclResult_t host_words_release(struct cecl_device *dev, uint32_t *words, size_t count,
                                uint32_t value)
{
    host_host_write(dev, words, count, value);
    return ceclSuccess;
}

ceclResult_t host_words_read(struct cecl_device *dev, const uint32_t *words, size_t count,
                             uint32_t *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = atomic_load_explicit(atomic_of(&words[i]), memory_order_acquire);
    return ceclSuccess;
}
