/* Sub-allocation of an address range; see blocks.h. */
#include "alloc/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "util/grow.h"

struct cecl_piece {
    uint64_t offset, bytes;
    uint64_t region; /* the offset at which its region starts */
    bool taken;
};

/* How many blocks start at `offset` or before. */
static size_t start_up_to(const struct cecl_blocks *blocks, uint64_t offset)
{
    size_t low = 0, high = blocks->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (blocks->list[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Inserts a block. The caller has called make_room. */
static void insert(struct cecl_blocks *blocks, size_t at, struct cecl_piece block)
{
    struct cecl_piece *list = blocks->list;
    memmove(&list[at + 1], &list[at], (blocks->count++ - at) * sizeof(*list));
    list[at] = block;
}

static ceclResult_t make_room(struct cecl_blocks *blocks, size_t more)
{
    return more == 0 || CECL_HAS_ROOM(blocks->list, blocks->count + more - 1, blocks->room)
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for the pool's table");
}

ceclResult_t cecl_blocks_reserve(struct cecl_blocks *blocks)
{
    return make_room(blocks, 2);
}

ceclResult_t cecl_blocks_add_region(struct cecl_blocks *blocks, uint64_t offset, uint64_t bytes)
{
    CECL_TRY(make_room(blocks, 1));
    insert(blocks, start_up_to(blocks, offset),
           (struct cecl_piece){.offset = offset, .bytes = bytes, .region = offset});
    return ceclSuccess;
}

bool cecl_blocks_take(struct cecl_blocks *blocks, uint64_t bytes, uint64_t *offset,
                      ceclResult_t *result)
{
    size_t at = 0;
    *result = ceclSuccess;
    while (at < blocks->count && (blocks->list[at].taken || blocks->list[at].bytes < bytes))
        at++;
    if (at == blocks->count ||
        (*result = make_room(blocks, blocks->list[at].bytes > bytes)) != ceclSuccess)
        return false;
    struct cecl_piece *block = &blocks->list[at];
    if (block->bytes > bytes)
        insert(
            blocks, at + 1,
            (struct cecl_piece){block->offset + bytes, block->bytes - bytes, block->region, false});
    block->taken = true;
    block->bytes = bytes;
    blocks->used_bytes += bytes;
    blocks->used_blocks++;
    *offset = block->offset;
    return true;
}

/* Joins the block with index `at` and the next block, if both are free and lie in the same
 * region. */
static void coalesce(struct cecl_blocks *blocks, size_t at)
{
    struct cecl_piece *a = &blocks->list[at], *b = a + 1;
    if (at + 1 >= blocks->count || a->taken || b->taken || a->region != b->region)
        return;
    a->bytes += b->bytes;
    blocks->count--;
    memmove(b, b + 1, (blocks->count - at - 1) * sizeof(*b));
}

bool cecl_blocks_give(struct cecl_blocks *blocks, uint64_t offset)
{
    const size_t count = start_up_to(blocks, offset);
    struct cecl_piece *block = count > 0 ? &blocks->list[count - 1] : NULL;
    if (!block || block->offset != offset || !block->taken)
        return false;
    blocks->used_bytes -= block->bytes;
    blocks->used_blocks--;
    block->taken = false;
    coalesce(blocks, count - 1);
    if (count > 1)
        coalesce(blocks, count - 2);
    return true;
}

bool cecl_blocks_find(const struct cecl_blocks *blocks, uint64_t offset, uint64_t *start,
                      uint64_t *bytes)
{
    const size_t count = start_up_to(blocks, offset);
    const struct cecl_piece *block = count > 0 ? &blocks->list[count - 1] : NULL;
    if (!block || !block->taken || offset - block->offset >= block->bytes)
        return false;
    *start = block->offset;
    *bytes = block->bytes;
    return true;
}

void cecl_blocks_clear(struct cecl_blocks *blocks)
{
    free(blocks->list);
    *blocks = (struct cecl_blocks){0};
}
