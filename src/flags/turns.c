/* The words of captured calls; see turns.h. */
#include "flags/turns.h"

#include <sched.h>

#include "flags/flags.h"
#include "util/clock.h"

void cecl_turns_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    flags->counters[CECL_COUNTER_REPLAY] =
        (struct cecl_counter){.words = (char *)flags->replay, .own = true, .unit = 1};
    if (!hosted)
        return;
    flags->counters[CECL_COUNTER_TURN] =
        (struct cecl_counter){.words = (char *)cecl_hosted_turn(hosted, 0),
                              .apart = hosted->apart,
                              .own = true,
                              .replay = CECL_REPLAY_BITS,
                              .unit = 1};
    flags->counters[CECL_COUNTER_CALL] =
        (struct cecl_counter){.words = (char *)(cecl_hosted_turn(hosted, 0) + 1),
                              .apart = hosted->apart,
                              .own = true,
                              .replay = CECL_REPLAY_SAME,
                              .unit = 1};
    atomic_store((_Atomic uint32_t *)cecl_hosted_turn(hosted, flags->rank), cecl_turns_bit(0, 1));
}

struct cecl_meeting cecl_turns_meeting(const struct cecl_flags *flags)
{
    struct cecl_meeting meeting = cecl_flags_meeting(flags, CECL_LANE_MAIN);
    meeting.does = CECL_MEET_DONE;
    meeting.row = cecl_pads_row(flags, flags->rank);
    meeting.word = cecl_pads_row(flags, 0) + flags->rank;
    meeting.apart = flags->pool->slice;
    meeting.done = flags->replay;
    meeting.done_value = CECL_REPLAY_ENDED;
    return meeting;
}

_Static_assert(CECL_NUMBERINGS == 2, "cecl_hosted_count_words has so many for each rank");

static uint64_t *counts_of(const struct cecl_flags *flags, int holder, enum cecl_numbering kind)
{
    return cecl_hosted_counts(flags->hosted, holder) + (int)kind * flags->nranks;
}

struct cecl_counting cecl_turns_counting(const struct cecl_flags *flags, enum cecl_numbering kind,
                                         uint32_t number)
{
    return (struct cecl_counting){.count = cecl_pads_count(flags, kind),
                                  .number = number,
                                  .told = counts_of(flags, 0, kind) + flags->rank,
                                  .told_apart = flags->hosted->apart,
                                  .begun_value = CECL_REPLAY_BEGUN};
}

/* What rank `writer` has written for its latest captured call of this kind, as far as this rank knows: how many there
 * were, and the call's number among all captured ones. */
struct told {
    uint32_t count, number;
};
static struct told told_by(const struct cecl_flags *flags, int kind, int writer)
{
    const uint64_t *words = counts_of(flags, flags->rank, (enum cecl_numbering)kind),
                   word = atomic_load_explicit((const _Atomic uint64_t *)&words[writer],
                                               memory_order_acquire);
    return (struct told){(uint32_t)word, (uint32_t)(word >> 32)};
}

/* The number of a captured call of one kernel that rank `ahead` has begun, and rank `behind` has not; 0: none. */
static uint32_t ahead_by(const struct cecl_flags *flags, int ahead, int behind)
{
    for (int kind = 0; kind < CECL_NUMBERINGS; kind++) {
        const struct told a = told_by(flags, kind, ahead), b = told_by(flags, kind, behind);
        if ((int32_t)(a.count - b.count) > 0)
            return a.number;
    }
    return 0;
}

static _Atomic uint32_t *word_of(const struct cecl_flags *flags, int rank)
{
    return (_Atomic uint32_t *)cecl_flags_word(flags, rank, rank, CECL_COUNTER_TURN);
}

static uint32_t turn_of(const struct cecl_flags *flags, int rank)
{
    return atomic_load_explicit(word_of(flags, rank), memory_order_acquire) & ~CECL_TURNS_SEEN;
}

/* The number of the captured call that a rank is in, between its first phase and its last one; 0: in none. */
static uint32_t call_of(const struct cecl_flags *flags, int rank)
{
    return cecl_word_read(cecl_flags_word(flags, rank, rank, CECL_COUNTER_CALL));
}

/* Or this rank has signalled a phase of a captured call, and not yet its last one. */
bool cecl_turns_run(const struct cecl_flags *flags)
{
    const uint32_t state = cecl_word_read(flags->replay);
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN ||
           (flags->hosted && turn_of(flags, flags->rank) >> 16 != 0);
}

uint32_t cecl_turns_sum(const struct cecl_flags *flags)
{
    uint32_t sum = 0;
    for (int r = 0; r < flags->nranks && flags->hosted; r++) {
        sum = (sum * 31 + turn_of(flags, r)) * 31 + call_of(flags, r);
        for (int kind = 0; kind < CECL_NUMBERINGS; kind++)
            sum = sum * 31 + told_by(flags, kind, r).count;
    }
    return sum;
}

/* Whether a peer has signalled fewer phases than this rank. The difference is less than half of a cycle. */
static bool lags(const struct cecl_flags *flags, int peer)
{
    return flags->hosted &&
           (int16_t)((turn_of(flags, flags->rank) >> 16) - (turn_of(flags, peer) >> 16)) > 0;
}

