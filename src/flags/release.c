/* What the watchdog and teardown need from flags: how far calls are, which peer is late, and how to
 * end waits once the communicator has failed. */
#include "flags/flags.h"

/* A quarter of the flags' cycle. Half of the cycle counts as later, the other half as earlier. */
#define QUARTER 0x4000u

/* So many epochs beyond the last call are silenced with it: a call, or a group of them, may be
 * enqueued while the watchdog works. */
#define AHEAD 512u

bool cecl_flags_idle(const struct cecl_flags *flags)
{
    return cecl_flags_reached(flags, cecl_flags_done_target(flags));
}

/* The main epoch up to which calls are done. Pending calls without phases are counted as done
 * before all others. So the epoch may be too early by the number of these calls, and is never too
 * late. */
static uint32_t epoch_done(const struct cecl_flags *flags)
{
    return cecl_flags_done(flags) - atomic_load(&flags->unsignalled_target);
}

/* By how much a peer's flags are behind what this rank signalled: the larger value of both lanes. */
static int32_t behind(const struct cecl_flags *flags, const uint32_t *rows,
                      const struct cecl_progress *progress, int rank)
{
    int32_t most = 0;
    for (int lane = 0; lane < CECL_LANES && rank != flags->rank; lane++) {
        const int32_t by = (int32_t)(progress->flags[lane] - rows[lane * flags->nranks + rank]);
        most = by > most ? by : most;
    }
    return most;
}

bool cecl_flags_is_late(const struct cecl_flags *flags, const uint32_t *rows,
                        const struct cecl_progress *progress, int rank)
{
    return behind(flags, rows, progress, rank) > 0;
}

/* A peer that is a little behind may itself wait for the one that is furthest behind. */
static void name_late_ones(const struct cecl_flags *flags, const uint32_t *rows,
                           struct cecl_progress *progress)
{
    int32_t most = 0;
    for (int r = 0; r < flags->nranks; r++) {
        const int32_t by = behind(flags, rows, progress, r);
        if (by > most) {
            most = by;
            progress->late = r;
            progress->nlate = 0;
        }
        progress->nlate += by > 0 && by == most;
    }
}

ceclResult_t cecl_flags_progress(const struct cecl_flags *flags, uint32_t *rows,
                                 struct cecl_progress *progress)
{
    struct cecl_device *dev = flags->dev;
    const uint32_t done = epoch_done(flags);

    *progress = (struct cecl_progress){.late = -1};
    if (flags->nranks == 1)
        return ceclSuccess;
    /* A peer holds the flag that this rank last signalled to it. */
    const int last = (flags->rank + flags->nranks - 1) % flags->nranks;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(dev->ops->words_read(dev, cecl_flags_word(flags, last, flags->rank, lane), 1,
                                      &progress->flags[lane]));
    CECL_TRY(dev->ops->words_read(dev, cecl_flags_word(flags, flags->rank, 0, CECL_LANE_MAIN),
                                  CECL_LANES * (size_t)flags->nranks, rows));
    progress->started = (int32_t)(progress->flags[CECL_LANE_MAIN] - cecl_flag_value(done)) > 0;
    if (progress->started)
        name_late_ones(flags, rows, progress);
    return ceclSuccess;
}

/* Overwrites the values of epochs after `first`, `count` of them, in a lane's table. */
static ceclResult_t overwrite(const struct cecl_flags *flags, int lane, uint32_t first,
                              uint32_t count, uint32_t value)
{
    const struct cecl_device_ops *ops = flags->dev->ops;
    while (count > 0) {
        const uint32_t at = (first + 1) % CECL_FLAG_VALUES;
        const uint32_t run = count < CECL_FLAG_VALUES - at ? count : CECL_FLAG_VALUES - at;
        CECL_TRY(ops->words_overwrite(flags->dev, cecl_flags_source(flags, lane, at), run, value));
        first += run;
        count -= run;
    }
    return ceclSuccess;
}

/* Silences the epochs of a lane up to `end`, from where the last call came to, or from `first` on.
 * Their values become that of an `earlier` epoch. */
static ceclResult_t silence_lane(struct cecl_flags *flags, int lane, uint32_t first, uint32_t end,
                                 uint32_t earlier)
{
    const uint32_t begin = flags->silent ? flags->silent_to[lane] : first, count = end - begin;
    if (flags->silent && (int32_t)count < (int32_t)(AHEAD / 2))
        return ceclSuccess;
    CECL_TRY(overwrite(flags, lane, begin, count < CECL_FLAG_VALUES ? count : CECL_FLAG_VALUES,
                       cecl_flag_value(earlier)));
    flags->silent_to[lane] = end;
    return ceclSuccess;
}

/* Writes only the values that pending calls may copy: a stream memory operation takes about 1 us, and
 * copies, which are faster, are held up while the program frees memory.
 *
 * No word says how far the side lane is, so its pending epochs follow from those of the main lane. Its
 * values become earlier than the last half cycle of what may be pending. Side flags further back may
 * still end waits of peers. That does no harm: main flags end no wait, every call ends on the main
 * lane, and peers were notified of the failure before. */
ceclResult_t cecl_flags_silence(struct cecl_flags *flags)
{
    if (flags->way != CECL_FLAGS_COPY)
        return ceclSuccess; /* the values are in the stream */
    const uint32_t done = epoch_done(flags), main = atomic_load(&flags->target[CECL_LANE_MAIN]),
                   side = atomic_load(&flags->target[CECL_LANE_SIDE]),
                   pending = (main - done) * atomic_load(&flags->side_a_main);
    CECL_TRY(silence_lane(flags, CECL_LANE_MAIN, done, main + AHEAD, done - QUARTER));
    CECL_TRY(silence_lane(flags, CECL_LANE_SIDE, side - pending, side + AHEAD,
                          side + AHEAD - 2 * QUARTER + 1));
    flags->silent = true;
    return ceclSuccess;
}

/* More calls may be pending than half a cycle of flags, so each release moves on by another
 * quarter. */
ceclResult_t cecl_flags_release(struct cecl_flags *flags)
{
    const uint32_t quarters = atomic_fetch_add(&flags->releases, 1) + 1;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(flags->dev->ops->words_release(
            flags->dev, cecl_flags_word(flags, flags->rank, 0, lane), (size_t)flags->nranks,
            cecl_flag_value(atomic_load(&flags->target[lane]) + quarters * QUARTER)));
    return ceclSuccess;
}
