/* One block from each rank to all. Block r of everyone's recvbuff is rank r's. Blocks may differ in
 * size and lie anywhere apart from each other; a broadcast has one block, its root's.
 *
 *     push:  | barrier 1 | my block -> block r of every peer (own too, out of place) | barrier 2 |
 *
 *     pull:  | my block -> my block r (out of place)
 *            | barrier 1 | block p of each peer p -> my block p | barrier 2 |
 *
 *     own block beside it, where a local copy is large enough: on the side lane, and the main lane
 *     waits for that lane before barrier 2
 *
 *     push, out of place without a local copy, for that runs on SMs, or is slower:
 *            | barrier 1 | my block -> block r of every peer | barrier 2
 *            | the piece that I return of each block before me -> its owner | barrier 3 |
 *
 * A large block that is the only one goes another way: lower_spread.c.
 *
 * Barrier 1 says "my recvbuff may be written" (push) or "my block stands" (pull); barrier 2 "my
 * data is with you" (push) or "I have read yours" (pull). Pull reads recvbuffs, never a peer's
 * sendbuff: that may be any memory. */
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
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++)
        cecl_lower_block(part, plan, part->call.rank, cecl_peer_after(part, i));
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
    cecl_plan_say(plan, "push, %s",
                  cecl_plan_local_copies(plan) > 0 && part->means.engine_copies_locally
                      ? "own block: " CECL_SAY_BY_ENGINE
                      : "one batch");
}

/* The piece that this rank returns to the `i`-th rank before it. */
static void return_piece(const struct cecl_part *part, struct cecl_plan *plan, int i)
{
    const int owner = cecl_peer_before(part, i + 1);
    const uint64_t all = bytes_from(part, owner);
    const struct cecl_pieces pieces = cecl_pieces_of(part, all, UINT64_MAX);
    const uint64_t bytes = i < pieces.count ? cecl_piece_bytes(&pieces, all, 0, i) : 0;
    cecl_lower_copy(part, plan, cecl_received(part, owner, owner),
                    cecl_received(part, owner, part->call.rank), (uint64_t)i * pieces.bytes, bytes);
}

static void push_and_return(const struct cecl_part *part, struct cecl_plan *plan)
{
    push_to_peers(part, plan);
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
        const int peer = cecl_peer_after(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, peer, me), cecl_received(part, peer, peer),
                        0, bytes_from(part, peer));
    }
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "pull, %s",
                  cecl_plan_local_copies(plan) > 0 && part->means.engine_copies_locally
                      ? "own block: " CECL_SAY_BY_ENGINE
                      : "one batch");
}

ceclResult_t cecl_lower_gathered(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->call.nranks == 1)
        cecl_lower_alone(part, plan);
    else if (part->way.move.spread > 0)
        return cecl_lower_spread(part, plan);
    else if (part->way.move.no_sm && !part->call.in_place)
        push_and_return(part, plan);
    else if (part->way.move.direction == CECL_PUSH)
        push(part, plan);
    else
        pull(part, plan);
    return ceclSuccess;
}
