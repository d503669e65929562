/* The symmetric pool: allocating, freeing, and finding the allocation that a pointer is in.
 * rendezvous.c makes it grow. */
#include "alloc/pool.h"

#include <inttypes.h>
#include <stdlib.h>

#include "util/grow.h"

/* segments double in size, up to this many times the first segment's size */
#define GROWTH_STEPS 16u

static ceclResult_t reserve_range(const struct cecl_pool *pool, size_t range, void **base)
{
    const ceclResult_t result = pool->dev->ops->reserve(pool->dev, range, base);
    return result == ceclSuccess
               ? result
               : cecl_fail(result,
                           "%.300s; the pool reserves poolBytes %" PRIu64
                           " for each of %d ranks: set config.poolBytes or CECL_POOL_BYTES to "
                           "less, or raise the limit of address space (ulimit -v)",
                           cecl_message(), pool->slice, pool->nranks);
}

ceclResult_t cecl_pool_open(struct cecl_pool *pool, struct cecl_device *dev, struct cecl_mesh *mesh,
                            int rank, int nranks, const struct cecl_pool_config *config)
{
    *pool = (struct cecl_pool){.dev = dev,
                               .mesh = mesh,
                               .rank = rank,
                               .nranks = nranks,
                               .slice = cecl_round_up(config->slice_bytes, dev->granularity),
                               .growth = cecl_round_up(config->segment_bytes, dev->granularity)};
    pool->max_growth = pool->growth * GROWTH_STEPS;

    uint64_t range;
    if (__builtin_mul_overflow(pool->slice, (uint64_t)nranks, &range) || range > SIZE_MAX / 2) {
        pool->slice = 0;
        return cecl_fail(ceclInvalidArgument,
                         "poolBytes %" PRIu64
                         " (config.poolBytes, CECL_POOL_BYTES) for each of %d ranks: more than an "
                         "address space",
                         config->slice_bytes, nranks);
    }
    pool->proposals = calloc((size_t)nranks, sizeof(*pool->proposals));
    pool->fds = calloc((size_t)nranks, sizeof(*pool->fds));
    void *base = NULL;
    ceclResult_t result = pool->proposals && pool->fds
                              ? reserve_range(pool, (size_t)range, &base)
                              : cecl_fail(ceclOutOfMemory, "no host memory for the pool's tables");
    pool->base = base;
    pool->window = (struct cecl_window){.home = (uint64_t)(uintptr_t)cecl_pool_at(pool, rank, 0),
                                        .number = CECL_WINDOW_POOL};
    if (result != ceclSuccess)
        cecl_pool_close(pool);
    return result;
}

void cecl_pool_close(struct cecl_pool *pool)
{
    if (pool->base) {
        while (pool->nsegments > 0)
            cecl_segment_close(pool, &pool->segments[--pool->nsegments], pool->nranks);
        pool->dev->ops->unreserve(pool->dev, pool->base,
                                  (size_t)(pool->slice * (uint64_t)pool->nranks));
    }
    free(pool->segments);
    free(pool->proposals);
    free(pool->fds);
    cecl_blocks_clear(&pool->blocks);
    *pool = (struct cecl_pool){0};
}

/* Adds a call to the hash of the sequence of calls, which must be equal on all ranks. */
static void remember_call(struct cecl_pool *pool, uint64_t kind, uint64_t a, uint64_t b)
{
    const uint64_t words[] = {kind, a, b};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        pool->hash = (pool->hash ^ words[i]) * 0x100000001b3u + (pool->hash >> 29);
    pool->calls++;
}

ceclResult_t cecl_pool_alloc(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset)
{
    /* A number above the size of a slice is not rounded up, because that could overflow; cecl_rendezvous_grow refuses
     * it on all ranks. */
    const uint64_t rounded = bytes > pool->slice ? bytes : cecl_round_up(bytes, CECL_BLOCK_ALIGN);
    ceclResult_t result;

    if (!cecl_blocks_take(&pool->blocks, rounded, offset, &result)) {
        pool->apart = result != ceclSuccess;
        CECL_TRY(result);
        CECL_TRY(cecl_rendezvous_grow(pool, bytes, rounded));
        if (!cecl_blocks_take(&pool->blocks, rounded, offset, &result))
            return result != ceclSuccess
                       ? result
                       : cecl_fail(ceclInternalError,
                                   "the pool grew, yet %" PRIu64 " bytes do not fit", rounded);
    }
    remember_call(pool, CECL_POOL_ALLOC, rounded, *offset);
    if (pool->blocks.used_bytes > pool->peak_bytes)
        pool->peak_bytes = pool->blocks.used_bytes;
    return ceclSuccess;
}

