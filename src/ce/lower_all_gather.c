/* All-gather. Rank r owns block r of everyone's recvbuff: slot r. Blocks may differ in size and lie
 * anywhere apart from each other; a broadcast is an all-gather to which only its root contributes.
 *
 *     push:  | barrier 1 | my block -> slot r of every peer (own too, out of place) | barrier 2 |
 *
 *     pull:  | my block -> my slot (out of place)
 *            | barrier 1 | slot p of each peer p -> my slot p | barrier 2 |
 *
 *     own block beside it, where a local copy is large enough: on the side lane, and the main lane
 *     waits for that lane before barrier 2
 *
 *     push, out of place without a local copy, for that runs on SMs, or is slower:
 *            | barrier 1 | my block -> slot r of every peer | barrier 2
 *            | the piece that I return of each block before me -> its owner's slot | barrier 3 |
 *
 * A large block that is the only one goes another way: lower_broadcast.c.
 *
 * Barrier 1 says "my recvbuff may be written" (push) or "my block stands" (pull); barrier 2 "my
 * data is with you" (push) or "I have read yours" (pull). Pull reads slots, never a peer's
 * sendbuff: that may be any memory. */
#include "ce/lowering.h"

/* Where this rank's block comes from. */
static struct cecl_view own_block(const struct cecl_call *call)
{
    return call->in_place ? cecl_recv_block(call, call->rank, call->rank)
                          : cecl_send_block(call, call->rank, call->rank);
}

static void copy_own_block(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (!call->in_place)
        cecl_lower_copy(call, plan, cecl_recv_block(call, call->rank, call->rank), own_block(call),
                        0, cecl_block_bytes(call, call->rank));
}

static void push_to_peers(const struct cecl_call *call, struct cecl_plan *plan)
{
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++)
        cecl_lower_copy(call, plan, cecl_recv_block(call, cecl_peer_after(call, i), call->rank),
                        own_block(call), 0, cecl_block_bytes(call, call->rank));
}

static void push(const struct cecl_call *call, struct cecl_plan *plan)
{
    const bool beside = call->side_copy && !call->in_place;
    if (beside) {
        cecl_begin_side(plan);
        copy_own_block(call, plan);
        cecl_end_side(plan);
    }
    push_to_peers(call, plan);
    if (beside)
        cecl_plan_after_other(plan);
    else
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
    cecl_lower_copy(call, plan, cecl_recv_block(call, owner, owner),
                    cecl_recv_block(call, call->rank, owner), (uint64_t)i * pieces.bytes, bytes);
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
        cecl_lower_copy(call, plan, cecl_recv_block(call, call->rank, peer),
                        cecl_recv_block(call, peer, peer), 0, cecl_block_bytes(call, peer));
    }
    cecl_plan_barrier(plan);
}

void cecl_lower_all_gather(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->nranks == 1)
        copy_own_block(call, plan);
    else if (call->spread > 0)
        cecl_lower_broadcast(call, plan);
    else if (call->no_sm && !call->in_place)
        push_and_return(call, plan);
    else if (call->direction == CECL_PUSH)
        push(call, plan);
    else
        pull(call, plan);
}
