/* Broadcast of much data. Sent whole to each, it would pass the root's link N-1 times; so the root
 * sends each peer one piece, and the peers pass these on among themselves. In rounds, for while the
 * peers pass on one the root sends the next:
 *
 *     | barrier | root: piece i of round 0 -> the i-th peer after it
 *     | barrier | root: likewise round 1; i-th peer: piece i of round 0 -> all other peers
 *     | barrier | ... | i-th peer: piece i of the last round -> all other peers | barrier |
 *
 * All go to their place in recvbuff. Out of place and without SMs peers pass their pieces on to the
 * root too, which so gets its own block; with SMs the root copies it. */
#include "ce/lowering.h"
#include "plan/layout.h"

struct pieces {
    int root;
    uint64_t all;    /* bytes */
    uint64_t piece;  /* of each peer in a round, but the last ones may be less, or none */
    uint64_t round;  /* of all peers */
    uint64_t rounds; /* no more than were asked for */
};

static struct pieces pieces_of(const struct cecl_call *call)
{
    const int root = cecl_only_contributor(call);
    const uint64_t all = cecl_block_bytes(call, root), peers = (uint64_t)call->nranks - 1;
    const uint64_t align = call->piece_worth < CECL_PIECE_ALIGN ? 1 : CECL_PIECE_ALIGN;
    const uint64_t pieces = call->spread * peers;
    const uint64_t piece = ((all + pieces - 1) / pieces + align - 1) / align * align;
    return (struct pieces){.root = root,
                           .all = all,
                           .piece = piece,
                           .round = piece * peers,
                           .rounds = (all + piece * peers - 1) / (piece * peers)};
}

static struct cecl_place place_of(const struct cecl_call *call, const struct pieces *p, int rank,
                                  uint64_t at)
{
    return cecl_place_at(CECL_WINDOW_RECV, rank, cecl_block_offset(call, p->root) + at);
}

/* Where the root has it. */
static struct cecl_place source_of(const struct cecl_call *call, const struct pieces *p,
                                   uint64_t at)
{
    return call->in_place ? place_of(call, p, p->root, at)
                          : cecl_place_at(CECL_WINDOW_SEND, p->root, at);
}

/* The piece of the `i`-th peer (from 0) after the root: where it begins, and its bytes. */
static uint64_t piece_at(const struct pieces *p, uint64_t round, int i, uint64_t *bytes)
{
    const uint64_t at = round * p->round + (uint64_t)i * p->piece;
    const uint64_t left = at < p->all ? p->all - at : 0;
    *bytes = left < p->piece ? left : p->piece;
    return at;
}

static void send_pieces(const struct cecl_call *call, struct cecl_plan *plan,
                        const struct pieces *p, uint64_t round)
{
    for (int i = 0; i < call->nranks - 1; i++) {
        uint64_t bytes;
        const uint64_t at = piece_at(p, round, i, &bytes);
        if (bytes > 0)
            cecl_plan_copy(plan, place_of(call, p, cecl_peer_after(call, i + 1), at),
                           source_of(call, p, at), bytes);
    }
}

static void pass_on(const struct cecl_call *call, struct cecl_plan *plan, const struct pieces *p,
                    uint64_t round)
{
    const bool root_too = !call->in_place && call->no_sm;
    uint64_t bytes;
    const uint64_t at = piece_at(p, round, cecl_peer_before(call, p->root + 1), &bytes);
    for (int i = 1; i < call->nranks && bytes > 0; i++) {
        const int peer = cecl_peer_after(call, i);
        if (peer != p->root || root_too)
            cecl_plan_copy(plan, place_of(call, p, peer, at), place_of(call, p, call->rank, at),
                           bytes);
    }
}

void cecl_lower_broadcast(const struct cecl_call *call, struct cecl_plan *plan)
{
    const struct pieces p = pieces_of(call);
    const bool is_root = call->rank == p.root;
    cecl_plan_barrier(plan);
    for (uint64_t round = 0; round <= p.rounds; round++) {
        if (is_root && round < p.rounds)
            send_pieces(call, plan, &p, round);
        if (is_root && round == 0 && !call->in_place && !call->no_sm)
            cecl_plan_copy(plan, place_of(call, &p, p.root, 0), source_of(call, &p, 0), p.all);
        if (!is_root && round > 0)
            pass_on(call, plan, &p, round - 1);
        cecl_plan_barrier(plan);
    }
}
