/* All-gather. Rank r owns block r of everyone's recvbuff.
 *
 *     push:  | barrier 1 | my block -> slot r of every peer (own too, out of place) | barrier 2 |
 *
 *     pull:  | my block -> my slot (out of place)
 *            | barrier 1 | slot p of each peer p -> my slot p | barrier 2 |
 *
 *     push, out of place without SMs, for a local copy runs on SMs:
 *            | barrier 1 | my block -> slot r of every peer | barrier 2
 *            | the piece that I return of each block before me -> its owner's slot | barrier 3 |
 *
 * Barrier 1 says "my recvbuff may be written" (push) or "my block stands" (pull); barrier 2 "my
 * data is with you" (push) or "I have read yours" (pull). Pull reads slots, never a peer's
 * sendbuff: that may be any memory. */
#include "ce/lowering.h"

static void copy_own_block(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (!call->in_place)
        cecl_plan_copy(
            plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, (uint64_t)call->rank * call->bytes),
            cecl_place_at(CECL_WINDOW_SEND, call->rank, 0), call->bytes);
}

static void push_to_peers(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t slot = (uint64_t)call->rank * call->bytes;
    const struct cecl_place own = call->in_place ? cecl_place_at(CECL_WINDOW_RECV, call->rank, slot)
                                                 : cecl_place_at(CECL_WINDOW_SEND, call->rank, 0);
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++)
        cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, cecl_peer_after(call, i), slot), own,
                       call->bytes);
}

static void push(const struct cecl_call *call, struct cecl_plan *plan)
{
    push_to_peers(call, plan);
    copy_own_block(call, plan);
    cecl_plan_barrier(plan);
}

static void push_and_return(const struct cecl_call *call, struct cecl_plan *plan)
{
    const struct cecl_pieces pieces = cecl_pieces_of(call, call->bytes, UINT64_MAX);
    push_to_peers(call, plan);
    cecl_plan_barrier(plan);
    for (int i = 0; i < pieces.count; i++) {
        const int owner = cecl_peer_before(call, i + 1);
        const uint64_t bytes = cecl_piece_bytes(&pieces, call->bytes, 0, i);
        const uint64_t at = (uint64_t)owner * call->bytes + (uint64_t)i * pieces.bytes;
        if (bytes > 0)
            cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, owner, at),
                           cecl_place_at(CECL_WINDOW_RECV, call->rank, at), bytes);
    }
    cecl_plan_barrier(plan);
}

static void pull(const struct cecl_call *call, struct cecl_plan *plan)
{
    copy_own_block(call, plan);
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        const uint64_t slot = (uint64_t)peer * call->bytes;
        cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, slot),
                       cecl_place_at(CECL_WINDOW_RECV, peer, slot), call->bytes);
    }
    cecl_plan_barrier(plan);
}

void cecl_lower_all_gather(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->nranks == 1)
        copy_own_block(call, plan);
    else if (call->no_sm && !call->in_place)
        push_and_return(call, plan);
    else if (call->direction == CECL_PUSH)
        push(call, plan);
    else
        pull(call, plan);
}
