/* All-gather. Rank r owns block r of everyone's recvbuff.
 *
 *     push:  | barrier 1 | my block -> slot r of every peer (own too, out of place) | barrier 2 |
 *
 *     pull:  | my block -> my slot (out of place)
 *            | barrier 1 | slot p of each peer p -> my slot p | barrier 2 |
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

static void push(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t slot = (uint64_t)call->rank * call->bytes;
    const struct cecl_place own = call->in_place ? cecl_place_at(CECL_WINDOW_RECV, call->rank, slot)
                                                 : cecl_place_at(CECL_WINDOW_SEND, call->rank, 0);
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++)
        cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, cecl_peer_after(call, i), slot), own,
                       call->bytes);
    copy_own_block(call, plan);
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
    else if (call->direction == CECL_PUSH)
        push(call, plan);
    else
        pull(call, plan);
}
