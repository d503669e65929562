/* The symmetric pool: memory that every rank has at the same offset, and that every rank can address.
 *
 * One address range holds `nranks` slices of equal size. Rank r's memory appears in slice r on every rank, so a pointer
 * to rank r's memory is base + r * slice + offset. The pool grows by segments. All ranks create, export, import and map
 * a segment together; this exchange is the rendezvous. An allocation that fits into mapped memory needs no exchange.
 * The pool knows the device and the mesh, but no collective. */
#ifndef CECL_ALLOC_POOL_H
#define CECL_ALLOC_POOL_H

#include "alloc/blocks.h"
#include "alloc/buffer.h"
#include "boot/mesh.h"
#include "device/device.h"

struct cecl_segment {
    uint64_t offset, bytes; /* equal in every slice */
    /* This rank's memory. The handle stays open, so that other communicators of this rank can share it. */
    struct cecl_mem own;
};

struct cecl_proposal;

#define CECL_POOL_KEPT 5

struct cecl_pool {
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    int rank, nranks;
    char *base;                /* start of slice 0 */
    struct cecl_window window; /* this rank's slice */
    uint64_t slice;            /* bytes from one rank's slice to the next */
    uint64_t mapped;           /* bytes from each slice's start that have memory */
    uint64_t growth;           /* bytes of the next segment, unless an allocation needs more */
    uint64_t max_growth;
    struct cecl_segment *segments;
    size_t nsegments;
    /* [nranks], allocated at open, so that an exchange cannot fail for lack of host memory */
    struct cecl_proposal *proposals;
    int *fds; /* [nranks], allocated at open */
    struct cecl_blocks blocks;
    uint64_t peak_bytes;
    /* number and hash of the allocations and frees so far; ranks must have equal ones */
    uint64_t calls, hash;
    /* an allocation failed here for lack of host memory, and may have succeeded at peers */
    bool apart;
    /* how many frees there were; after a free, a buffer that was located before may be gone */
    uint64_t generation;
    uint64_t kept[CECL_POOL_KEPT]; /* offsets of the library's own allocations */
    int nkept;
};

struct cecl_pool_config {
    uint64_t slice_bytes;
    uint64_t segment_bytes;
};

/* Reserves the address range, without memory. On failure the pool is closed. Local. */
ceclResult_t cecl_pool_open(struct cecl_pool *pool, struct cecl_device *dev, struct cecl_mesh *mesh,
                            int rank, int nranks, const struct cecl_pool_config *config);

/* Unmaps and frees everything. No work may be pending on its memory. A zeroed pool may be closed. Local. */
void cecl_pool_close(struct cecl_pool *pool);

/* Allocates `bytes` > 0 bytes; see ceclMemAlloc. Collective: all ranks call in the same order. */
ceclResult_t cecl_pool_alloc(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset);
/* Frees the allocation at `offset`, which is from cecl_pool_allocation. */
void cecl_pool_free(struct cecl_pool *pool, uint64_t offset);

/* The offset of the allocation that starts at `ptr`; ceclInvalidArgument if none starts there. */
ceclResult_t cecl_pool_allocation(const struct cecl_pool *pool, const void *ptr, uint64_t *offset);

/* Allocates for the library itself, at most CECL_POOL_KEPT times. The library refuses users' pointers into such memory.
 * Collective. */
ceclResult_t cecl_pool_alloc_kept(struct cecl_pool *pool, uint64_t bytes, uint64_t *offset);

/* Succeeds if `mine` is ceclSuccess on all ranks; otherwise all ranks fail with the message of the first rank that
 * failed. Collective. */
ceclResult_t cecl_pool_agree(struct cecl_pool *pool, ceclResult_t mine);

/* The address of `offset` in rank's slice. */
static inline void *cecl_pool_at(const struct cecl_pool *pool, int rank, uint64_t offset)
{
    return pool->base + (uint64_t)rank * pool->slice + offset;
}

/* Whether `ptr` points into this rank's slice. */
bool cecl_pool_owns(const struct cecl_pool *pool, const void *ptr);
/* Whether `ptr` points into any rank's slice. */
bool cecl_pool_holds(const struct cecl_pool *pool, const void *ptr);

/* The offset of [ptr, ptr + bytes), which must lie inside one allocation of this rank. Otherwise returns
 * ceclInvalidUsage, with a message that names the argument `name`. */
ceclResult_t cecl_pool_locate(const struct cecl_pool *pool, const void *ptr, uint64_t bytes,
                              const char *name, uint64_t *offset);

void cecl_pool_stats(const struct cecl_pool *pool, ceclPoolStats_t *stats);

/* -- rendezvous.c: the exchange with peers by which the pool grows by a segment -- */

/* The kinds of calls that go into the pool's hash. */
enum cecl_pool_call { CECL_POOL_ALLOC = 1, CECL_POOL_FREE = 2 };

/* What ranks tell each other, and compare, before the pool grows. */
struct cecl_proposal {
    /* the bytes for which the caller asked, as they are and rounded up to the alignment */
    uint64_t asked, bytes;
    uint64_t calls, hash;
};

/* Adds a segment with room for `bytes` on every rank, or on none. Returns ceclInvalidUsage unless all ranks ask for the
 * same size after the same sequence of calls. `asked` only appears in messages. Collective. */
ceclResult_t cecl_rendezvous_grow(struct cecl_pool *pool, uint64_t asked, uint64_t bytes);

/* Unmaps the memory of the first `nmapped` ranks of a segment, and releases this rank's own. */
void cecl_segment_close(struct cecl_pool *pool, struct cecl_segment *segment, int nmapped);

#endif
