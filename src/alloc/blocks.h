/* Which bytes of an address range are free and which are taken. This file knows only numbers: no memory, no peers.
 *
 * All blocks are in one list, sorted by offset. Finding the block that holds an offset takes O(log n). Allocating, at
 * the lowest offset that fits, and freeing take O(n). Equal sequences of calls give equal offsets on every rank; the
 * symmetric pool relies on that. */
#ifndef CECL_ALLOC_BLOCKS_H
#define CECL_ALLOC_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/error.h"

#define CECL_BLOCK_ALIGN 256u

struct cecl_blocks {
    struct cecl_piece *list; /* [count] */
    size_t count, room;
    uint64_t used_bytes;
    uint64_t used_blocks;
};

/* Makes room in the list, so that the next cecl_blocks_add_region and one cecl_blocks_take after it need no memory. */
ceclResult_t cecl_blocks_reserve(struct cecl_blocks *blocks);

/* Adds a region: a range of free bytes. Blocks of two regions are never joined, so each block lies within one
 * region. */
ceclResult_t cecl_blocks_add_region(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes);

/* Takes `bytes` (a multiple of CECL_BLOCK_ALIGN, > 0) at the lowest offset that fits. Returns false if no
 * free block is large enough (*result is ceclSuccess), or if the list cannot grow (*result is the error). */
bool cecl_blocks_take(struct cecl_blocks *blocks, uint64_t bytes, uint64_t *offset,
                      ceclResult_t *result);

/* Frees the block that starts at `offset`. Returns false if no taken block starts there. */
bool cecl_blocks_give(struct cecl_blocks *blocks, uint64_t offset);

/* Finds the taken block that holds `offset`. Returns false if there is none. */
bool cecl_blocks_find(const struct cecl_blocks *blocks, uint64_t offset, uint64_t *start,
                      uint64_t *bytes);

/* Frees the list and zeroes `blocks`. */
void cecl_blocks_clear(struct cecl_blocks *blocks);

#endif
