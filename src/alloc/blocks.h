/* Sub-allocation of an address range: which bytes are free, which are taken. Numbers only: no
 * memory, no peers.
 *
 * A treap ordered by offset, in which each node also knows the largest free block below it. So
 * allocation (lowest offset that fits),
 * free with coalescing, and "which block holds this offset" each take O(log n), and equal call
 * sequences give equal offsets on
 * every rank: that is what the symmetric pool stands on. */
#ifndef CECL_ALLOC_BLOCKS_H
#define CECL_ALLOC_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_BLOCK_ALIGN 256u

struct cecl_block;

struct cecl_blocks {
    struct cecl_block *root;
    struct cecl_block *spare; /* nodes for reuse */
    uint64_t used_bytes;
    uint64_t used_blocks;
};

/* Makes sure that the next cecl_blocks_add_region, and a take after it, cannot fail. */
ceclResult_t cecl_blocks_reserve(struct cecl_blocks *blocks);

/* Adds a free region. Regions never coalesce with each other: a block lies in one piece of memory.
 * */
ceclResult_t cecl_blocks_add_region(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes);

/* Takes `bytes` (a multiple of CECL_BLOCK_ALIGN, > 0) at the lowest offset that fits. False:
 * nothing fits (*result success) or no memory for a node. */
bool cecl_blocks_take(struct cecl_blocks *blocks, uint64_t bytes, uint64_t *offset,
                      ceclResult_t *result);

/* Frees the block that starts at `offset`. False: no taken block starts there. */
bool cecl_blocks_give(struct cecl_blocks *blocks, uint64_t offset);

/* The taken block that holds `offset`. False: none does. */
bool cecl_blocks_find(const struct cecl_blocks *blocks, uint64_t offset, uint64_t *start,
                      uint64_t *bytes);

/* Forgets everything; zeroes. */
void cecl_blocks_clear(struct cecl_blocks *blocks);

#endif
