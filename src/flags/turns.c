/* The words of captured calls; see turns.h. */
#include "flags/turns.h"

#include "flags/pads.h"

void cecl_turns_describe(struct cecl_flags *flags, const struct cecl_hosted *hosted)
{
    flags->counters[CECL_COUNTER_REPLAY] =
        (struct cecl_counter){.words = (char *)flags->replay, .own = true, .unit = 1};
    for (int turn = 0; turn < CECL_TURNS && hosted; turn++)
        flags->counters[CECL_COUNTER_TURN + turn] = (struct cecl_counter){
            .words = (char *)(cecl_hosted_turns(hosted, 0) + turn * flags->nranks),
            .apart = hosted->apart,
            .replay = CECL_REPLAY_RESET,
            .unit = 1};
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
    return cecl_hosted_counts(flags->hosted, holder, flags->nranks) + (int)kind * flags->nranks;
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

bool cecl_turns_go_on(const struct cecl_flags *flags)
{
    uint32_t begun = CECL_REPLAY_BEGUN;
    if (!cecl_turns_run(flags))
        return true;
    return atomic_compare_exchange_strong((_Atomic uint32_t *)flags->replay, &begun,
                                          CECL_REPLAY_SEEN);
}

static bool is_set(const struct cecl_flags *flags, int holder, int writer, int turn)
{
    const uint32_t *word = cecl_flags_word(flags, holder, writer, CECL_COUNTER_TURN + turn);
    return atomic_load_explicit((const _Atomic uint32_t *)word, memory_order_acquire) != 0;
}

static bool any_set(const struct cecl_flags *flags, int holder, int writer)
{
    for (int turn = 0; turn < CECL_TURNS; turn++)
        if (is_set(flags, holder, writer, turn))
            return true;
    return false;
}

uint32_t cecl_turns_sum(const struct cecl_flags *flags)
{
    uint32_t sum = 0;
    for (int r = 0; r < flags->nranks && flags->hosted; r++) {
        for (int turn = 0; turn < CECL_TURNS; turn++)
            sum = sum * 31 + is_set(flags, flags->rank, r, turn);
        for (int kind = 0; kind < CECL_NUMBERINGS; kind++)
            sum = sum * 31 + count_of(flags, kind, r);
    }
    return sum;
}

void cecl_turns_late(const struct cecl_flags *flags, struct cecl_rank_list *late)
{
    for (int r = 0; r < flags->nranks && flags->hosted; r++)
        if (r != flags->rank && (is_behind(flags, r) || (!any_set(flags, flags->rank, r) &&
                                                         any_set(flags, r, flags->rank))))
            cecl_rank_list_add(late, r);
}

void cecl_turns_release(const struct cecl_flags *flags)
{
    if (flags->hosted)
        flags->hosted->dev->ops->host_write(flags->hosted->dev,
                                            cecl_hosted_turns(flags->hosted, flags->rank),
                                            cecl_hosted_turn_words(flags->nranks), 1);
}
