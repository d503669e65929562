/* What the watchdog and teardown need from flags: the progress of calls, which peer is late, and ending
 * waits once the communicator has failed. */
#include "flags/flags.h"

#include "flags/awaited.h"
#include "plan/layout.h"

/* A quarter of the flags' cycle, in epochs. Flags are compared cyclically: a value up to half a cycle ahead
 * counts as later, and any other value counts as earlier. */
#define QUARTER 0x4000u

bool cecl_flags_calls_idle(const struct cecl_flags *flags)
{
    return cecl_flags_reached(flags, cecl_flags_done_target(flags)) && !cecl_turns_run(flags);
}

bool cecl_flags_idle(const struct cecl_flags *flags)
{
    return cecl_flags_calls_idle(flags) && cecl_lines_idle(flags) && !cecl_awaited_by_graphs(flags);
}

bool cecl_flags_is_over(const struct cecl_flags *flags, uint32_t target)
{
    return cecl_flags_reached(flags, target) || cecl_flags_idle(flags);
}

bool cecl_flags_trouble(const struct cecl_flags *flags, struct cecl_splits_trouble *trouble)
{
    const _Atomic uint32_t *what = (const _Atomic uint32_t *)&flags->trouble->what;
    if (atomic_load_explicit(what, memory_order_acquire) == CECL_SPLITS_FINE)
        return false;
    *trouble = *flags->trouble;
    return true;
}

/* The main epoch up to which calls are done. `done` also counts calls without phases. This function assumes
 * that all calls without phases are done. So the result may be too low by the number of such calls that are
 * pending, but never too high. */
static uint32_t epoch_done(const struct cecl_flags *flags)
{
    return cecl_flags_done(flags) - atomic_load(&flags->unsignalled_target);
}

/* How far a peer's flags are behind this rank's signals, on the lane with the larger difference. */
static int32_t behind(const struct cecl_flags *flags, const uint32_t *rows,
                      const struct cecl_progress *progress, int rank)
{
    int32_t most = 0;
    for (int lane = 0; lane < CECL_LANES; lane++) {
        const int32_t by = (int32_t)(progress->flags[lane] - rows[lane * flags->nranks + rank]);
        most = by > most ? by : most;
    }
    return most;
}

/* Lists only the peers that are furthest behind, because a peer that is less behind may itself wait for
 * one of them. */
static void name_late_ones(const struct cecl_flags *flags, const uint32_t *rows,
                           struct cecl_progress *progress)
{
    int32_t most = 0;
    for (int r = 0; r < flags->nranks; r++) {
        const int32_t by = r == flags->rank ? 0 : behind(flags, rows, progress, r);
        if (by > most)
            progress->late = (struct cecl_rank_set){{0}};
        most = by > most ? by : most;
        if (by > 0 && by == most)
            cecl_rank_set_add(&progress->late, r);
    }
}

ceclResult_t cecl_flags_read(const struct cecl_flags *flags, const uint32_t *words, size_t count,
                             uint32_t *out)
{
    if (!flags->on_host)
        return flags->dev->ops->words_read(flags->dev, words, count, out);
    for (size_t i = 0; i < count; i++)
        out[i] = atomic_load((const _Atomic uint32_t *)&words[i]);
    return ceclSuccess;
}

ceclResult_t cecl_flags_write_row(const struct cecl_flags *flags, int lane, uint32_t value)
{
    const struct cecl_device_ops *ops = flags->dev->ops;
    uint32_t *row = cecl_flags_word(flags, flags->rank, 0, lane);
    if (!flags->on_host)
        return ops->words_release(flags->dev, row, (size_t)flags->nranks, value);
    ops->host_write(flags->dev, row, (size_t)flags->nranks, value);
    return ceclSuccess;
}

ceclResult_t cecl_flags_progress(const struct cecl_flags *flags, struct cecl_progress *progress)
{
    uint32_t rows[CECL_LANES * CECL_MAX_RANKS]; /* what peers have signalled to this rank */
    const uint32_t done = epoch_done(flags);

    *progress = (struct cecl_progress){.started = false};
    if (flags->nranks == 1)
        return ceclSuccess;
    /* Reads this rank's last signals from the words in which peers receive them. */
    const int last = (flags->rank + flags->nranks - 1) % flags->nranks;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(cecl_flags_read(flags, cecl_flags_word(flags, last, flags->rank, lane), 1,
                                 &progress->flags[lane]));
    CECL_TRY(cecl_flags_read(flags, cecl_flags_word(flags, flags->rank, 0, CECL_LANE_MAIN),
                             CECL_LANES * (size_t)flags->nranks, rows));
    progress->started = (int32_t)(progress->flags[CECL_LANE_MAIN] - cecl_flag_value(done)) > 0;
    if (progress->started)
        name_late_ones(flags, rows, progress);
    return ceclSuccess;
}

/* Overwrites a lane's values for the `count` epochs after `first`. They get the value for epoch `earlier`. */
static ceclResult_t overwrite(const struct cecl_flags *flags, int lane, uint32_t first,
                              uint32_t count, uint32_t earlier)
{
    uint32_t left = count < CECL_FLAG_VALUES ? count : CECL_FLAG_VALUES;
    while (left > 0) {
        const uint32_t at = (first + 1) % CECL_FLAG_VALUES;
        const uint32_t run = left < CECL_FLAG_VALUES - at ? left : CECL_FLAG_VALUES - at;
        CECL_TRY(flags->dev->ops->words_release(flags->dev, cecl_flags_source(flags, lane, at), run,
                                                cecl_flag_value(earlier)));
        first += run;
        left -= run;
    }
    return ceclSuccess;
}

/* Overwrites only the values that pending calls may copy, by stream memory operations, which take about 1 us
 * each. Copies would be faster, but they are held up while the program frees memory.
 *
 * No word shows the progress of the side lane, so its pending epochs are derived from those of the main
 * lane. If more than half a cycle of side epochs may be pending, some side flags may still end waits of
 * peers. This does no harm: main flags end no wait, every call ends on the main lane, and peers have been
 * told of the failure. */
ceclResult_t cecl_flags_silence(struct cecl_flags *flags)
{
    /* must be stored before targets are read: see cecl_flags_begin */
    atomic_store(&flags->silent, true);
    if (flags->on_host)
        return ceclSuccess; /* the values are in the stream */
    const uint32_t done = epoch_done(flags), side = atomic_load(&flags->target[CECL_LANE_SIDE]),
                   pending = atomic_load(&flags->target[CECL_LANE_MAIN]) - done,
                   beside = pending * atomic_load(&flags->side_a_main);
    CECL_TRY(overwrite(flags, CECL_LANE_MAIN, done, pending, done - QUARTER));
    return overwrite(flags, CECL_LANE_SIDE, side - beside, beside, side - 2 * QUARTER + 1);
}

/* Pending calls may span more than half a cycle of flags, so each release adds another quarter. */
ceclResult_t cecl_flags_release(struct cecl_flags *flags)
{
    const uint32_t quarters = atomic_fetch_add(&flags->releases, 1) + 1;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(cecl_flags_write_row(
            flags, lane, cecl_flag_value(atomic_load(&flags->target[lane]) + quarters * QUARTER)));
    return ceclSuccess;
}
