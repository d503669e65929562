/* Making and ending flags: their memory, the table from which they are copied, and the addresses of words. */
#include "flags/flags.h"

#include "flags/awaited.h"
#include "plan/layout.h"
#include "util/grow.h"

void cecl_flags_describe(struct cecl_flags *flags, char *rows, uint64_t apart)
{
    for (int lane = 0; lane < CECL_LANES; lane++)
        flags->counters[lane] =
            (struct cecl_counter){.words = rows + (size_t)(lane * flags->nranks) * sizeof(uint32_t),
                                  .apart = apart,
                                  .unit = cecl_flag_value(1)};
    flags->counters[CECL_COUNTER_SLOTS] =
        (struct cecl_counter){.replay = CECL_REPLAY_KERNEL, .unit = 1};
    flags->counters[CECL_COUNTER_DONE] =
        (struct cecl_counter){.words = (char *)flags->done, .own = true, .unit = 1};
}

/* ---- the trial of copied flags, at init. If copies between two GPUs got lost, a call's first signal would not arrive.
 * Then the watchdog would not see that the call has begun, and the call would have no time limit. */

#define TRIED cecl_flag_value(CECL_FIRST_EPOCH - 1)

/* Copies a flag to every peer, and waits until the copies are done. */
static ceclResult_t send_trial(const struct cecl_flags *flags, ceclStream_t stream)
{
    struct cecl_device *dev = flags->dev;
    void *src = cecl_flags_source(flags, CECL_LANE_MAIN, CECL_FIRST_EPOCH - 1);
    size_t bytes = sizeof(uint32_t);
    ceclResult_t result = ceclSuccess;

    for (int i = 1; i < flags->nranks && result == ceclSuccess; i++) {
        const int peer = (flags->rank + i) % flags->nranks;
        void *dst = cecl_flags_word(flags, peer, flags->rank, CECL_LANE_MAIN);
        const struct cecl_batch batch = {&dst, &src, &bytes, 1, false};
        result = dev->ops->copies(dev, stream, &batch);
    }
    const ceclResult_t waited = dev->ops->stream_synchronize(dev, stream);
    return result != ceclSuccess ? result : waited;
}

/* Checks that the flags of all peers have arrived. */
static ceclResult_t check_trial(const struct cecl_flags *flags)
{
    uint32_t row[CECL_MAX_RANKS];
    ceclResult_t result = cecl_flags_read(
        flags, cecl_flags_word(flags, flags->rank, 0, CECL_LANE_MAIN), (size_t)flags->nranks, row);
    for (int r = 0; r < flags->nranks && result == ceclSuccess; r++)
        if (r != flags->rank && row[r] != TRIED)
            result = cecl_fail(ceclUnhandledCudaError,
                               "a flag that rank %d copied to rank %d did not arrive: %#x instead "
                               "of %#x; do copies between their GPUs work?",
                               r, flags->rank, (unsigned)row[r], (unsigned)TRIED);
    return result;
}

/* ---- opening and closing */

static ceclResult_t copy_table(const struct cecl_flags *flags, void *dst, const void *src,
                               size_t bytes, ceclStream_t stream)
{
    struct cecl_device *dev = flags->dev;
    const ceclResult_t result = dev->ops->memcpy_async(dev, dst, src, bytes, stream),
                       waited = dev->ops->stream_synchronize(dev, stream);
    return result != ceclSuccess ? result : waited;
}

static ceclResult_t write_values(const struct cecl_flags *flags, ceclStream_t stream)
{
    const size_t bytes = CECL_LANES * CECL_FLAG_VALUES * sizeof(uint32_t);
    CECL_OWNED uint32_t *values = malloc(bytes);
    if (!values)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu bytes of flags", bytes);
    for (uint32_t i = 0; i < CECL_LANES * CECL_FLAG_VALUES; i++)
        values[i] = cecl_flag_value(i % CECL_FLAG_VALUES);
    return copy_table(flags, cecl_flags_source(flags, 0, 0), values, bytes, stream);
}

/* Writes the table of slices, which only this rank reads. */
static ceclResult_t write_slices(const struct cecl_flags *flags, ceclStream_t stream)
{
    char *slices[CECL_MAX_RANKS];
    for (int r = 0; r < flags->nranks; r++)
        slices[r] = cecl_pool_at(flags->pool, r, 0);
    return copy_table(flags, slices[flags->rank] + flags->slices_offset, slices,
                      (size_t)flags->nranks * sizeof(char *), stream);
}

