/* All-gather and broadcast over several nodes.
 *
 *     net  | chunk 0 of my block -> its carriers on a wave of nodes; chunk 0 of theirs | chunk 1 | ...
 *     main | my node's blocks, as on one node | after 0: what came -> peers | after 1: ... | barrier |
 *
 * In a node of 4 or more, ranks wait for each other before they copy a large chunk to their peers
 * (way.net.in_step). Otherwise they drift apart: two ranks then copy to the same peer at the same time, while the
 * link into another peer is idle.
 *
 * The network writes to recvbuff where the block belongs. From there copy engines copy it to the ranks of
 * the node. So a carrier needs no staging, and the first exchange waits only for this rank's own stream.
 *
 * A large block that is the only one of its call (way.net.chain) goes from node to node. The root's node
 * divides it among its ranks, so that all of its rails carry it. Each node passes chunks on to the next node
 * while it copies them to its own ranks. So no rail carries a byte twice:
 *
 *     root's node | root: chunk 0 of each rank's piece -> that rank | barrier
 *                 | root: chunk 1; others: chunk 0 -> peers, and -> next node | barrier | ...
 *     others      | chunk 0 from the node before | chunk 1; chunk 0 -> peers, and -> next node | ... */
#include "ce/lower_nodes.h"

#include <inttypes.h>

#include "util/round.h"

/* ---- each rank's block */

struct gather {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    const struct cecl_shares *shares; /* NULL: the call's blocks */
    uint64_t chunks;                  /* of the largest block */
};

static uint64_t bytes_of(const struct gather *g, int rank)
{
    return g->shares ? cecl_share_bytes(g->shares, rank)
                     : cecl_call_block(&g->rails->part->call, rank, rank).bytes;
}

/* Where a rank's block lies in another rank's recvbuff. */
static struct cecl_place place_of(const struct gather *g, int rank, int at)
{
    return g->shares ? cecl_place_at(CECL_AREA_RECV, at,
                                     g->shares->base + (uint64_t)rank * g->shares->each)
                     : cecl_received(g->rails->part, rank, at).at;
}

static struct cecl_place input_of(const struct gather *g)
{
    const int me = g->rails->me;
    return g->shares ? place_of(g, me, me) : cecl_sent(g->rails->part, me, me).at;
}

/* Receives a chunk of each of the node's blocks for which this rank is the carrier. fan_out_of copies these
 * chunks to a peer. */
static void receive_from(const struct gather *g, int node, uint64_t first)
{
    const struct cecl_rails *rails = g->rails;
    for (int l = rails->local; l < cecl_node_size(rails->nodes, node); l += rails->size) {
        const int from = cecl_node_rank(rails->nodes, node, l);
        cecl_plan_receive(g->plan, from, cecl_place_on(place_of(g, from, rails->me), first),
                          cecl_chunk_left(bytes_of(g, from), first, rails->chunk));
    }
}

static void fan_out_of(const struct gather *g, int node, uint64_t first, int peer)
{
    const struct cecl_rails *rails = g->rails;
    for (int l = rails->local; l < cecl_node_size(rails->nodes, node); l += rails->size) {
        const int from = cecl_node_rank(rails->nodes, node, l);
        const uint64_t bytes = cecl_chunk_left(bytes_of(g, from), first, rails->chunk);
        if (bytes > 0)
            cecl_plan_copy(g->plan, cecl_place_on(place_of(g, from, peer), first),
                           cecl_place_on(place_of(g, from, rails->me), first), bytes);
    }
}

/* Adds the exchange of round k, which is chunk k % chunks of wave k / chunks. Returns its number; 0: there is
 * no round k. */
static uint32_t exchange(const struct gather *g, uint64_t k)
{
    const struct cecl_rails *rails = g->rails;
    const int wave = (int)(k / g->chunks);
    if (wave >= cecl_rails_waves(rails))
        return 0;
    const uint64_t first = k % g->chunks * rails->chunk;
    for (int turn = cecl_rails_first(rails, wave); turn <= cecl_rails_last(rails, wave); turn++) {
        cecl_plan_send(g->plan,
                       cecl_node_carrier(rails->nodes, cecl_rails_to(rails, turn), rails->local),
                       cecl_place_on(input_of(g), first),
                       cecl_chunk_left(bytes_of(g, rails->me), first, rails->chunk));
        receive_from(g, cecl_rails_from(rails, turn), first);
    }
    return cecl_plan_close_exchange(g->plan);
}

