/* How the pool grows. Every rank creates memory for a segment, sends the memory's descriptor to all ranks,
 * and maps the memory of all ranks. All ranks keep the segment, or none does. */
#include "alloc/pool.h"

#include <inttypes.h>

#include "util/grow.h"

/* Checks that all ranks ask for the same size, after the same allocations and frees. Collective. */
static ceclResult_t compare(struct cecl_pool *pool, uint64_t asked, uint64_t bytes)
{
    const struct cecl_proposal mine = {asked, bytes, pool->calls, pool->hash};
    struct cecl_proposal *all = pool->proposals;
    ceclResult_t result = cecl_mesh_allgather(pool->mesh, "grow", &mine, all, sizeof(mine));
    for (int r = 0; r < pool->nranks && result == ceclSuccess; r++) {
        const struct cecl_proposal *a = &all[0], *b = &all[r];
        if (b->bytes != a->bytes)
            result = cecl_fail(ceclInvalidUsage,
                               "ranks differ in ceclMemAlloc: %" PRIu64 " bytes on rank 0, %" PRIu64
                               " on rank %d",
                               a->asked, b->asked, r);
        else if (b->calls != a->calls || b->hash != a->hash)
            result = cecl_fail(
                ceclInvalidUsage,
                "ranks differ in an earlier ceclMemAlloc or ceclMemFree: rank 0 made %" PRIu64
                " calls, rank %d made %" PRIu64 "%s; CECL_CHECK=1 finds the call",
                a->calls, r, b->calls, b->calls == a->calls ? " with other sizes or order" : "");
    }
    return result;
}

void cecl_segment_close(struct cecl_pool *pool, struct cecl_segment *segment, int nmapped)
{
    while (nmapped-- > 0)
        pool->dev->ops->mem_unmap(pool->dev, cecl_pool_at(pool, nmapped, segment->offset),
                                  (size_t)segment->bytes);
    pool->dev->ops->mem_release(pool->dev, &segment->own);
}

/* Creates this rank's memory for a segment of `bytes` bytes. Succeeds on all ranks or fails on all. */
static ceclResult_t create_everywhere(struct cecl_pool *pool, uint64_t bytes, struct cecl_mem *mem)
{
    ceclResult_t result = pool->dev->ops->mem_create(pool->dev, (size_t)bytes, mem);
    result = cecl_mesh_agree(pool->mesh, result);
    if (result != ceclSuccess)
        pool->dev->ops->mem_release(pool->dev, mem);
    return result;
}

static ceclResult_t map_one(struct cecl_pool *pool, const struct cecl_segment *segment, int peer,
                            int fd)
{
    struct cecl_device *dev = pool->dev;
    void *addr = cecl_pool_at(pool, peer, segment->offset);
    if (peer == pool->rank)
        return dev->ops->mem_map(dev, addr, &segment->own);

    struct cecl_mem mem = {0};
    CECL_TRY(dev->ops->mem_import(dev, fd, (size_t)segment->bytes, &mem));
    ceclResult_t result = dev->ops->mem_map(dev, addr, &mem);
    dev->ops->mem_release(dev, &mem); /* the mapping keeps the memory */
    return result;
}

/* Shares this rank's memory with all ranks, and maps the memory of all ranks. Sets *nmapped to how many ranks' memory
 * is mapped, even after a failure. */
static ceclResult_t map_everywhere(struct cecl_pool *pool, const struct cecl_segment *segment,
                                   int *nmapped)
{
    int fd = -1, *fds = pool->fds;
    ceclResult_t result = pool->dev->ops->mem_export(pool->dev, &segment->own, &fd);

    *nmapped = 0;
    result = cecl_mesh_agree(pool->mesh, result); /* no rank sends its descriptor unless all can */
    if (result == ceclSuccess) {
        result = cecl_mesh_exchange_fd(pool->mesh, fd, fds);
        const bool received = result == ceclSuccess;
        for (int r = 0; r < pool->nranks && result == ceclSuccess; r++) {
            result = map_one(pool, segment, r, fds[r]);
            *nmapped += result == ceclSuccess;
            if (cecl_mesh_fd_is_gone(pool->mesh, r))
                result = cecl_fail(ceclRemoteError, "rank %d gave up", r);
        }
        if (received)
            cecl_mesh_drop_fds(pool->mesh, fds);
        result = cecl_mesh_agree(pool->mesh, result);
    }
    cecl_mesh_close_fd(pool->mesh, fd);
    return result;
}

static ceclResult_t reserve_tables(struct cecl_pool *pool)
{
    if (!cecl_list_grow(&pool->segments, (pool->nsegments + 1) * sizeof(*pool->segments)))
        return cecl_fail(ceclOutOfMemory, "no host memory for the pool's table");
    return cecl_blocks_reserve(&pool->blocks);
}

ceclResult_t cecl_rendezvous_grow(struct cecl_pool *pool, uint64_t asked, uint64_t bytes)
{
    const uint64_t unit = pool->dev->granularity;
    const uint64_t left = pool->slice - pool->mapped;
    const uint64_t least = bytes > left ? bytes : cecl_round_up(bytes, unit);
    uint64_t want = least > pool->growth ? least : pool->growth;
    struct cecl_segment segment = {.offset = pool->mapped};
    int nmapped = 0;

    CECL_TRY(compare(pool, asked, bytes));
    if (least > left)
        return cecl_fail(ceclOutOfMemory,
                         "bytes %" PRIu64 " do not fit into the pool, which has %" PRIu64
                         " of %" PRIu64
                         " bytes left; set config.poolBytes or CECL_POOL_BYTES to more",
                         asked, left, pool->slice);
    if (want > left)
        want = left;
    CECL_TRY(cecl_mesh_agree(pool->mesh, reserve_tables(pool)));

    /* Tries the size `growth` first. If a rank has no memory for it, adds only as much as the allocation needs. */
    segment.bytes = want;
    ceclResult_t result = create_everywhere(pool, segment.bytes, &segment.own);
    if (result == ceclOutOfMemory && want > least) {
        segment.bytes = least;
        result = create_everywhere(pool, segment.bytes, &segment.own);
    }
    CECL_TRY(result);

    result = map_everywhere(pool, &segment, &nmapped);
    if (result == ceclSuccess)
        result = cecl_blocks_add_region(&pool->blocks, segment.offset, segment.bytes);
    if (result != ceclSuccess) {
        cecl_segment_close(pool, &segment, nmapped);
        return result;
    }
    pool->segments[pool->nsegments++] = segment;
    pool->mapped += segment.bytes;
    pool->growth = pool->growth * 2 < pool->max_growth ? pool->growth * 2 : pool->max_growth;
    return ceclSuccess;
}
