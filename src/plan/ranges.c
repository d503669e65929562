/* The bytes of a buffer that a call uses, without the bytes between its blocks and rows. */
#include <stdlib.h>

#include "plan/block.h"

/* The blocks of a call in one buffer; if blocks are strided, their first rows. */
struct blocks {
    struct cecl_range of[CECL_MAX_RANKS];
    uint64_t count;
    uint64_t rows; /* rows of each block, one pitch apart */
    uint64_t pitch;
};

static int by_low(const void *a, const void *b)
{
    const struct cecl_range *one = a, *other = b;
    return (one->low > other->low) - (one->low < other->low);
}

/* Whether the blocks that a call touches in a buffer are those that this rank receives. */
static bool is_of_received(const struct cecl_call *call, bool written)
{
    return written &&
           !(cecl_call_is_one_buffer(call) && cecl_op_reduces_to(call->op, CECL_TO_EACH));
}

/* In place, each block of the input is also a block of the output. (In a reduce-scatter, each block of the
 * output is also a block of the input.) A block that goes to all ranks counts once. */
static void find_blocks(const struct cecl_call *call, bool written, struct blocks *blocks)
{
    const struct cecl_shape *shape = &call->view.shape;
    const bool received = is_of_received(call, written);
    bool in_order = true;
    blocks->count = 0;
    blocks->pitch = written ? shape->recv_pitch : shape->send_pitch;
    blocks->rows = blocks->pitch > shape->width ? shape->rows : 1;
    for (int peer = 0; peer < call->nranks; peer++) {
        const struct cecl_block block = cecl_touched_block(call, received, peer);
        const uint64_t low = received ? block.recv_offset : block.send_offset,
                       bytes = received ? cecl_call_result_bytes(call, block.bytes) : block.bytes,
                       high = low + (blocks->rows > 1 ? shape->width : bytes);
        const struct cecl_range *last = blocks->count > 0 ? &blocks->of[blocks->count - 1] : NULL;
        if (block.bytes == 0 || (last && last->low == low && last->high == high))
            continue;
        if (last && low < last->low)
            in_order = false;
        blocks->of[blocks->count++] = (struct cecl_range){low, high};
    }
    if (!in_order)
        qsort(blocks->of, blocks->count, sizeof(blocks->of[0]), by_low);
}

/* Appends a range, or makes the last range longer. Returns false if there is no room, or if the new range
 * begins before the last range ends. */
static bool append(struct cecl_range *ranges, uint32_t *count, uint64_t low, uint64_t high)
{
    struct cecl_range *last = *count > 0 ? &ranges[*count - 1] : NULL;
    if (last && low <= last->high) {
        last->high = high > last->high ? high : last->high;
        return low >= last->low;
    }
    if (*count == CECL_RANGES_MAX)
        return false;
    ranges[(*count)++] = (struct cecl_range){low, high};
    return true;
}

/* Appends the blocks row by row if they lie side by side, otherwise one after the other. */
static bool append_all(const struct blocks *blocks, struct cecl_range *ranges, uint32_t *count)
{
    const uint64_t n = blocks->count, rows = blocks->rows;
    const bool beside = blocks->of[n - 1].high - blocks->of[0].low <= blocks->pitch;
    bool fits = true;
    for (uint64_t i = 0; i < n * rows && fits; i++) {
        const struct cecl_range *first = &blocks->of[beside ? i % n : i / rows];
        const uint64_t at = (beside ? i / n : i % rows) * blocks->pitch;
        fits = append(ranges, count, first->low + at, first->high + at);
    }
    return fits;
}

uint32_t cecl_call_ranges(const struct cecl_call *call, const struct cecl_touched *touched,
                          struct cecl_range ranges[CECL_RANGES_MAX])
{
    const uint64_t extent = touched->high - touched->low;
    struct blocks blocks;
    uint32_t count = 0;
    ranges[0] = (struct cecl_range){touched->low, touched->high};
    if (call->op->family == CECL_FAMILY_MESSAGE || call->op->has_tiles)
        return 1;
    find_blocks(call, touched->written, &blocks);
    /* there may be millions of adjacent rows, so they are not joined one by one */
    if (blocks.rows > 1 && blocks.count * call->bytes >= extent)
        return 1;
    if (append_all(&blocks, ranges, &count))
        return count;
    ranges[0] = (struct cecl_range){touched->low, touched->high};
    return 1;
}
