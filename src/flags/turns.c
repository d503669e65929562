/* The words of captured calls; see turns.h. */
#include "flags/turns.h"

#include "flags/pads.h"

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

static uint32_t *counts_of(const struct cecl_flags *flags, int holder, enum cecl_numbering kind)
{
    return cecl_hosted_counts(flags->hosted, holder) + (int)kind * flags->nranks;
}

struct cecl_counting cecl_turns_counting(const struct cecl_flags *flags, enum cecl_numbering kind)
{
    return (struct cecl_counting){.count = cecl_pads_count(flags, kind),
                                  .told = counts_of(flags, 0, kind) + flags->rank,
                                  .told_apart = flags->hosted->apart,
                                  .begun_value = CECL_REPLAY_BEGUN};
}

/* The last number that rank `writer` has written for captured calls of this kind, as far as this rank
 * knows. */
static uint32_t count_of(const struct cecl_flags *flags, int kind, int writer)
{
    const uint32_t *words = counts_of(flags, flags->rank, (enum cecl_numbering)kind);
    return atomic_load_explicit((const _Atomic uint32_t *)&words[writer], memory_order_acquire);
}

/* Whether a peer is behind this rank in captured calls of one kernel, that is, has written a lower number. */
static bool is_behind(const struct cecl_flags *flags, int peer)
{
    for (int kind = 0; kind < CECL_NUMBERINGS; kind++)
        if ((int32_t)(count_of(flags, kind, flags->rank) - count_of(flags, kind, peer)) > 0)
            return true;
    return false;
}

static bool is_of_node(const struct cecl_flags *flags, int rank)
{
    const struct cecl_nodes *nodes = flags->nodes;
    return flags->hosted && (!nodes || nodes->node[rank] == nodes->node[flags->rank]);
}

static _Atomic uint32_t *word_of(const struct cecl_flags *flags, int rank)
{
    return (_Atomic uint32_t *)cecl_flags_word(flags, rank, rank, CECL_COUNTER_TURN);
}

static uint32_t turn_of(const struct cecl_flags *flags, int rank)
{
    return atomic_load_explicit(word_of(flags, rank), memory_order_acquire) & ~CECL_TURNS_SEEN;
}

/* Whether this rank has signalled a phase of a captured call, and not yet its last one. */
static bool is_amid_phases(const struct cecl_flags *flags)
{
    return flags->hosted && turn_of(flags, flags->rank) >> 16 != 0;
}

bool cecl_turns_run(const struct cecl_flags *flags)
{
    const uint32_t state =
        atomic_load_explicit((_Atomic uint32_t *)flags->replay, memory_order_acquire);
    return state == CECL_REPLAY_BEGUN || state == CECL_REPLAY_SEEN || is_amid_phases(flags);
}

uint32_t cecl_turns_sum(const struct cecl_flags *flags)
{
    uint32_t sum = 0;
    for (int r = 0; r < flags->nranks && flags->hosted; r++) {
        if (is_of_node(flags, r))
            sum = sum * 31 + turn_of(flags, r);
        for (int kind = 0; kind < CECL_NUMBERINGS; kind++)
            sum = sum * 31 + count_of(flags, kind, r);
    }
    return sum;
}

/* Whether a peer has signalled fewer phases than this rank. The difference is less than half of a cycle. */
static bool lags(const struct cecl_flags *flags, int peer)
{
    return is_of_node(flags, peer) &&
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

void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_list *late)
{
    for (int r = 0; r < flags->nranks && flags->hosted; r++)
        if (r != flags->rank && (is_behind(flags, r) || lags(flags, r)))
            cecl_rank_list_add(late, r);
}

/* Whether this rank's stream may wait for the peer: in a call that runs, or at the beginning of the next one for the
 * last phase of the call before. Such a wait is not seen, because no phase was signalled; but the peer's word shows
 * that the wait would not end. */
static bool may_wait_for(const struct cecl_flags *flags, int peer)
{
    return cecl_turns_run(flags) || !(turn_of(flags, peer) & cecl_turns_bit(0, 1));
}

void cecl_turns_release(const struct cecl_flags *flags)
{
    for (int r = 0; r < flags->nranks; r++)
        if (r != flags->rank && is_of_node(flags, r) && may_wait_for(flags, r))
            flags->hosted->dev->ops->host_set_bits(
                flags->hosted->dev, (uint32_t *)word_of(flags, r), CECL_TURNS_PHASES);
}