static void fan_out(const struct gather *g, uint64_t k)
{
    const struct cecl_rails *rails = g->rails;
    const int wave = (int)(k / g->chunks);
    const uint64_t first = k % g->chunks * rails->chunk;
    for (int i = 1; i < rails->size; i++)
        for (int turn = cecl_rails_first(rails, wave); turn <= cecl_rails_last(rails, wave); turn++)
            fan_out_of(g, cecl_rails_from(rails, turn), first, cecl_part_peer(rails->part, i));
}

static void push_share(const struct gather *g)
{
    const int me = g->rails->me;
    cecl_plan_barrier(g->plan);
    for (int i = 1; i < g->rails->size && bytes_of(g, me) > 0; i++)
        cecl_plan_copy(g->plan, place_of(g, me, cecl_part_peer(g->rails->part, i)), input_of(g),
                       bytes_of(g, me));
}

void cecl_rails_gather(struct cecl_rails *rails, struct cecl_plan *plan,
                       const struct cecl_shares *shares)
{
    const uint64_t most = shares ? shares->each : rails->part->call.bytes;
    if (rails->chunk > most)
        rails->chunk = most;
    struct gather g = {rails, plan, shares, (most + rails->chunk - 1) / rails->chunk};
    const uint64_t rounds = (uint64_t)cecl_rails_waves(rails) * g.chunks;
    struct cecl_part inner = *rails->part;
    const bool in_step = rails->part->way.net.in_step && rails->size > 3;
    inner.way.move.spread = 0;
    cecl_rails_follow(plan);
    uint32_t landed = exchange(&g, 0);
    if (shares)
        push_share(&g);
    else
        (void)!cecl_lower_gathered(&inner, plan);
    for (uint64_t k = 0; k < rounds; k++) {
        const uint32_t next = exchange(&g, k + 1);
        cecl_rails_await(rails, plan, landed);
        if (in_step)
            cecl_plan_barrier(plan);
        fan_out(&g, k);
        landed = next;
    }
    cecl_plan_barrier(plan);
}

/* ---- the only block, from node to node */

struct chain {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    int root, rails_used;        /* a rail for each rank of the root's node */
    int hops;                    /* from the root's node to this one */
    uint64_t all, piece, chunks; /* bytes of the block; bytes of a piece; chunks in a piece */
};

static uint64_t chunk_at(const struct chain *c, int piece, uint64_t k, uint64_t *bytes)
{
    const uint64_t first = (uint64_t)piece * c->piece,
                   all = cecl_chunk_left(c->all, first, c->piece);
    *bytes = cecl_chunk_left(all, k * c->rails->chunk, c->rails->chunk);
    return first + k * c->rails->chunk;
}

static struct cecl_place block_at(const struct chain *c, int rank, uint64_t at)
{
    return cecl_place_on(cecl_received(c->rails->part, c->root, rank).at, at);
}

/* Where this rank has byte `at` of the block. */
static struct cecl_place source_at(const struct chain *c, uint64_t at)
{
    return c->rails->me == c->root
               ? cecl_place_on(cecl_sent(c->rails->part, c->root, c->root).at, at)
               : block_at(c, c->rails->me, at);
}

/* Receives chunk `in` from the node before, and sends chunk `out` to the next node. */
static uint32_t pass_on(const struct chain *c, uint64_t in, uint64_t out)
{
    const struct cecl_rails *rails = c->rails;
    const int count = rails->nodes->count;
    uint64_t bytes;
    for (int i = rails->local; i < c->rails_used; i += rails->size) {
        const uint64_t received = chunk_at(c, i, in, &bytes);
        if (c->hops > 0)
            cecl_plan_receive(c->plan,
                              cecl_node_carrier(rails->nodes, (rails->node + count - 1) % count, i),
                              block_at(c, rails->me, received), bytes);
        const uint64_t sent = chunk_at(c, i, out, &bytes);
        if (c->hops + 1 < count)
            cecl_plan_send(c->plan, cecl_node_carrier(rails->nodes, (rails->node + 1) % count, i),
                           source_at(c, sent), bytes);
    }
    return cecl_plan_close_exchange(c->plan);
}

static bool wants_own(const struct chain *c)
{
    return c->rails->part->way.move.no_sm && c->rails->size > 1 &&
           cecl_part_is_outside(c->rails->part, c->root);
}

