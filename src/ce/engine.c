/* Opens and closes the engine: flags, staging and slots. bind.c binds plans, and run.c issues them. */
#include "ce/engine.h"

#include "util/grow.h"

#define SLOT_ALIGN 512u /* the size of a slot is a multiple of this */
#define POOL_SHARE 8    /* each kind of slots takes at most 1 / POOL_SHARE of a rank's pool */
/* The size of the smallest slots, enough for the largest small call of more than two ranks. If the pool has no room for
 * such slots, no call goes through slots. */
#define SLOT_LEAST_CUDA (256u << 10)
#define SLOT_LEAST_HOST (4u << 10)
/* The bytes of the next rank's staging through which private memory is copied. A chunk is half as large: 8 MiB take 21
 * us over the link, while a batch of two copies costs about 5 us. */
#define CARRY_CUDA (16u << 20)
#define CARRY_HOST (64u << 10)

static bool is_on_host(const struct cecl_pool *pool)
{
    return pool->dev->kind == CECL_KIND_HOST;
}

/* The bytes of a slot: enough for the largest small call, or less if all slots together would take too much of the
 * pool. 0: there are no slots. */
static uint64_t slot_bytes_of(const struct cecl_pool *pool, uint64_t small_bytes)
{
    const uint64_t most = cecl_round_up(small_bytes, SLOT_ALIGN),
                   fewest = is_on_host(pool) ? SLOT_LEAST_HOST : SLOT_LEAST_CUDA,
                   least = fewest < most ? fewest : most, room = pool->slice / POOL_SHARE;
    if (pool->nranks < 2 || pool->nranks > CECL_SMALL_RANKS)
        return 0;
    for (uint64_t each = most; each >= least && each >= SLOT_ALIGN; each /= 2) {
        const uint64_t slot = each / SLOT_ALIGN * SLOT_ALIGN;
        if (2 * CECL_SLOT_FACTOR * (uint64_t)pool->nranks * slot <= room)
            return slot;
    }
    return 0;
}

/* Bytes of all slots for calls that are not captured. The slots for captured calls take as many again. */
static uint64_t slots_bytes(const struct cecl_engine *engine)
{
    return 2 * (uint64_t)engine->nranks * CECL_SLOT_FACTOR * engine->slot_bytes;
}

/* The size of the largest table that calls by splits can need with this many ranks. */
static uint64_t table_bytes(int nranks)
{
    return nranks > CECL_SPLITS_RANKS_MAX
               ? 0
               : cecl_round_up(cecl_splits_table_bytes((uint32_t)nranks,
                                                       CECL_SPLITS_BLOCKS_MAX / (uint32_t)nranks),
                               SLOT_ALIGN);
}

/* Clears the slots, so that no line of a slot holds a flag for which a call may wait. */
static ceclResult_t clear_slots(const struct cecl_engine *engine)
{
    char *staging = cecl_pool_at(engine->pool, engine->rank, engine->staging_offset);
    return engine->slot_bytes == 0
               ? ceclSuccess
               : engine->dev->ops->mem_set(engine->dev, staging + engine->slots_offset, 0,
                                           2 * (size_t)slots_bytes(engine));
}

ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t small_bytes,
                              const struct cecl_hosted *hosted, bool host_flags)
{
    const uint64_t before = cecl_round_up(staging_bytes, SLOT_ALIGN),
                   carry = is_on_host(pool) ? CARRY_HOST : CARRY_CUDA;
    *engine = (struct cecl_engine){.dev = pool->dev,
                                   .pool = pool,
                                   .hosted = hosted,
                                   .rank = pool->rank,
                                   .nranks = pool->nranks,
                                   .staging_bytes = staging_bytes,
                                   .slots_offset = before,
                                   .slot_bytes = slot_bytes_of(pool, small_bytes),
                                   .carry_bytes = pool->nranks > 1 ? carry : 0};
    engine->captured_slots_offset = before + slots_bytes(engine);
    engine->table_offset = before + 2 * slots_bytes(engine);
    engine->table_bytes = table_bytes(pool->nranks);
    engine->carry_offset = engine->table_offset + engine->table_bytes;
    CECL_TRY(cecl_flags_open(&engine->flags, pool, hosted, host_flags));
    CECL_TRY(cecl_pool_alloc_kept(pool, engine->carry_offset + engine->carry_bytes,
                                  &engine->staging_offset));
    /* all ranks clear their slots before any rank may write to one */
    return cecl_pool_agree(pool, clear_slots(engine));
}

ceclResult_t cecl_engine_query(const struct cecl_engine *engine)
{
    return engine->order.event ? engine->dev->ops->event_query(engine->dev, engine->order.event)
                               : ceclSuccess;
}

void cecl_engine_close(struct cecl_engine *engine)
{
    struct cecl_device *dev = engine->dev;
    cecl_flags_close(&engine->flags);
    if (engine->side)
        dev->ops->stream_destroy(dev, engine->side);
    if (engine->order.event)
        dev->ops->event_destroy(dev, engine->order.event);
    if (engine->order.spare)
        dev->ops->event_destroy(dev, engine->order.spare);
    if (engine->before)
        dev->ops->stream_destroy(dev, engine->before);
    *engine = (struct cecl_engine){0};
}