/* Whether a peer is behind this rank in the phases of captured calls. */
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
        !(atomic_fetch_or(word_of(flags, flags->rank), CECL_TURNS_SEEN) & CECL_TURNS_SEEN);
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

/* Whether this rank's stream may wait for the peer: in a call that runs, or at the beginning of the next one for the
 * last phase of the call before. Such a wait is not seen, because no phase was signalled; but the peer's word shows
 * that the wait would not end. */
static bool may_wait_for(const struct cecl_flags *flags, int peer)
{
    return cecl_turns_run(flags) || !(turn_of(flags, peer) & cecl_turns_bit(0, 1));
}

/* The number for which this rank waits at phase 1; 0: in no call. Of the number the rank's word has only some bits, so if
 * there are more numbers, one call after the other returns all that have these bits. */
static uint32_t awaited(struct cecl_flags *flags)
{
    const uint32_t word = turn_of(flags, flags->rank),
                   bits = word >> CECL_TURNS_SHIFT & (CECL_TURNS_NUMBERS - 1),
                   most = atomic_load(&flags->numbered),
                   tries = atomic_fetch_add(&flags->tries, 1) % (most / CECL_TURNS_NUMBERS + 1);
    return word >> 16 != 0 ? bits + tries * CECL_TURNS_NUMBERS : 0;
}

static void release_from(const struct cecl_flags *flags, int peer, uint32_t mine)
{
    struct cecl_device *dev = flags->dev;
    dev->ops->host_set_bits(dev, (uint32_t *)word_of(flags, peer), CECL_TURNS_PHASES);
    if (mine != 0 && call_of(flags, peer) != mine)
        dev->ops->host_write(dev, cecl_flags_word(flags, peer, peer, CECL_COUNTER_CALL), 1, mine);
}

static void release_once(struct cecl_flags *flags)
{
    const uint32_t mine = awaited(flags);
    for (int r = 0; r < flags->nranks; r++)
        if (r != flags->rank && may_wait_for(flags, r))
            release_from(flags, r, mine);
}

/* Each call waits for a number of its own, and thousands may be enqueued. So this goes on as long as one wait after
 * the other ends, for a few ms. */
#define RELEASE_NS 4000000
#define RELEASE_LOOKS 200

void cecl_turns_release(struct cecl_flags *flags)
{
    const int64_t end = cecl_now_ns() + RELEASE_NS;
    bool goes_on = flags->hosted != NULL;
    while (goes_on && cecl_now_ns() < end) {
        const uint32_t before = turn_of(flags, flags->rank);
        release_once(flags);
        for (int i = 0; i < RELEASE_LOOKS && turn_of(flags, flags->rank) == before; i++)
            sched_yield();
        goes_on = turn_of(flags, flags->rank) != before;
    }
}

/* ---- different calls
 *
 * A rank's calls follow each other, so its counts of calls of one kernel only change between its calls with phases. A
 * rank at phase 1 has done all calls before this one, and no peer can end this call meanwhile. If such a rank has begun
 * fewer calls of one kernel than a peer, then it has another call where the peer has that one. */

static bool is_at_first(const struct cecl_flags *flags, int rank)
{
    const uint32_t word = turn_of(flags, rank);
    return word >> 16 != 0 && (word & CECL_TURNS_PHASES) == cecl_turns_bit(0, 1);
}

static bool runs_kernel(const struct cecl_flags *flags)
{
    return cecl_word_read(flags->replay) == CECL_REPLAY_SEEN;
}

/* This rank is in a call with phases. The rank's own word must not have changed meanwhile, which the mark in it
 * shows. */
static bool differs_in_phases(const struct cecl_flags *flags, int peer,
                              struct cecl_turns_difference *found)
{
    found->mine = call_of(flags, flags->rank);
    found->theirs = call_of(flags, peer);
    if (found->theirs == 0 && is_at_first(flags, flags->rank))
        found->theirs = ahead_by(flags, peer, flags->rank);
    return found->theirs != 0 && found->theirs != found->mine &&
           atomic_load(word_of(flags, flags->rank)) & CECL_TURNS_SEEN &&
           call_of(flags, flags->rank) == found->mine;
}

/* This rank is in a call of one kernel, since before the peer's words are read. */
static bool differs_in_kernels(const struct cecl_flags *flags, int peer,
                               struct cecl_turns_difference *found)
{
    const bool is_at_phase = is_at_first(flags, peer);
    const uint32_t at = call_of(flags, peer);
    found->mine = ahead_by(flags, flags->rank, peer);
    found->theirs = is_at_phase ? at : ahead_by(flags, peer, flags->rank);
    return found->mine != 0 && found->theirs != 0 && runs_kernel(flags);
}

/* Whether the same count means different calls here and at the peer. */
static bool differs_in_number(const struct cecl_flags *flags, int peer,
                              struct cecl_turns_difference *found)
{
    for (int kind = 0; kind < CECL_NUMBERINGS; kind++) {
        const struct told mine = told_by(flags, kind, flags->rank),
                          theirs = told_by(flags, kind, peer);
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
        if (call_of(flags, flags->rank) != 0
                ? differs_in_phases(flags, r, difference)
                : runs_kernel(flags) && differs_in_kernels(flags, r, difference))
            return true;
        if (differs_in_number(flags, r, difference))
            return true;
    }
    return false;
}
