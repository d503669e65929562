/* Tells whether calls are pending, and ends their waits once the communicator has failed. */
#include "flags/flags.h"

#include <sched.h>

#include "flags/awaited.h"
#include "flags/turns.h"
#include "util/clock.h"

/* A quarter of the flags' cycle, in epochs. In cyclic comparison a value counts as later if it is up to half a cycle
 * ahead. */
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

/* Overwrites a lane's values for the `count` epochs after `first` with the value for epoch `earlier`. */
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
 * each. Copies would be faster, but CUDA holds them up while the program frees memory.
 *
 * No word shows the progress of the side lane, so its pending epochs are derived from the main lane's. If more than
 * half a cycle of side epochs may be pending, some side flags may still end waits of peers. Even then no call at a peer
 * completes, because every call ends on the main lane, whose flags are all overwritten; and peers have been told of the
 * failure. */
ceclResult_t cecl_flags_silence(struct cecl_flags *flags)
{
    /* must be stored before targets are read: see cecl_flags_begin */
    atomic_store(&flags->silent, true);
    if (flags->on_host)
        return ceclSuccess; /* enqueued commands hold the values, out of reach */
    const uint32_t done = cecl_flags_epoch_done(flags),
                   side = atomic_load(&flags->target[CECL_LANE_SIDE]),
                   pending = atomic_load(&flags->target[CECL_LANE_MAIN]) - done,
                   beside = pending * atomic_load(&flags->side_a_main);
    CECL_TRY(overwrite(flags, CECL_LANE_MAIN, done, pending, done - QUARTER));
    return overwrite(flags, CECL_LANE_SIDE, side - beside, beside, side - 2 * QUARTER + 1);
}

/* Pending calls may span more than half a cycle of flags, so one write may not end all waits. Each release writes
 * values a quarter further. */
ceclResult_t cecl_flags_release(struct cecl_flags *flags)
{
    const uint32_t quarters = atomic_fetch_add(&flags->releases, 1) + 1;
    for (int lane = 0; lane < CECL_LANES; lane++)
        CECL_TRY(cecl_flags_write_row(
            flags, lane, cecl_flag_value(atomic_load(&flags->target[lane]) + quarters * QUARTER)));
    return ceclSuccess;
}

/* ---- words of captured calls */

/* Whether this rank's stream may wait for the peer: within a call, or at the start of the next call, which waits for
 * the last phase of the call before. No word of this rank shows the wait at the start, but it lasts only while the
 * peer's TURN lacks the bit of the last phase. */
static bool may_wait_for(const struct cecl_flags *flags, int peer)
{
    return cecl_turns_run(flags) || !(cecl_turns_of(flags, peer) & cecl_turns_bit(0, 1));
}

/* The number for which this rank waits at phase 1; 0: the rank is in no call. The rank's TURN has only the low bits of
 * that number. If several numbers end in these bits, each call of this function returns the next of them. */
static uint32_t awaited(struct cecl_flags *flags)
{
    const uint32_t word = cecl_turns_of(flags, flags->rank),
                   bits = word >> CECL_TURNS_SHIFT & (CECL_TURNS_NUMBERS - 1),
                   most = atomic_load(&flags->numbered),
                   tries = atomic_fetch_add(&flags->tries, 1) % (most / CECL_TURNS_NUMBERS + 1);
    return word >> 16 != 0 ? bits + tries * CECL_TURNS_NUMBERS : 0;
}

static void release_from(const struct cecl_flags *flags, int peer, uint32_t mine)
{
    struct cecl_device *dev = flags->dev;
    dev->ops->host_set_bits(dev, (uint32_t *)cecl_turns_word_of(flags, peer), CECL_TURNS_PHASES);
    if (mine != 0 && cecl_turns_call_of(flags, peer) != mine)
        dev->ops->host_write(dev, cecl_flags_word(flags, peer, peer, CECL_COUNTER_CALL), 1, mine);
}

static void release_once(struct cecl_flags *flags)
{
    const uint32_t mine = awaited(flags);
    for (int r = 0; r < flags->nranks; r++)
        if (r != flags->rank && may_wait_for(flags, r))
            release_from(flags, r, mine);
}

/* Each captured call waits for its own number, and thousands of calls may be enqueued. So one call of
 * cecl_turns_release goes on as long as waits end, but at most RELEASE_NS. */
#define RELEASE_NS 4000000
#define RELEASE_LOOKS 200

void cecl_turns_release(struct cecl_flags *flags)
{
    const int64_t end = cecl_now_ns() + RELEASE_NS;
    bool goes_on = flags->hosted != NULL;
    while (goes_on && cecl_now_ns() < end) {
        const uint32_t before = cecl_turns_of(flags, flags->rank);
        release_once(flags);
        for (int i = 0; i < RELEASE_LOOKS && cecl_turns_of(flags, flags->rank) == before; i++)
            sched_yield();
        goes_on = cecl_turns_of(flags, flags->rank) != before;
    }
}
