/* The pool's exchange with its peers: growing by a segment. */
#ifndef CECL_ALLOC_RENDEZVOUS_H
#define CECL_ALLOC_RENDEZVOUS_H

#include "alloc/pool.h"

/* What is counted into the sequence of calls. */
enum cecl_pool_call { CECL_POOL_ALLOC = 1, CECL_POOL_FREE = 2 };

/* What ranks compare before they change anything. */
struct cecl_proposal {
    uint64_t asked, bytes; /* by the caller; with alignment */
    uint64_t calls, hash;
};

/* Collective. Adds a segment with room for `bytes` on every rank, or on none: ceclInvalidUsage
 * unless all ask for the same after the same sequence of calls. `asked` is for messages. */
ceclResult_t cecl_rendezvous_grow(struct cecl_pool *pool, uint64_t asked, uint64_t bytes);

/* Unmaps the first `nmapped` ranks' copies of a segment. */
void cecl_segment_unmap(struct cecl_pool *pool, const struct cecl_segment *segment, int nmapped);

#endif
