/* A call with one large block: usually a broadcast. If the root sent the whole block to each peer, the block
 * would cross the root's link N-1 times. So the root sends each peer one piece, and the peers pass the pieces
 * on among themselves. Rounds overlap: while the peers pass on the pieces of one round, the root sends the
 * pieces of the next:
 *
 *     | barrier | root: piece i of round 0 -> the i-th peer after it
 *     | barrier | root: piece i of round 1; i-th peer: piece i of round 0 -> all others
 *     | barrier | ... | i-th peer: piece i of the last round -> all others | barrier |
 *
 * All pieces go to their place in recvbuff. If the root is out of place, peers pass their pieces on to the root as well
 * as to each other, so that it gets its own block; with SMs, the root copies its own block locally instead. */
#include <inttypes.h>

#include "ce/lowering.h"
#include "util/grow.h"

struct pieces {
    int root;
    uint64_t all; /* bytes of the block */
    /* bytes of a peer's piece in a round; the last pieces may be smaller or empty */
    uint64_t piece;
    uint64_t round;  /* bytes of all peers' pieces in a round */
    uint64_t rounds; /* at most way.move.spread rounds */
};

static struct pieces pieces_of(const struct cecl_part *part)
{
    const int root = cecl_only_contributor(&part->call);
    const uint64_t all = cecl_call_block(&part->call, root, root).bytes,
                   peers = (uint64_t)part->call.nranks - 1;
    const uint64_t align = part->way.move.piece_worth < CECL_PIECE_ALIGN ? 1 : CECL_PIECE_ALIGN;
    const uint64_t pieces = part->way.move.spread * peers;
    const uint64_t piece = cecl_round_up((all + pieces - 1) / pieces, align);
    return (struct pieces){.root = root,
                           .all = all,
                           .piece = piece,
                           .round = piece * peers,
                           .rounds = (all + piece * peers - 1) / (piece * peers)};
}

static struct cecl_place place_of(const struct cecl_part *part, const struct pieces *p, int rank,
                                  uint64_t at)
{
    return cecl_place_at(CECL_AREA_RECV, rank,
                         cecl_call_block(&part->call, p->root, rank).recv_offset + at);
}

/* Where a byte of the block lies in the root's input. */
static struct cecl_place source_of(const struct cecl_part *part, const struct pieces *p,
                                   uint64_t at)
{
    struct cecl_place place = cecl_sent(part, p->root, p->root).at;
    place.offset += at;
    return place;
}

/* The piece of the `i`-th peer after the root; i begins at 0. Returns where the piece begins, and
 * sets its bytes. */
static uint64_t piece_at(const struct pieces *p, uint64_t round, int i, uint64_t *bytes)
{
    const uint64_t at = round * p->round + (uint64_t)i * p->piece;
    const uint64_t left = at < p->all ? p->all - at : 0;
    *bytes = left < p->piece ? left : p->piece;
    return at;
}

static void send_pieces(const struct cecl_part *part, struct cecl_plan *plan,
                        const struct pieces *p, uint64_t round)
{
    for (int i = 0; i < part->call.nranks - 1; i++) {
        uint64_t bytes;
        const uint64_t at = piece_at(p, round, i, &bytes);
        if (bytes > 0)
            cecl_plan_copy(plan, place_of(part, p, cecl_part_peer(part, i + 1), at),
                           source_of(part, p, at), bytes);
    }
}

static void pass_on(const struct cecl_part *part, struct cecl_plan *plan, const struct pieces *p,
                    uint64_t round)
{
    const bool root_too = cecl_part_is_outside(part, p->root) && part->way.move.no_sm;
    uint64_t bytes;
    const uint64_t at = piece_at(p, round, cecl_peer_before(part, p->root + 1), &bytes);
    for (int i = 1; i < part->call.nranks && bytes > 0; i++) {
        const int peer = cecl_part_peer(part, i);
        if (peer != p->root || root_too)
            cecl_plan_copy(plan, place_of(part, p, peer, at),
                           place_of(part, p, part->call.rank, at), bytes);
    }
}

ceclResult_t cecl_lower_spread(const struct cecl_part *part, struct cecl_plan *plan)
{
    const struct pieces p = pieces_of(part);
    const bool is_root = part->call.rank == p.root;
    cecl_plan_barrier(plan);
    for (uint64_t round = 0; round <= p.rounds; round++) {
        if (is_root && round < p.rounds)
            send_pieces(part, plan, &p, round);
        if (is_root && round == 0 && !part->call.in_place && !part->way.move.no_sm)
            cecl_plan_copy(plan, place_of(part, &p, p.root, 0), source_of(part, &p, 0), p.all);
        if (!is_root && round > 0)
            pass_on(part, plan, &p, round - 1);
        cecl_plan_barrier(plan);
    }
    cecl_plan_say(plan, "push in pieces that peers pass on, %" PRIu64 " round%s", p.rounds,
                  cecl_plural(p.rounds));
    return ceclSuccess;
}
