/* The engine's life: flags, staging, and finding how flags travel. Binding is in bind.c, issuing in
 * run.c. */
#include "ce/engine.h"

#include <stdlib.h>

#include "ce/bound.h"

/* Close to the wrap-around, so that every program crosses it soon and nothing can depend on it not
 * happening. */
#define FIRST_EPOCH 0xffffff00u

/* A quarter of the flags' cycle: half of it counts as later, half as earlier. */
#define QUARTER 0x4000u

#define SLOT_ALIGN 512u

uint32_t *cecl_engine_flag(const struct cecl_engine *engine, int holder, int writer, int lane)
{
    return (uint32_t *)cecl_pool_at(engine->pool, holder, engine->flags_offset) +
           lane * engine->nranks + writer;
}

/* Sends a flag to every peer in the given way, and waits for the stream. */
static ceclResult_t send_probe(struct cecl_engine *engine, enum cecl_flag_way way, uint32_t epoch,
                               ceclStream_t stream)
{
    struct cecl_device *dev = engine->dev;
    ceclResult_t result = ceclSuccess;

    for (int i = 1; i < engine->nranks && result == ceclSuccess; i++) {
        uint32_t *flag = cecl_engine_flag(engine, (engine->rank + i) % engine->nranks, engine->rank,
                                          CECL_LANE_MAIN);
        struct cecl_memop write = {flag, cecl_flag_value(epoch), CECL_MEMOP_WRITE};
        void *dst = flag, *src = cecl_engine_value(engine, CECL_LANE_MAIN, epoch);
        size_t bytes = sizeof(*flag);
        struct cecl_batch batch = {&dst, &src, &bytes, 1};
        result = way == CECL_FLAGS_WRITE ? dev->ops->memops(dev, stream, &write, 1)
                                         : dev->ops->copies(dev, stream, &batch);
    }
    ceclResult_t waited = dev->ops->stream_synchronize(dev, stream);
    return result != ceclSuccess ? result : waited;
}

/* Collective. Whether flags sent in this way arrive everywhere: tried, not asked. */
static ceclResult_t probe_way(struct cecl_engine *engine, enum cecl_flag_way way,
                              ceclStream_t stream)
{
    const uint32_t epoch = FIRST_EPOCH - (way == CECL_FLAGS_COPY ? 1 : 0),
                   value = cecl_flag_value(epoch);

    CECL_TRY(cecl_pool_agree(engine->pool, send_probe(engine, way, epoch, stream)));
    ceclResult_t result = engine->dev->ops->words_read(
        engine->dev, cecl_engine_flag(engine, engine->rank, 0, CECL_LANE_MAIN),
        (size_t)engine->nranks, engine->row);
    for (int r = 0; r < engine->nranks && result == ceclSuccess; r++)
        if (r != engine->rank && engine->row[r] != value)
            result = cecl_fail(ceclUnhandledCudaError,
                               "a flag of rank %d did not arrive: %#x instead of %#x", r,
                               (unsigned)engine->row[r], (unsigned)value);
    return cecl_pool_agree(engine->pool, result);
}

/* Every value that a flag can have, in order. */
static ceclResult_t write_values(struct cecl_engine *engine, ceclStream_t stream)
{
    struct cecl_device *dev = engine->dev;
    const size_t bytes = CECL_LANES * CECL_FLAG_VALUES * sizeof(uint32_t);
    uint32_t *values = malloc(bytes);
    if (!values)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu bytes of flags", bytes);
    for (uint32_t i = 0; i < CECL_LANES * CECL_FLAG_VALUES; i++)
        values[i] = cecl_flag_value(i % CECL_FLAG_VALUES);
    ceclResult_t result =
        dev->ops->memcpy_async(dev, cecl_engine_value(engine, 0, 0), values, bytes, stream);
    ceclResult_t waited = dev->ops->stream_synchronize(dev, stream);
    free(values);
    return result != ceclSuccess ? result : waited;
}

