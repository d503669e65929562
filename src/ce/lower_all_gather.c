/* One block from each rank to all ranks. Block r of every recvbuff is rank r's block. Blocks may differ in size, and
 * may lie in any places that do not overlap. A broadcast has one block, its root's.
 *
 *     push:  | barrier 1 | my block -> block r of every peer (own too, out of place) | barrier 2 |
 *
 *     pull:  | my block -> my block r (out of place)
 *            | barrier 1 | block p of each peer p -> my block p | barrier 2 |
 *
 *     in a push a local copy that is large enough goes on the side lane, at the same time as the rest;
 *     the main lane waits for the side lane before barrier 2
 *
 *     push, without a local copy (which would run on SMs, or be slower), where some rank is out of
 *     place:
 *            | barrier 1 | my block -> block r of every peer | barrier 2
 *            | for each rank before me that is out of place: my piece of its block -> that rank | barrier 3 |
 *     if a rank came late: the same without barrier 2
 *
 * A call with only one block, if it is large, goes another way: see lower_spread.c.
 *
 * Barrier 1 says "my recvbuff may be written" (push) or "my block is in my recvbuff" (pull). Barrier 2 says "my data is
 * with you" (push) or "I have read your block" (pull). A pull reads the peers' recvbuffs, not their sendbuffs, which
 * may be memory that peers cannot reach.
 *
 * In a call with three barriers, barrier 2 says "my block is with you: return it". In a late call, the later one of two
 * ranks makes both copies between them, in stream order: the block to the receiver, then the piece back to the owner
 * (route.c). A late call has the same barriers whether the later rank is in place or not, so peers need not know. */
#include "ce/lowering.h"

static uint64_t bytes_from(const struct cecl_part *part, int rank)
{
    return cecl_call_block(&part->call, rank, rank).bytes;
}

static void copy_own_block(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (!part->call.in_place)
        cecl_lower_block(part, plan, part->call.rank, part->call.rank);
}

static void push_to_peers(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, me, peer), cecl_sent(part, me, peer), 0,
                        bytes_from(part, me));
    }
}

static void push(const struct cecl_part *part, struct cecl_plan *plan)
{
    const bool beside = part->way.move.beside && !part->call.in_place;
    if (beside) {
        cecl_begin_side(plan);
        copy_own_block(part, plan);
        cecl_end_side(plan);
    }
    push_to_peers(part, plan);
    if (beside)
        cecl_plan_after_other(plan);
    else
        copy_own_block(part, plan);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "push, one batch");
}

/* This rank has a piece of the block of the `i`-th rank before it; i begins at 0. Copies the piece
 * back to that rank. */
static void return_piece(const struct cecl_part *part, struct cecl_plan *plan, int i)
{
    const int owner = cecl_peer_before(part, i + 1);
    const uint64_t all = cecl_part_is_outside(part, owner) ? bytes_from(part, owner) : 0;
    const struct cecl_pieces pieces = cecl_pieces_of(part, all, UINT64_MAX);
    const uint64_t bytes = i < pieces.count ? cecl_piece_bytes(&pieces, all, 0, i) : 0;
    cecl_lower_copy(part, plan, cecl_received(part, owner, owner),
                    cecl_received(part, owner, part->call.rank), (uint64_t)i * pieces.bytes, bytes);
}

static void push_and_return(const struct cecl_part *part, struct cecl_plan *plan)
{
    push_to_peers(part, plan);
    if (part->means.late)
        cecl_plan_next_wave(plan);
    else
        cecl_plan_barrier(plan);
    for (int i = 0; i < part->call.nranks - 1; i++)
        return_piece(part, plan, i);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "push, own block returned by peers");
}

static void pull(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    copy_own_block(part, plan);
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, peer, me), cecl_received(part, peer, peer),
                        0, bytes_from(part, peer));
    }
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "pull, one batch");
}

/* Whether some rank is outside. If a rank came late, ranks may get different answers; but a late call has the same
 * barriers either way. */
static bool some_are_outside(const struct cecl_part *part)
{
    for (int i = 0; i < part->call.nranks; i++)
        if (cecl_part_is_outside(part, cecl_part_peer(part, i)))
            return true;
    return false;
}

ceclResult_t cecl_lower_gathered(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->call.nranks == 1)
        cecl_lower_alone(part, plan);
    else if (part->way.move.spread > 0)
        return cecl_lower_spread(part, plan);
    else if (part->way.move.no_sm && some_are_outside(part))
        push_and_return(part, plan);
    else if (part->way.move.direction == CECL_PUSH)
        push(part, plan);
    else
        pull(part, plan);
    return ceclSuccess;
}
