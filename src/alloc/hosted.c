/* The layout of the memory that hosted.h describes. Its parts are whole pages, because devices map whole pages. */
#include "alloc/hosted.h"

#include <stdatomic.h>
#include <unistd.h>

#include "util/grow.h"

#define PAGE ((uint64_t)sysconf(_SC_PAGESIZE)) /* 64 KiB on some hosts */
#define LINE 64u /* bytes of a cache line; flags of two ranks never share a line */

uint64_t cecl_hosted_half(uint64_t most)
{
    return cecl_round_up(most, PAGE);
}

static uint64_t row_bytes(int nranks)
{
    const uint64_t words = CECL_LANES * (uint64_t)nranks + 2 + cecl_hosted_count_words(nranks) +
                           cecl_hosted_awaited_words(nranks);
    return cecl_round_up(words * sizeof(uint32_t), LINE);
}

static uint64_t words_bytes(int nranks)
{
    return cecl_round_up(row_bytes(nranks) * (uint64_t)nranks, PAGE);
}

static size_t used_bytes(int nranks, uint64_t half_bytes)
{
    return (size_t)(words_bytes(nranks) + 2 * (uint64_t)nranks * half_bytes);
}

size_t cecl_hosted_bytes(int nranks, uint64_t half_bytes)
{
    return used_bytes(nranks, half_bytes) + PAGE; /* the memory may begin anywhere in a page */
}

ceclResult_t cecl_hosted_open(struct cecl_hosted *hosted, struct cecl_device *dev, void *memory,
                              int nranks, uint64_t half_bytes)
{
    char *const first = (char *)(uintptr_t)cecl_round_up((uintptr_t)memory, PAGE);
    const size_t bytes = used_bytes(nranks, half_bytes);
    _Static_assert(CECL_LANES % 2 == 0, "counts need an address of 8 bytes");
    const uint64_t turn = CECL_LANES * (uint64_t)nranks * sizeof(uint32_t);
    const uint64_t counts = turn + 2 * sizeof(uint32_t);
    CECL_TRY(dev->ops->host_share(dev, first, bytes));
    *hosted =
        (struct cecl_hosted){.dev = dev,
                             .shared = first,
                             .bytes = bytes,
                             .words = first,
                             .apart = row_bytes(nranks),
                             .turn = turn,
                             .awaited = counts + cecl_hosted_count_words(nranks) * sizeof(uint32_t),
                             .halves = first + words_bytes(nranks),
                             .half_bytes = half_bytes};
    return ceclSuccess;
}

/* Stores without the device's host_write, whose system calls wake threads that wait: none waits yet. */
void cecl_hosted_begin(uint32_t *words, size_t count, uint32_t value)
{
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit((_Atomic uint32_t *)&words[i], value, memory_order_relaxed);
}

void cecl_hosted_close(struct cecl_hosted *hosted)
{
    if (hosted->shared)
        hosted->dev->ops->host_unshare(hosted->dev, hosted->shared, hosted->bytes);
    *hosted = (struct cecl_hosted){0};
}