/* Collective. Writes the tables, and makes the trial of copied flags. */
static ceclResult_t begin_tables(const struct cecl_flags *flags)
{
    struct cecl_device *dev = flags->dev;
    ceclStream_t stream = NULL;
    ceclResult_t result = dev->ops->stream_create(dev, false, &stream);

    if (result == ceclSuccess)
        result = write_values(flags, stream);
    if (result == ceclSuccess)
        result = write_slices(flags, stream);
    if (result == ceclSuccess && !flags->on_host)
        result = send_trial(flags, stream);
    if (stream)
        dev->ops->stream_destroy(dev, stream);
    CECL_TRY(cecl_pool_agree(flags->pool, result));
    return flags->on_host ? ceclSuccess : cecl_pool_agree(flags->pool, check_trial(flags));
}

static ceclResult_t make_host_words(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    const size_t trouble = 3, lines = trouble + CECL_SPLITS_TROUBLE_WORDS,
                 awaited = lines + CECL_LINES;
    CECL_TRY(flags->dev->ops->words_alloc(
        flags->dev, awaited + cecl_awaited_own_words(flags->nranks), &flags->done));
    flags->late = flags->done + 1;
    flags->replay = flags->done + 2;
    flags->trouble = (struct cecl_splits_trouble *)(flags->done + trouble);
    flags->counters[CECL_COUNTER_DONE].words = (char *)flags->done;
    cecl_lines_describe(flags, flags->done + lines);
    return cecl_awaited_describe(flags, hosted, flags->done + awaited);
}

/* Collective. Sets flags to the first value, and clears pads, on every rank before any rank may write to them. */
static ceclResult_t clear_flags(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    ceclResult_t result = ceclSuccess;
    for (int lane = 0; lane < CECL_LANES && result == ceclSuccess; lane++)
        result = cecl_flags_write_row(flags, lane, cecl_flag_value(CECL_FIRST_EPOCH));
    if (result == ceclSuccess)
        result = cecl_pads_clear(flags);
    if (result == ceclSuccess)
        result = make_host_words(flags, hosted);
    flags->hosted = hosted->words ? hosted : NULL;
    if (result == ceclSuccess)
        cecl_turns_describe(flags, flags->hosted);
    return cecl_pool_agree(flags->pool, result);
}

static ceclResult_t take_rows(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    struct cecl_pool *pool = flags->pool;
    uint64_t offset;
    if (hosted) {
        cecl_flags_describe(flags, hosted->words, hosted->apart);
        return ceclSuccess;
    }
    CECL_TRY(cecl_pool_alloc_kept(pool, CECL_LANES * (uint64_t)pool->nranks * sizeof(uint32_t),
                                  &offset));
    cecl_flags_describe(flags, cecl_pool_at(pool, 0, offset), pool->slice);
    return ceclSuccess;
}

static ceclResult_t take_memory(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    struct cecl_pool *pool = flags->pool;
    CECL_TRY(take_rows(flags, hosted));
    CECL_TRY(cecl_pool_alloc_kept(pool, CECL_LANES * CECL_FLAG_VALUES * sizeof(uint32_t),
                                  &flags->values_offset));
    CECL_TRY(cecl_pool_alloc_kept(pool, cecl_pads_bytes(pool->nranks), &flags->pads_offset));
    return cecl_pool_alloc_kept(pool, (uint64_t)pool->nranks * sizeof(char *),
                                &flags->slices_offset);
}

ceclResult_t cecl_flags_open(struct cecl_flags *flags, struct cecl_pool *pool,
                             const struct cecl_hosted *hosted, bool on_host)
{
    *flags = (struct cecl_flags){.dev = pool->dev,
                                 .pool = pool,
                                 .rank = pool->rank,
                                 .nranks = pool->nranks,
                                 .on_host = on_host};
    CECL_TRY(take_memory(flags, on_host ? hosted : NULL));
    CECL_TRY(clear_flags(flags, hosted));
    CECL_TRY(begin_tables(flags));
    for (int counter = 0; counter < CECL_COUNTERS; counter++)
        flags->epoch[counter] =
            counter == CECL_COUNTER_SLOTS || counter >= CECL_COUNTER_LINE ? 0 : CECL_FIRST_EPOCH;
    for (int lane = 0; lane < CECL_LANES; lane++) {
        atomic_store(&flags->target[lane], CECL_FIRST_EPOCH);
        if (!on_host)
            flags->counters[lane].values = cecl_flags_source(flags, lane, 0);
    }
    atomic_store((_Atomic uint32_t *)flags->done, CECL_FIRST_EPOCH);
    /* Now each flag has the value of CECL_FIRST_EPOCH or, from the trial, of the epoch before. Waits are for later
     * values, so only a peer's signal ends them. */
    return ceclSuccess;
}

void cecl_flags_close(struct cecl_flags *flags)
{
    if (flags->done)
        flags->dev->ops->words_free(flags->dev, flags->done);
    cecl_awaited_forget(flags);
    *flags = (struct cecl_flags){0};
}