/* Copies chunk k of this rank's pieces to its peers. */
static void spread_chunk(const struct chain *c, uint64_t k)
{
    const struct cecl_rails *rails = c->rails;
    for (int p = 1; p < rails->size; p++) {
        const int peer = cecl_part_peer(rails->part, p);
        for (int i = rails->local; i < c->rails_used; i += rails->size) {
            uint64_t bytes;
            const uint64_t at = chunk_at(c, i, k, &bytes);
            if (bytes > 0 && (peer != c->root || wants_own(c)))
                cecl_plan_copy(c->plan, block_at(c, peer, at), source_at(c, at), bytes);
        }
    }
}

/* The root copies chunk k of each peer's piece to that peer, and chunk k of its own piece to all peers. The
 * rank after the root returns the root's piece (return_own). */
static void root_sends(const struct chain *c, uint64_t k)
{
    const struct cecl_rails *rails = c->rails;
    for (int p = 1; p < rails->size; p++) {
        const int peer = cecl_part_peer(rails->part, p);
        uint64_t bytes;
        const uint64_t at = chunk_at(c, rails->nodes->local[peer], k, &bytes);
        if (bytes > 0)
            cecl_plan_copy(c->plan, block_at(c, peer, at), source_at(c, at), bytes);
    }
    spread_chunk(c, k);
}

/* The rank after the root returns chunk k of the root's own piece. */
static void return_own(const struct chain *c, uint64_t k)
{
    uint64_t bytes;
    const uint64_t at = chunk_at(c, c->rails->nodes->local[c->root], k, &bytes);
    if (wants_own(c) && cecl_part_peer(c->rails->part, c->rails->size - 1) == c->root && bytes > 0)
        cecl_plan_copy(c->plan, block_at(c, c->root, at), block_at(c, c->rails->me, at), bytes);
}

static void chain_of_roots_node(const struct chain *c)
{
    const bool is_root = c->rails->me == c->root;
    const struct cecl_part *part = c->rails->part;
    cecl_plan_barrier(c->plan);
    for (uint64_t k = 0; k <= c->chunks; k++) {
        if (is_root && k < c->chunks) {
            if (k == 0)
                cecl_rails_follow(c->plan);
            pass_on(c, c->chunks, k);
            root_sends(c, k);
        }
        if (is_root && k == 0 && !part->call.in_place && !wants_own(c))
            cecl_plan_copy(c->plan, block_at(c, c->root, 0), source_at(c, 0), c->all);
        if (!is_root && k > 0) {
            cecl_rails_follow(c->plan);
            pass_on(c, c->chunks, k - 1);
            spread_chunk(c, k - 1);
            return_own(c, k - 1);
        }
        cecl_plan_barrier(c->plan);
    }
}

static void chain_of_other_node(const struct chain *c)
{
    cecl_rails_follow(c->plan);
    uint32_t landed = pass_on(c, 0, c->chunks);
    cecl_plan_barrier(c->plan);
    for (uint64_t k = 0; k < c->chunks; k++) {
        const uint32_t next = pass_on(c, k + 1, k);
        cecl_rails_await(c->rails, c->plan, landed);
        spread_chunk(c, k);
        landed = next;
    }
}

static void chain(struct cecl_rails *rails, struct cecl_plan *plan, int root)
{
    const int home = rails->nodes->node[root], count = rails->nodes->count;
    struct chain c = {.rails = rails,
                      .plan = plan,
                      .root = root,
                      .rails_used = cecl_node_size(rails->nodes, home),
                      .hops = (rails->node + count - home) % count,
                      .all = cecl_call_block(&rails->part->call, root, root).bytes};
    const uint64_t each = (c.all + (uint64_t)c.rails_used - 1) / (uint64_t)c.rails_used;
    c.piece = each < CECL_PIECE_ALIGN ? each : cecl_round_up(each, CECL_PIECE_ALIGN);
    if (rails->chunk > c.piece)
        rails->chunk = c.piece;
    c.chunks = (c.piece + rails->chunk - 1) / rails->chunk;
    if (c.hops == 0)
        chain_of_roots_node(&c);
    else
        chain_of_other_node(&c);
    cecl_rails_await(rails, plan, plan->nexchanges);
    cecl_plan_barrier(plan);
}

ceclResult_t cecl_lower_nodes_gathered(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    const int only = cecl_only_contributor(&part->call);
    if (part->way.net.chain && only >= 0)
        chain(&rails, plan, only);
    else
        cecl_rails_gather(&rails, plan, NULL);
    cecl_plan_say(plan, "%d nodes, %s%" PRIu32 " exchange%s", rails.nodes->count,
                  part->way.net.chain && only >= 0 ? "one after the other, " : "", plan->nexchanges,
                  cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
