/* What the lowerings over several nodes share. Internal to src/ce.
 *
 * Within a node they work as on one node, by copies and flags among its ranks. Blocks for other nodes go over
 * rails (call/nodes.h), by exchanges on a lane of their own, in chunks: while a chunk travels, copy engines
 * move the previous one. Each node meets the others in an order that all know: by waves of nodes, and in a
 * wave chunk by chunk. So exchanges never wait for each other in a circle. */
#ifndef CECL_CE_LOWER_NODES_H
#define CECL_CE_LOWER_NODES_H

#include "ce/lowering.h"

/* How a call goes between nodes, as one rank sees it. */
struct cecl_rails {
    const struct cecl_part *part;
    const struct cecl_nodes *nodes;
    /* me: this rank; node: this rank's node; local: this rank's index in the node; size: how many ranks the
     * node has */
    int me, node, local, size;
    int wave;       /* the most nodes with which a wave exchanges */
    uint64_t chunk; /* how many bytes of each block one exchange carries */
    /* the rails' part of the call's staging: where this part begins, and how many bytes it has. The part
     * for copies within the node comes before it */
    uint64_t staging_at, staging_bytes;
    uint32_t awaited; /* for building: the last exchange that the main lane waited for */
};

/* Gives half of staging to *inner, the part of the call within the node, and half to the rails. */
struct cecl_rails cecl_rails_of(const struct cecl_part *part, struct cecl_part *inner);

/* Turn i, from 1 on: this node sends to the node at a distance d after it, and receives from the node at
 * the same distance before it. An odd turn and the next turn are a pair: the node that this node sends to
 * in one of them is the node that it receives from in the other. */
static inline int cecl_rails_distance(const struct cecl_rails *rails, int turn)
{
    return turn % 2 ? (turn + 1) / 2 : rails->nodes->count - turn / 2;
}
static inline int cecl_rails_to(const struct cecl_rails *rails, int turn)
{
    return (rails->node + cecl_rails_distance(rails, turn)) % rails->nodes->count;
}
static inline int cecl_rails_from(const struct cecl_rails *rails, int turn)
{
    const int count = rails->nodes->count;
    return (rails->node + count - cecl_rails_distance(rails, turn)) % count;
}
/* Turns go in waves: wave w has turns [first, last]. */
static inline int cecl_rails_waves(const struct cecl_rails *rails)
{
    return (rails->nodes->count - 1 + rails->wave - 1) / rails->wave;
}
static inline int cecl_rails_first(const struct cecl_rails *rails, int wave)
{
    return 1 + wave * rails->wave;
}
static inline int cecl_rails_last(const struct cecl_rails *rails, int wave)
{
    const int end = (wave + 1) * rails->wave, all = rails->nodes->count - 1;
    return end < all ? end : all;
}
/* For how many ranks of `node` the rank with local index `local`, in a node of `size` ranks, is the
 * carrier. */
static inline int cecl_rails_carried(const struct cecl_rails *rails, int node, int local, int size)
{
    const int n = cecl_node_size(rails->nodes, node);
    return n > local ? (n - local + size - 1) / size : 0;
}

/* How many of the bytes [first, first + most) a block of `bytes` bytes has. */
static inline uint64_t cecl_chunk_left(uint64_t bytes, uint64_t first, uint64_t most)
{
    const uint64_t left = first < bytes ? bytes - first : 0;
    return left < most ? left : most;
}
static inline struct cecl_place cecl_place_on(struct cecl_place place, uint64_t bytes)
{
    place.offset += bytes;
    return place;
}
/* A place in the rails' part of a rank's staging. */
static inline struct cecl_place cecl_rails_staging(const struct cecl_rails *rails, int rank,
                                                   uint64_t offset)
{
    return cecl_staging_at(rails->part, rank, rails->staging_at + offset);
}
/* The largest chunk of at most `bytes` bytes: a whole number of elements, and aligned unless the chunk is
 * small. */
uint64_t cecl_rails_aligned(const struct cecl_rails *rails, uint64_t bytes);
ceclResult_t cecl_rails_too_small(const struct cecl_rails *rails, uint64_t least);

/* The next exchange waits for what the main lane has done so far. */
void cecl_rails_follow(struct cecl_plan *plan);
/* The main lane waits for exchange k. */
void cecl_rails_await(struct cecl_rails *rails, struct cecl_plan *plan, uint32_t k);

/* Equal shares of `total` bytes that begin at byte `base` of a buffer. Rank r has bytes [r * each, (r + 1)
 * * each) of these, but none beyond `total`. */
struct cecl_shares {
    uint64_t base, each, total;
};
static inline uint64_t cecl_share_bytes(const struct cecl_shares *shares, int rank)
{
    return cecl_chunk_left(shares->total, (uint64_t)rank * shares->each, shares->each);
}

/* lower_nodes_fold.c: reduces all ranks' blocks for this rank, or this rank's share of them, to `result`. */
ceclResult_t cecl_rails_fold(struct cecl_rails *rails, struct cecl_plan *plan,
                             const struct cecl_shares *shares, struct cecl_place result);
/* lower_nodes_gather.c: each rank sends its block to all ranks. If `shares` is given, each rank sends its
 * share instead, which lies in its recvbuff. When this begins, no rank of the node may still read bytes of
 * recvbuff that will be written. */
void cecl_rails_gather(struct cecl_rails *rails, struct cecl_plan *plan,
                       const struct cecl_shares *shares);
/* lower_nodes_root.c: each rank of another node sends its block to the root, or its share if `shares` is
 * given. `at`: where that block or share lies. Meanwhile the root's own node carries out the call `within`;
 * NULL: its ranks push their shares. */
ceclResult_t cecl_rails_to_root(struct cecl_rails *rails, struct cecl_plan *plan,
                                const struct cecl_shares *shares, struct cecl_place at,
                                const struct cecl_part *within);

cecl_lower_fn cecl_lower_nodes; /* any call over several nodes */
cecl_lower_fn cecl_lower_nodes_gathered;
cecl_lower_fn cecl_lower_nodes_exchanged; /* also for blocks that a layout describes */
cecl_lower_fn cecl_lower_nodes_at_root;
cecl_lower_fn cecl_lower_nodes_reduction;
cecl_lower_fn cecl_lower_nodes_rows; /* for strided blocks */
cecl_lower_fn cecl_lower_nodes_splits;

#endif
