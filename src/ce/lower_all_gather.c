/* All-gather. Rank r owns block r of everyone's recvbuff: slot r. Blocks may differ in size and lie
 * anywhere apart from each other; a broadcast is an all-gather to which only its root contributes.
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

static struct cecl_place slot_at(const struct cecl_call *call, int holder, int owner, uint64_t at)
{
    return cecl_place_at(CECL_WINDOW_RECV, holder, cecl_block_offset(call, owner) + at);
}

/* Where this rank's block comes from. */
static struct cecl_place own_block(const struct cecl_call *call)
{
    return call->in_place ? slot_at(call, call->rank, call->rank, 0)
                          : cecl_place_at(CECL_WINDOW_SEND, call->rank, 0);
}

static void copy_own_block(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t bytes = cecl_block_bytes(call, call->rank);
    if (!call->in_place && bytes > 0)
        cecl_plan_copy(plan, slot_at(call, call->rank, call->rank, 0), own_block(call), bytes);
}

static void push_to_peers(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t bytes = cecl_block_bytes(call, call->rank);
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks && bytes > 0; i++)
        cecl_plan_copy(plan, slot_at(call, cecl_peer_after(call, i), call->rank, 0),
                       own_block(call), bytes);
}

static void push(const struct cecl_call *call, struct cecl_plan *plan)
{
    push_to_peers(call, plan);
    copy_own_block(call, plan);
    cecl_plan_barrier(plan);
}

/* The piece that this rank returns to the `i`-th rank before it. */
static void return_piece(const struct cecl_call *call, struct cecl_plan *plan, int i)
{
    const int owner = cecl_peer_before(call, i + 1);
    const uint64_t all = cecl_block_bytes(call, owner);
    const struct cecl_pieces pieces = cecl_pieces_of(call, all, UINT64_MAX);
    const uint64_t bytes = i < pieces.count ? cecl_piece_bytes(&pieces, all, 0, i) : 0;
    const uint64_t at = (uint64_t)i * pieces.bytes;
    if (bytes > 0)
        cecl_plan_copy(plan, slot_at(call, owner, owner, at), slot_at(call, call->rank, owner, at),
                       bytes);
}

static void push_and_return(const struct cecl_call *call, struct cecl_plan *plan)
{
    push_to_peers(call, plan);
    cecl_plan_barrier(plan);
    for (int i = 0; i < call->nranks - 1; i++)
        return_piece(call, plan, i);
    cecl_plan_barrier(plan);
}

static void pull(const struct cecl_call *call, struct cecl_plan *plan)
{
    copy_own_block(call, plan);
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        if (cecl_block_bytes(call, peer) > 0)
            cecl_plan_copy(plan, slot_at(call, call->rank, peer, 0), slot_at(call, peer, peer, 0),
                           cecl_block_bytes(call, peer));
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