/* Collective. Chooses how flags travel. */
static ceclResult_t choose_way(struct cecl_engine *engine, int wanted)
{
    struct cecl_device *dev = engine->dev;
    ceclStream_t stream = NULL;
    ceclResult_t result = dev->ops->stream_create(dev, &stream);

    if (result == ceclSuccess)
        result = write_values(engine, stream);
    result = cecl_pool_agree(engine->pool, result);
    if (result == ceclSuccess) {
        /* Copied flags are the faster ones where measured (docs/measurements.md), and no driver
         * refuses them. */
        engine->flags = wanted == 1 ? CECL_FLAGS_WRITE : CECL_FLAGS_COPY;
        result = probe_way(engine, engine->flags, stream);
        if (result != ceclSuccess && wanted == 0) {
            engine->flags = CECL_FLAGS_WRITE;
            result = probe_way(engine, engine->flags, stream);
        }
    }
    if (stream)
        dev->ops->stream_destroy(dev, stream);
    return result;
}

/* Sets this rank's side flags to where they begin: nothing but a signal raises them. */
static ceclResult_t begin_side_flags(struct cecl_engine *engine)
{
    return engine->dev->ops->words_release(
        engine->dev, cecl_engine_flag(engine, engine->rank, 0, CECL_LANE_SIDE),
        (size_t)engine->nranks, cecl_flag_value(FIRST_EPOCH));
}

static uint64_t slots_bytes(const struct cecl_engine *engine)
{
    return 2 * (uint64_t)engine->nranks * CECL_SLOT_FACTOR * engine->slot_bytes;
}

/* No line of a slot holds the flag of any call yet. */
static ceclResult_t clear_slots(const struct cecl_engine *engine)
{
    char *staging = cecl_pool_at(engine->pool, engine->rank, engine->staging_offset);
    return engine->slot_bytes == 0
               ? ceclSuccess
               : engine->dev->ops->mem_set(engine->dev, staging + engine->slots_offset, 0,
                                           (size_t)slots_bytes(engine));
}

