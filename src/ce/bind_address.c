/* Finds the addresses at which this rank reaches a plan's memory, and the words by which kernels meet. */
#include "ce/bound.h"
#include "flags/turns.h"

/* This rank's buffer in a call: its input (CECL_AREA_SEND) or its recvbuff. */
static struct cecl_buffer own_buffer(const struct cecl_call *call, uint32_t kind)
{
    return kind == CECL_AREA_SEND && !cecl_call_is_one_buffer(call) ? call->send : call->recv;
}

/* A peer's buffer in a call. */
static struct cecl_peer_buffer peer_buffer(const struct cecl_bound *bound, uint32_t part, int rank,
                                           uint32_t kind)
{
    const struct cecl_call *call = &bound->calls[part];
    if (bound->told->nbuffers == 0)
        return cecl_buffer_told(own_buffer(call, kind));
    const size_t at = (size_t)part * (size_t)call->nranks + (size_t)rank;
    return bound->told->buffers[2 * at + (kind == CECL_AREA_RECV)];
}

ceclResult_t cecl_bound_address(const struct cecl_engine *engine, const struct cecl_bound *bound,
                                const struct cecl_place *place, uint64_t bytes, char **address)
{
    const uint32_t kind = place->area % CECL_AREA_COUNT, part = place->area / CECL_AREA_COUNT;
    if (kind == CECL_AREA_HOST) {
        *address = cecl_hosted_part(engine->hosted, place->rank) + place->offset;
        return ceclSuccess;
    }
    if (kind == CECL_AREA_STAGING) {
        *address = cecl_pool_at(engine->pool, place->rank, engine->staging_offset + place->offset);
        return ceclSuccess;
    }
    if (bound->ends) {
        const struct cecl_ends *ends = &bound->ends[part];
        *address = (char *)(place->rank == engine->rank ? ends->here : ends->there) + place->offset;
        return ceclSuccess;
    }
    if (place->rank == engine->rank) {
        const struct cecl_buffer own = own_buffer(&bound->calls[part], kind);
        *address = cecl_buffer_address(cecl_buffer_at(own, place->offset));
        return *address ? ceclSuccess : cecl_fail(ceclInternalError, "the plan's buffer is NULL");
    }
    struct cecl_peer_buffer peer = peer_buffer(bound, part, place->rank, kind);
    void *at = NULL;
    peer.offset += place->offset;
    CECL_TRY(cecl_window_reach(engine->windows, peer, bytes, place->rank, &at));
    *address = at;
    return ceclSuccess;
}

/* ---- words of kernels */

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
