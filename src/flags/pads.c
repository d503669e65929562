/* Pads lie in this order:
 *
 *     [blocks][nranks]   words of barriers
 *     [signals][nranks]  words of signals
 *     1                  the word that ends all waits
 *     1 for each lane    the word in which cecl's own kernels count their blocks
 *     1 for each kind    the captured calls so far that are one kernel (a reduction counts 2)
 *     [nranks]           words by which the kernels of those calls wait for each other
 *     1                  the number of calls by splits on the device
 *
 * The host zeroes the pads, and ends waits of kernels on them. Only users' kernels wait for words
 * of barriers and signals. */
#include "flags/flags.h"

static size_t end_at(int nranks)
{
    return (size_t)(CECL_DEVICE_BLOCKS + CECL_DEVICE_SIGNALS) * (size_t)nranks;
}

static uint32_t *pads_of(const struct cecl_flags *flags)
{
    return cecl_pool_at(flags->pool, flags->rank, flags->pads_offset);
}

uint64_t cecl_pads_bytes(int nranks)
{
    return (end_at(nranks) + 1 + CECL_LANES + CECL_NUMBERINGS + (size_t)nranks + 1) *
           sizeof(uint32_t);
}

uint32_t *cecl_pads_ended(const struct cecl_flags *flags)
{
    return pads_of(flags) + end_at(flags->nranks);
}

uint32_t *cecl_pads_leaving(const struct cecl_flags *flags, int lane)
{
    return cecl_pads_ended(flags) + 1 + lane;
}

uint32_t *cecl_pads_count(const struct cecl_flags *flags, enum cecl_numbering kind)
{
    return cecl_pads_leaving(flags, CECL_LANES) + kind;
}

uint32_t *cecl_pads_row(const struct cecl_flags *flags, int holder)
{
    const uint32_t *const own = cecl_pads_count(flags, CECL_NUMBERINGS);
    return (uint32_t *)cecl_pool_at(flags->pool, holder, flags->pads_offset) +
           (own - pads_of(flags));
}

uint32_t *cecl_pads_splits(const struct cecl_flags *flags)
{
    return cecl_pads_row(flags, flags->rank) + flags->nranks;
}

ceclResult_t cecl_pads_clear(const struct cecl_flags *flags)
{
    return flags->dev->ops->mem_set(flags->dev, pads_of(flags), 0,
                                    (size_t)cecl_pads_bytes(flags->nranks));
}

ceclResult_t cecl_pads_end(const struct cecl_flags *flags)
{
    return flags->dev->ops->words_release(flags->dev, cecl_pads_ended(flags), 1, 1);
}

void cecl_pads_describe(const struct cecl_flags *flags, ceclDeviceComm_t *dc)
{
    *dc = (ceclDeviceComm_t){.rank = flags->rank,
                             .nranks = flags->nranks,
                             .blocks = CECL_DEVICE_BLOCKS,
                             .signals = CECL_DEVICE_SIGNALS,
                             .slices = cecl_pool_at(flags->pool, flags->rank, flags->slices_offset),
                             .pads = pads_of(flags)};
}