/* Collective. Zero flags on every rank before any rank may write one. */
static ceclResult_t clear_flags(struct cecl_engine *engine)
{
    struct cecl_device *dev = engine->dev;
    ceclResult_t result =
        dev->ops->mem_set(dev, cecl_engine_flag(engine, engine->rank, 0, CECL_LANE_MAIN), 0,
                          CECL_LANES * (size_t)engine->nranks * sizeof(uint32_t));
    if (result == ceclSuccess)
        result = begin_side_flags(engine);
    if (result == ceclSuccess)
        result = cecl_pads_clear(engine);
    if (result == ceclSuccess)
        result = clear_slots(engine);
    if (result == ceclSuccess)
        result = dev->ops->words_alloc(dev, 2, &engine->done); /* and `late` */
    if (result == ceclSuccess &&
        !(engine->row = malloc((size_t)engine->nranks * sizeof(*engine->row))))
        result = cecl_fail(ceclOutOfMemory, "no host memory for %d flags", engine->nranks);
    return cecl_pool_agree(engine->pool, result);
}

ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t slot_bytes, int way)
{
    const uint64_t before = (staging_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    *engine = (struct cecl_engine){.dev = pool->dev,
                                   .pool = pool,
                                   .rank = pool->rank,
                                   .nranks = pool->nranks,
                                   .staging_bytes = staging_bytes,
                                   .slots_offset = before,
                                   .slot_bytes = slot_bytes,
                                   .epoch = FIRST_EPOCH,
                                   .side_epoch = FIRST_EPOCH};
    CECL_TRY(cecl_pool_alloc_kept(pool, CECL_LANES * (uint64_t)pool->nranks * sizeof(uint32_t),
                                  &engine->flags_offset));
    CECL_TRY(cecl_pool_alloc_kept(pool, CECL_LANES * CECL_FLAG_VALUES * sizeof(uint32_t),
                                  &engine->values_offset));
    CECL_TRY(cecl_pool_alloc_kept(pool, cecl_pads_bytes(pool->nranks), &engine->pads_offset));
    CECL_TRY(cecl_pool_alloc_kept(pool, before + slots_bytes(engine), &engine->staging_offset));
    CECL_TRY(clear_flags(engine));
    CECL_TRY(choose_way(engine, way));
    atomic_store(&engine->target, engine->epoch);
    atomic_store(&engine->side_target, engine->side_epoch);
    atomic_store((_Atomic uint32_t *)engine->done, engine->epoch);
    /* From here on flags hold FIRST_EPOCH or just below it on every rank: nothing is satisfied that
     * was not signalled. */
    return ceclSuccess;
}

void cecl_engine_close(struct cecl_engine *engine)
{
    for (int s = 0; s < CECL_CACHE_SETS; s++)
        for (int w = 0; w < CECL_CACHE_WAYS; w++)
            cecl_bound_free(engine->cache[s][w]);
    if (engine->done)
        engine->dev->ops->words_free(engine->dev, engine->done);
    if (engine->side)
        engine->dev->ops->stream_destroy(engine->dev, engine->side);
    free(engine->row);
    free(engine->scratch);
    free(engine->sources);
    *engine = (struct cecl_engine){0};
}

bool cecl_engine_idle(const struct cecl_engine *engine)
{
    return (int32_t)(cecl_engine_done(engine) - atomic_load(&engine->target)) >= 0;
}

/* The side lane has no word that tells how far it is: its values become earlier than the last half
 * cycle of what may be pending. What is further back may pass; the main lane, which every call ends
 * on, does not, and peers were told before. */
ceclResult_t cecl_engine_silence(struct cecl_engine *engine)
{
    if (engine->flags != CECL_FLAGS_COPY)
        return ceclSuccess; /* the values are in the stream */
    const uint32_t earlier[CECL_LANES] = {cecl_engine_done(engine) - QUARTER,
                                          atomic_load(&engine->side_target) - 2 * QUARTER + 1};
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(engine->dev->ops->words_release(engine->dev, cecl_engine_value(engine, lane, 0),
                                                 CECL_FLAG_VALUES, cecl_flag_value(earlier[lane])));
    return ceclSuccess;
}

/* More may be pending than half a cycle of flags: each time another quarter is let go. */
ceclResult_t cecl_engine_release(struct cecl_engine *engine)
{
    const uint32_t turn = atomic_fetch_add(&engine->releases, 1) + 1;
    const uint32_t targets[CECL_LANES] = {atomic_load(&engine->target),
                                          atomic_load(&engine->side_target)};
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(engine->dev->ops->words_release(
            engine->dev, cecl_engine_flag(engine, engine->rank, 0, lane), (size_t)engine->nranks,
            cecl_flag_value(targets[lane] + turn * QUARTER)));
    return ceclSuccess;
}

bool cecl_engine_is_late(const struct cecl_engine *engine, const uint32_t *rows,
                         const struct cecl_progress *progress, int rank)
{
    bool late = false;
    for (int lane = 0; lane < CECL_LANES; lane++)
        late = late || (int32_t)(rows[lane * engine->nranks + rank] - progress->flags[lane]) < 0;
    return rank != engine->rank && late;
}

ceclResult_t cecl_engine_progress(struct cecl_engine *engine, uint32_t *rows,
                                  struct cecl_progress *progress)
{
    struct cecl_device *dev = engine->dev;
    const uint32_t done = cecl_engine_done(engine);

    *progress = (struct cecl_progress){.late = -1};
    if (engine->nranks == 1)
        return ceclSuccess;
    /* What this rank last told a peer stands at that peer. */
    const int last = (engine->rank + engine->nranks - 1) % engine->nranks;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(dev->ops->words_read(dev, cecl_engine_flag(engine, last, engine->rank, lane), 1,
                                      &progress->flags[lane]));
    CECL_TRY(dev->ops->words_read(dev, cecl_engine_flag(engine, engine->rank, 0, CECL_LANE_MAIN),
                                  CECL_LANES * (size_t)engine->nranks, rows));
    progress->started = (int32_t)(progress->flags[CECL_LANE_MAIN] - cecl_flag_value(done)) > 0;
    for (int r = 0; r < engine->nranks && progress->started; r++)
        if (cecl_engine_is_late(engine, rows, progress, r)) {
            progress->nlate++;
            if (progress->late < 0)
                progress->late = r;
        }
    return ceclSuccess;
}
