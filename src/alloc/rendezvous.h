/* The pool's exchanges with its peers: growing by a segment, and comparing the sequence of calls.
 * */
#ifndef CECL_ALLOC_RENDEZVOUS_H
#define CECL_ALLOC_RENDEZVOUS_H

#include "alloc/pool.h"

enum cecl_pool_call { CECL_POOL_ALLOC = 1, CECL_POOL_FREE = 2 };

/* What ranks compare before they change anything. */
struct cecl_proposal {
    uint64_t call;  /* enum cecl_pool_call */
    uint64_t value; /* bytes or offset */
    uint64_t calls, hash;
};

/* Collective. Adds a segment with room for `bytes` on every rank, or on none. */
ceclResult_t cecl_rendezvous_grow(struct cecl_pool *pool, uint64_t bytes);

/* Collective. ceclInvalidUsage on every rank unless all are about to make the same call (value:
 * bytes or offset) after the same
 * sequence of calls. */
ceclResult_t cecl_rendezvous_compare(struct cecl_pool *pool, enum cecl_pool_call call,
                                     uint64_t value);

/* Unmaps the first `nmapped` ranks' copies of a segment. */
void cecl_segment_unmap(struct cecl_pool *pool, const struct cecl_segment *segment, int nmapped);

#endif
