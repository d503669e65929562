/* Words by which kernels of the caller's own meet (cecl_device.h): [blocks][nranks] of barriers,
 * [signals][nranks] of signals, and the one that ends all waits; behind them those of cecl's own
 * kernels. The engine keeps and ends them; it waits for none. */
#include "ce/bound.h"

static size_t end_at(int nranks)
{
    return (size_t)(CECL_DEVICE_BLOCKS + CECL_DEVICE_SIGNALS) * (size_t)nranks;
}

static uint32_t *pads_of(const struct cecl_engine *engine)
{
    return cecl_pool_at(engine->pool, engine->rank, engine->pads_offset);
}

uint64_t cecl_pads_bytes(int nranks)
{
    return (end_at(nranks) + 1 + CECL_LANES) * sizeof(uint32_t);
}

uint32_t *cecl_pads_ended(const struct cecl_engine *engine)
{
    return pads_of(engine) + end_at(engine->nranks);
}

uint32_t *cecl_pads_leaving(const struct cecl_engine *engine, int lane)
{
    return cecl_pads_ended(engine) + 1 + lane;
}

ceclResult_t cecl_pads_clear(const struct cecl_engine *engine)
{
    return engine->dev->ops->mem_set(engine->dev, pads_of(engine), 0,
                                     (size_t)cecl_pads_bytes(engine->nranks));
}

ceclResult_t cecl_pads_end(const struct cecl_engine *engine)
{
    return engine->dev->ops->words_release(engine->dev, cecl_pads_ended(engine), 1, 1);
}

void cecl_pads_describe(const struct cecl_engine *engine, ceclDeviceComm_t *dc)
{
    *dc = (ceclDeviceComm_t){.rank = engine->rank,
                             .nranks = engine->nranks,
                             .blocks = CECL_DEVICE_BLOCKS,
                             .signals = CECL_DEVICE_SIGNALS,
                             .base = cecl_pool_at(engine->pool, engine->rank, 0),
                             .sliceBytes = engine->pool->slice,
                             .pads = pads_of(engine)};
}
