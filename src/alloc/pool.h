/* The symmetric pool: memory that every rank has at the same offset and that every rank can
 * address.
 *
 * One address range holds `nranks` slices of equal size; rank r's memory appears in slice r of
 * everyone, so a peer's pointer is
 * base + r * slice + offset. The pool grows by segments, created, exported, imported and mapped by
 * all ranks at once: that is the
 * rendezvous. Allocation inside what is mapped exchanges nothing. Knows the device and the
 * bootstrap, no collective. */
#ifndef CECL_ALLOC_POOL_H
#define CECL_ALLOC_POOL_H

#include "alloc/blocks.h"
#include "boot/mesh.h"
#include "device/device.h"

struct cecl_segment {
    uint64_t offset, bytes; /* in every slice alike */
};

struct cecl_proposal;

#define CECL_POOL_KEPT 5

struct cecl_pool {
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    int rank, nranks;
    char *base;      /* of slice 0 */
    uint64_t slice;  /* bytes from one rank's slice to the next */
    uint64_t mapped; /* [0, mapped) of each slice is backed */
    uint64_t growth; /* size of the next segment, unless more is needed */
    uint64_t max_growth;
    struct cecl_segment *segments;
    size_t nsegments;
    struct cecl_proposal *proposals; /* [nranks] and */
    int *fds; /* [nranks]: room for exchanges, which must not fail for want of it */
    struct cecl_blocks blocks;
    uint64_t peak_bytes;
    uint64_t exchanges;
    uint64_t calls,
        hash; /* of the sequence of allocations and frees so far: equal on all ranks, or an error */
    uint64_t generation;           /* grows with every free: what was located before may be gone */
    uint64_t kept[CECL_POOL_KEPT]; /* offsets of the library's own allocations */
    int nkept;
};

struct cecl_pool_config {
    uint64_t slice_bytes;
    uint64_t segment_bytes;
};

/* Local. Reserves the range; nothing is backed yet. On failure the pool is closed. */
ceclResult_t cecl_pool_open(struct cecl_pool *pool, struct cecl_device *dev, struct cecl_mesh *mesh,
                            int rank, int nranks, const struct cecl_pool_config *config);

/* Local. Unmaps and frees everything; a zeroed pool may be closed. No work may be pending on its
 * memory. */
void cecl_pool_close(struct cecl_pool *pool);

/* Collective, in equal order; see ceclMemAlloc. bytes > 0. */
ceclResult_t cecl_pool_alloc(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset);
void cecl_pool_free(struct cecl_pool *pool, uint64_t offset); /* of cecl_pool_allocation */

/* The offset of the allocation that starts at `ptr`; ceclInvalidArgument where none does. */
ceclResult_t cecl_pool_allocation(const struct cecl_pool *pool, const void *ptr, uint64_t *offset);

/* Collective. As cecl_pool_alloc, for the library itself, CECL_POOL_KEPT times at most: no user's
 * pointer into it is taken. */
ceclResult_t cecl_pool_alloc_kept(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset);

/* Collective. All ranks succeed, or all fail with the first failing rank's words. */
ceclResult_t cecl_pool_agree(struct cecl_pool *pool, ceclResult_t mine);

/* Where rank's copy of `offset` is. */
static inline void *cecl_pool_at(const struct cecl_pool *pool, int rank, uint64_t offset)
{
    return pool->base + (uint64_t)rank * pool->slice + offset;
}

/* Whether `ptr` points into this rank's slice. */
bool cecl_pool_owns(const struct cecl_pool *pool, const void *ptr);
/* Whether it points into the slice of any rank. */
bool cecl_pool_holds(const struct cecl_pool *pool, const void *ptr);

/* The offset of [ptr, ptr + bytes), which must lie inside one allocation of this rank;
 * ceclInvalidUsage naming `name` otherwise. */
ceclResult_t cecl_pool_locate(const struct cecl_pool *pool, const void *ptr, uint64_t bytes,
                              const char *name, uint64_t *offset);

void cecl_pool_stats(const struct cecl_pool *pool, ceclPoolStats_t *stats);

#endif
