/* The functions that define collectives, one for each kind of call: each returns the block that goes from one
 * rank to another. The rows of cecl_ops (launch/ops.c) refer to these functions. */
#ifndef CECL_PLAN_BLOCK_H
#define CECL_PLAN_BLOCK_H

#include "plan/call.h"

typedef struct cecl_block cecl_block_fn(const struct cecl_call *call, int from, int to);

cecl_block_fn cecl_block_nothing;   /* no blocks: ranks only meet */
cecl_block_fn cecl_block_gathered;  /* one block to all ranks: dense, strided, or by a layout */
cecl_block_fn cecl_block_exchanged; /* a block for each rank: dense or strided */
cecl_block_fn cecl_block_per_rank;  /* each rank has its own layout */
cecl_block_fn cecl_block_broadcast;
cecl_block_fn cecl_block_own; /* from a rank to itself */
cecl_block_fn cecl_block_to_root;
cecl_block_fn cecl_block_from_root;
/* For reductions: the part of rank `from`'s input that goes into rank `to`'s result. */
cecl_block_fn cecl_block_reduced_to_each;
cecl_block_fn cecl_block_tiles;
cecl_block_fn cecl_block_reduced_to_all;
cecl_block_fn cecl_block_reduced_to_root;

/* touched.c: if `received`, the block from `peer` in this rank's output, else the block for `peer` in this rank's
 * input. Must not be called for messages. */
struct cecl_block cecl_touched_block(const struct cecl_call *call, bool received, int peer);

/* Tiles (ceclReduceScatterTiles): sendbuff holds a matrix. Tiles are parts of the matrix, all of one shape. Each rank
 * receives equally many tiles, one after another. The layout's first word says how many tiles each rank receives. The
 * other words say where each tile begins in this rank's sendbuff: first the tiles for rank 0, then those for rank 1,
 * and so on. shape.rows is the number of rows that all tiles of one rank have together. */

/* How many tiles each rank receives. */
static inline uint64_t cecl_call_tiles(const struct cecl_call *call)
{
    return call->view.layout[0];
}
static inline uint64_t cecl_tile_rows(const struct cecl_call *call)
{
    return call->view.shape.rows / cecl_call_tiles(call);
}
/* Where a tile for rank `to` begins in sendbuff. */
static inline uint64_t cecl_tile_begin(const struct cecl_call *call, int to, uint64_t tile)
{
    return call->view.layout[1 + (uint64_t)to * cecl_call_tiles(call) + tile];
}

#endif
