/* Binds the words by which kernels meet their peers' kernels. */
#include "ce/bound.h"
#include "flags/turns.h"

struct cecl_meeting cecl_bound_meeting(const struct cecl_flags *flags, int lane)
{
    return (struct cecl_meeting){
        .rank = (uint32_t)flags->rank,
        .nranks = (uint32_t)flags->nranks,
        .row = cecl_flags_word(flags, flags->rank, 0, lane),
        .word = cecl_flags_word(flags, 0, flags->rank, lane),
        .apart = flags->counters[lane].apart,
        .ended = cecl_pads_ended(flags),
        .leaving = cecl_pads_leaving(flags, lane),
        .done = flags->done,
    };
}

struct cecl_meeting cecl_bound_captured(const struct cecl_flags *flags, enum cecl_numbering kind,
                                        uint32_t number, struct cecl_counting *counting)
{
    struct cecl_meeting meeting = cecl_bound_meeting(flags, CECL_LANE_MAIN);
    meeting.does = CECL_MEET_DONE;
    meeting.row = cecl_pads_row(flags, flags->rank);
    meeting.word = cecl_pads_row(flags, 0) + flags->rank;
    meeting.apart = flags->pool->slice;
    meeting.done = flags->replay;
    meeting.done_value = CECL_REPLAY_ENDED;
    *counting = (struct cecl_counting){.count = cecl_pads_count(flags, kind),
                                       .number = number,
                                       .told = cecl_turns_counts(flags, 0, (int)kind) + flags->rank,
                                       .told_apart = flags->hosted->apart,
                                       .begun_value = CECL_REPLAY_BEGUN};
    return meeting;
}
