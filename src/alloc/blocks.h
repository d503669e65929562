/* Which bytes of an address range are free and which are taken. This file knows only numbers: no
 * memory, no peers.
 *
 * A treap ordered by offset holds the blocks. Each node also knows the largest free block below it.
 * So allocating (at the lowest offset that fits), freeing with coalescing, and finding the block
 * that holds an offset take O(log n) each. Equal sequences of calls give equal offsets on every
 * rank, and the symmetric pool relies on that. */
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

/* Makes sure that the next cecl_blocks_add_region and one cecl_blocks_take after it cannot fail. */
ceclResult_t cecl_blocks_reserve(struct cecl_blocks *blocks);

/* Adds a free region. Regions never coalesce with each other, so a block lies within one region. */
ceclResult_t cecl_blocks_add_region(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes);

/* Takes `bytes` (a multiple of CECL_BLOCK_ALIGN, > 0) at the lowest offset that fits. Returns false
 * when nothing fits (*result is ceclSuccess) or there is no memory for a node. */
bool cecl_blocks_take(struct cecl_blocks *blocks, uint64_t bytes, uint64_t *offset,
                      ceclResult_t *result);

/* Frees the block that starts at `offset`. Returns false when no taken block starts there. */
bool cecl_blocks_give(struct cecl_blocks *blocks, uint64_t offset);

/* Finds the taken block that holds `offset`. Returns false when there is none. */
bool cecl_blocks_find(const struct cecl_blocks *blocks, uint64_t offset, uint64_t *start,
                      uint64_t *bytes);

/* Frees all nodes and zeroes `blocks`. */
void cecl_blocks_clear(struct cecl_blocks *blocks);

#endif
