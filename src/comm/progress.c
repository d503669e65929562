/* See progress.h. */
#include "comm/progress.h"

#include "plan/layout.h"

/* ---- collectives */

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

/* Puts only the peers that are furthest behind into progress->late, because any other peer may itself wait for one of
 * these. */
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

ceclResult_t cecl_flags_progress(const struct cecl_flags *flags, struct cecl_progress *progress)
{
    uint32_t rows[CECL_LANES * CECL_MAX_RANKS]; /* what peers have signalled to this rank */
    const uint32_t done = cecl_flags_epoch_done(flags);

    *progress = (struct cecl_progress){.started = false};
    if (flags->nranks == 1)
        return ceclSuccess;
    /* Reads this rank's last signals where a peer receives them. */
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

/* ---- captured calls */

/* The number of a captured call of one kernel that rank `ahead` has begun and rank `behind` has not; 0: there is
 * none. */
static uint32_t ahead_by(const struct cecl_flags *flags, int ahead, int behind)
{
    for (int kind = 0; kind < CECL_NUMBERINGS; kind++) {
        const struct cecl_turns_told a = cecl_turns_told(flags, kind, ahead),
                                     b = cecl_turns_told(flags, kind, behind);
        if ((int32_t)(a.count - b.count) > 0)
            return a.number;
    }
    return 0;
}

uint32_t cecl_turns_sum(const struct cecl_flags *flags)
{
    uint32_t sum = 0;
    for (int r = 0; r < flags->nranks && flags->hosted; r++) {
        sum = (sum * 31 + cecl_turns_of(flags, r)) * 31 + cecl_turns_call_of(flags, r);
        for (int kind = 0; kind < CECL_NUMBERINGS; kind++)
            sum = sum * 31 + cecl_turns_told(flags, kind, r).count;
    }
    return sum;
}

/* Whether a peer has signalled fewer phases than this rank. The counts of phases wrap around; those of two ranks
 * differ by less than half of their range. */
static bool lags(const struct cecl_flags *flags, int peer)
{
    return flags->hosted && (int16_t)((cecl_turns_of(flags, flags->rank) >> 16) -
                                      (cecl_turns_of(flags, peer) >> 16)) > 0;
}

/* Whether any peer is behind this rank in the phases of captured calls. */
static bool any_lags(const struct cecl_flags *flags)
{
    for (int r = 0; r < flags->nranks; r++)
        if (lags(flags, r))
            return true;
    return false;
}

bool cecl_turns_go_on(const struct cecl_flags *flags)
{
    uint32_t begun = CECL_REPLAY_BEGUN;
    if (!cecl_turns_run(flags) && !any_lags(flags))
        return true;
    const bool signalled =
        flags->hosted &&
        !(atomic_fetch_or(cecl_turns_word_of(flags, flags->rank), CECL_TURNS_SEEN) &
          CECL_TURNS_SEEN);
    return atomic_compare_exchange_strong((_Atomic uint32_t *)flags->replay, &begun,
                                          CECL_REPLAY_SEEN) ||
           signalled;
}

void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_set *late)
{
    for (int r = 0; r < flags->nranks && flags->hosted; r++)
        if (r != flags->rank && (ahead_by(flags, flags->rank, r) || lags(flags, r)))
            cecl_rank_set_add(late, r);
}

/* ---- different calls
 *
 * Each rank counts its captured calls that are one kernel. If this rank is at phase 1 of a call with phases, it has
 * counted all one-kernel calls before that call, and no peer can pass phase 1 yet. So a peer that has counted more has
 * made a one-kernel call in place of that call. */

static bool is_at_first(const struct cecl_flags *flags, int rank)
{
    const uint32_t word = cecl_turns_of(flags, rank);
    return word >> 16 != 0 && (word & CECL_TURNS_PHASES) == cecl_turns_bit(0, 1);
}

static bool runs_kernel(const struct cecl_flags *flags)
{
    return cecl_word_read(flags->replay) == CECL_REPLAY_SEEN;
}

/* Called while this rank is in a call with phases. Returns true if a peer is in another call, and this rank's own word
 * has not changed while this function read: a change would have removed the watchdog's mark from the word. */
static bool differs_in_phases(const struct cecl_flags *flags, int peer,
                              struct cecl_turns_difference *found)
{
    found->mine = cecl_turns_call_of(flags, flags->rank);
    found->theirs = cecl_turns_call_of(flags, peer);
    if (found->theirs == 0 && is_at_first(flags, flags->rank))
        found->theirs = ahead_by(flags, peer, flags->rank);
    return found->theirs != 0 && found->theirs != found->mine &&
           atomic_load(cecl_turns_word_of(flags, flags->rank)) & CECL_TURNS_SEEN &&
           cecl_turns_call_of(flags, flags->rank) == found->mine;
}

/* Called after this rank was found to be in a call of one kernel. Returns true if the peer is in another call, and
 * this rank is still in its own. */
static bool differs_in_kernels(const struct cecl_flags *flags, int peer,
                               struct cecl_turns_difference *found)
{
    const bool is_at_phase = is_at_first(flags, peer);
    const uint32_t at = cecl_turns_call_of(flags, peer);
    found->mine = ahead_by(flags, flags->rank, peer);
    found->theirs = is_at_phase ? at : ahead_by(flags, peer, flags->rank);
    return found->mine != 0 && found->theirs != 0 && runs_kernel(flags);
}

/* Whether this rank and the peer have made equally many calls of one kernel, but their last ones differ. */
static bool differs_in_number(const struct cecl_flags *flags, int peer,
                              struct cecl_turns_difference *found)
{
    for (int kind = 0; kind < CECL_NUMBERINGS; kind++) {
        const struct cecl_turns_told mine = cecl_turns_told(flags, kind, flags->rank),
                                     theirs = cecl_turns_told(flags, kind, peer);
        found->mine = mine.number;
        found->theirs = theirs.number;
        if (mine.count == theirs.count && mine.number != theirs.number)
            return true;
    }
    return false;
}

bool cecl_turns_differ(const struct cecl_flags *flags, struct cecl_turns_difference *difference)
{
    for (int r = 0; r < flags->nranks && flags->hosted; r++) {
        difference->rank = r;
        if (r == flags->rank)
            continue;
        if (cecl_turns_call_of(flags, flags->rank) != 0
                ? differs_in_phases(flags, r, difference)
                : runs_kernel(flags) && differs_in_kernels(flags, r, difference))
            return true;
        if (differs_in_number(flags, r, difference))
            return true;
    }
    return false;
}
