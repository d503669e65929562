/* The rendezvous: the exchange with peers by which the pool grows by a segment. */
#ifndef CECL_ALLOC_RENDEZVOUS_H
#define CECL_ALLOC_RENDEZVOUS_H

#include "alloc/pool.h"

/* The kinds of calls in the hash of the sequence of calls. */
enum cecl_pool_call { CECL_POOL_ALLOC = 1, CECL_POOL_FREE = 2 };

/* What ranks compare before anything changes. */
struct cecl_proposal {
    /* bytes that the caller asked for, and the same rounded up to the alignment */
    uint64_t asked, bytes;
    uint64_t calls, hash;
};

/* Adds a segment with room for `bytes` on every rank, or on none. Returns ceclInvalidUsage unless
 * all ranks ask for the same size after the same sequence of calls. `asked` is for messages.
 * Collective. */
ceclResult_t cecl_rendezvous_grow(struct cecl_pool *pool, uint64_t asked, uint64_t bytes);

/* Unmaps the memory of the first `nmapped` ranks of a segment, and releases this rank's own. */
void cecl_segment_close(struct cecl_pool *pool, struct cecl_segment *segment, int nmapped);

#endif