ceclResult_t cecl_pool_alloc_kept(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset)
{
    CECL_TRY(cecl_pool_alloc(pool, bytes, offset));
    pool->kept[pool->nkept++] = *offset;
    return ceclSuccess;
}

/* Finds the allocation that holds `offset`. Returns false if there is none, or if it is the library's own. */
static bool find_users(const struct cecl_pool *pool, uint64_t offset, uint64_t *start,
                       uint64_t *bytes)
{
    if (!cecl_blocks_find(&pool->blocks, offset, start, bytes))
        return false;
    for (int i = 0; i < pool->nkept; i++)
        if (pool->kept[i] == *start)
            return false;
    return true;
}

ceclResult_t cecl_pool_allocation(const struct cecl_pool *pool, const void *ptr, uint64_t *offset)
{
    uint64_t start, bytes;
    if (!cecl_pool_owns(pool, ptr))
        return cecl_fail(ceclInvalidArgument,
                         "ptr %p: not memory of ceclMemAlloc on this communicator and rank", ptr);
    *offset = (uint64_t)((const char *)ptr - (const char *)cecl_pool_at(pool, pool->rank, 0));
    if (!find_users(pool, *offset, &start, &bytes))
        return cecl_fail(ceclInvalidArgument, "ptr %p: not allocated (freed before?)", ptr);
    if (start != *offset)
        return cecl_fail(ceclInvalidArgument,
                         "ptr %p: %" PRIu64 " bytes into an allocation; its start is expected", ptr,
                         *offset - start);
    return ceclSuccess;
}

void cecl_pool_free(struct cecl_pool *pool, uint64_t offset)
{
    cecl_blocks_give(&pool->blocks, offset);
    remember_call(pool, CECL_POOL_FREE, offset, 0);
    pool->generation++;
}

ceclResult_t cecl_pool_agree(struct cecl_pool *pool, ceclResult_t mine)
{
    return cecl_mesh_agree(pool->mesh, mine);
}

bool cecl_pool_holds(const struct cecl_pool *pool, const void *ptr)
{
    const uintptr_t base = (uintptr_t)pool->base, p = (uintptr_t)ptr;
    return p >= base && p - base < pool->slice * (uint64_t)pool->nranks;
}

bool cecl_pool_owns(const struct cecl_pool *pool, const void *ptr)
{
    uintptr_t start = (uintptr_t)cecl_pool_at(pool, pool->rank, 0);
    return (uintptr_t)ptr >= start && (uintptr_t)ptr - start < pool->slice;
}

ceclResult_t cecl_pool_locate(const struct cecl_pool *pool, const void *ptr, uint64_t bytes,
                              const char *name, uint64_t *offset)
{
    const uintptr_t p = (uintptr_t)ptr;
    if (!cecl_pool_owns(pool, ptr)) {
        if (cecl_pool_holds(pool, ptr))
            return cecl_fail(ceclInvalidUsage,
                             "%s %p: this is rank %" PRIu64
                             "'s memory; this rank's own is expected",
                             name, ptr, (uint64_t)(p - (uintptr_t)pool->base) / pool->slice);
        return cecl_fail(ceclInvalidUsage,
                         "%s %p: not memory of this communicator; allocate it with ceclMemAlloc",
                         name, ptr);
    }
    uint64_t at = p - (uintptr_t)cecl_pool_at(pool, pool->rank, 0), start, length;
    if (!find_users(pool, at, &start, &length))
        return cecl_fail(ceclInvalidUsage,
                         "%s %p: not in an allocation of ceclMemAlloc (freed before?)", name, ptr);
    if (bytes > length - (at - start))
        return cecl_fail(ceclInvalidUsage,
                         "%s %p: %" PRIu64 " bytes needed, %" PRIu64 " left in its allocation",
                         name, ptr, bytes, length - (at - start));
    *offset = at;
    return ceclSuccess;
}

void cecl_pool_stats(const struct cecl_pool *pool, ceclPoolStats_t *stats)
{
    *stats = (ceclPoolStats_t){.reservedBytes = pool->slice,
                               .mappedBytes = pool->mapped,
                               .usedBytes = pool->blocks.used_bytes,
                               .peakBytes = pool->peak_bytes,
                               .segments = pool->nsegments,
                               .allocations = pool->blocks.used_blocks,
                               .exchanges = cecl_mesh_exchanges(pool->mesh)};
}
