/* The functions that define collectives, one for each kind of call. Each returns the block that goes from one
 * rank to another. Rows of cecl_ops name them. */
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
/* For reductions: rank `to` receives the reduction of these blocks of all ranks. */
cecl_block_fn cecl_block_reduced_to_each;
cecl_block_fn cecl_block_tiles;
cecl_block_fn cecl_block_reduced_to_all;
cecl_block_fn cecl_block_reduced_to_root;

/* touched.c: the block for `peer` in this rank's input, or the block from `peer` in this rank's
 * output. Must not be called for messages. */
struct cecl_block cecl_touched_block(const struct cecl_call *call, bool received, int peer);

#endif
