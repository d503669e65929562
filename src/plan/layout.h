/* The layout of a call, which says where its blocks lie: arrays of [nranks] words, one after another. */
#ifndef CECL_PLAN_LAYOUT_H
#define CECL_PLAN_LAYOUT_H

#include "plan/op.h"

#define CECL_MAX_RANKS 1024

/* The arrays of a layout that is equal on all ranks: bytes of each rank's block, and its offset in
 * recvbuff. */
enum { CECL_LAYOUT_BYTES, CECL_LAYOUT_AT, CECL_LAYOUT_ARRAYS };

/* The arrays of a layout that differs between ranks (CECL_FAMILY_OWN_LAYOUT). Three arrays describe the block
 * that goes to each rank: its bytes, its offset in this rank's sendbuff, and its offset in that rank's
 * recvbuff. Two arrays describe the block that comes from each rank: its bytes, and its offset in this rank's
 * recvbuff. */
enum {
    CECL_LAYOUT_SENT,
    CECL_LAYOUT_SENT_AT,
    CECL_LAYOUT_TARGET,
    CECL_LAYOUT_RECEIVED,
    CECL_LAYOUT_RECEIVED_AT,
    CECL_LAYOUT_OWN_ARRAYS
};

/* The layout of a call by splits on the device. Words that are equal on all ranks come first, then addresses on this
 * rank. See plan/splits.h. */
enum {
    CECL_LAYOUT_SEND_ROWS,
    CECL_LAYOUT_RECV_ROWS,
    CECL_LAYOUT_ROW_BYTES,
    CECL_LAYOUT_EXPERTS,
    CECL_LAYOUT_ALIGN,
    CECL_LAYOUT_SCALE_BYTES,
    CECL_LAYOUT_SPLITS_ALIKE,
    CECL_LAYOUT_SPLITS = CECL_LAYOUT_SPLITS_ALIKE,
    CECL_LAYOUT_SPLITS_OUT,
    CECL_LAYOUT_SEND_SCALES,
    CECL_LAYOUT_RECV_SCALES,
    CECL_LAYOUT_SPLITS_WORDS
};

/* A call of tiles has a layout of 1 + CECL_TILES_MAX words at most. See plan/block.h. */
#define CECL_TILES_MAX 1024

/* The index of a rank's word in an array of a layout. */
static inline size_t cecl_layout_at(int nranks, int array, int rank)
{
    return (size_t)array * (size_t)nranks + (size_t)rank;
}

/* How many words the layout of a call has. Must not be called for operations that have no layout, or that have
 * tiles. */
static inline uint32_t cecl_layout_words(const struct cecl_op *op, int nranks)
{
    const bool own = op->family == CECL_FAMILY_OWN_LAYOUT;
    if (op->family == CECL_FAMILY_SPLITS)
        return CECL_LAYOUT_SPLITS_WORDS;
    return (own ? CECL_LAYOUT_OWN_ARRAYS : CECL_LAYOUT_ARRAYS) * (uint32_t)nranks;
}
#define CECL_LAYOUT_WORDS_MAX(nranks) \
    (CECL_LAYOUT_OWN_ARRAYS * (uint32_t)(nranks) + CECL_LAYOUT_SPLITS_WORDS + 1 + CECL_TILES_MAX)

/* How many of the first words of a layout are equal on all ranks. The layout has `words` words. */
static inline uint32_t cecl_layout_alike(const struct cecl_op *op, uint32_t words)
{
    return op->family == CECL_FAMILY_OWN_LAYOUT            ? 0
           : op->family == CECL_FAMILY_SPLITS && words > 0 ? CECL_LAYOUT_SPLITS_ALIKE
           : op->has_tiles && words > 0                    ? 1
                                                           : words;
}

#endif
