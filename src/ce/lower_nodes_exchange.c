/* All-to-all over several nodes, of equal blocks or by layouts, and scatter, where only the root sends.
 *
 * A rank first hands each block for a rank t of another node to a carrier. This is the rank of the sender's
 * own node that is on t's rail. The carrier has all that its node sends to t, and sends it over the rail to
 * t's recvbuff. So a rail carries one message for each pair of nodes, and not one for each pair of ranks.
 *
 *     main | barrier | round 0: my blocks for a wave of nodes -> staging of their carriers | barrier
 *          | round 1 -> the next room | barrier | blocks within the node | after 0: round 2 ... |
 *     net  |                         round 0: staging -> other nodes, theirs -> recvbuff | round 1 | ...
 *
 * Staging has three rooms. The barrier of round k says: my blocks of this round are with you, and the room
 * of round k - 2 is free. So one exchange travels while the next round is handed over.
 *
 * Out of place a carrier sends its own block directly from sendbuff. In place it cannot, because the
 * received block is written where the sent block lies. So the next rank carries that block too. In a wave a
 * rank sends to the same ranks from which it receives (cecl_rails_distance). So a block has left its place
 * before another block arrives there.
 *
 * If each rank has a layout of its own, a carrier must know how many bytes the ranks of its node send
 * (node_sends). If that is not known, each rank sends its own blocks, without staging. */
#include "ce/lower_nodes.h"

#include <inttypes.h>

#define ROOMS 3u

struct swap {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    bool direct;          /* each rank carries its own blocks */
    uint64_t chunk, room; /* bytes of a chunk and of a room */
    /* how many chunks of a wave this node hands over, and how many in all waves */
    uint64_t handed, rounds;
    uint64_t begun;       /* rounds that were handed over so far */
    uint32_t sent[ROOMS]; /* the exchanges that sent the last rounds */
};

static bool is_alike(const struct cecl_part *part)
{
    return part->call.op->family == CECL_FAMILY_EXCHANGED;
}

/* Whether each rank knows the blocks of all others. */
static bool knows_all(const struct cecl_part *part)
{
    return part->call.op->family != CECL_FAMILY_OWN_LAYOUT;
}

/* Whether received blocks are written where sent blocks lie, so that a rank cannot send its own block
 * directly from there. */
static bool takes_places(const struct cecl_part *part)
{
    return is_alike(part) && part->call.in_place;
}

static uint64_t bytes_of(const struct swap *s, int from, int to)
{
    const struct cecl_part *part = s->rails->part;
    const struct cecl_nodes *nodes = s->rails->nodes;
    return from == s->rails->me || to == s->rails->me || knows_all(part)
               ? cecl_call_block(&part->call, from, to).bytes
               : part->node_sends[(size_t)nodes->local[from] * (size_t)nodes->nranks + (size_t)to];
}

/* The rank that sends the block from rank `from` to rank `to`: it is on the same node as `from`. */
static int carrier_of(const struct swap *s, int from, int to)
{
    const struct cecl_nodes *nodes = s->rails->nodes;
    const int node = nodes->node[from];
    const int carrier = cecl_node_carrier(nodes, node, nodes->local[to]);
    if (s->direct)
        return from;
    return carrier == from && takes_places(s->rails->part)
               ? cecl_node_carrier(nodes, node, nodes->local[from] + 1)
               : carrier;
}

static bool is_staged(const struct swap *s, int from, int to)
{
    return carrier_of(s, from, to) != from || takes_places(s->rails->part);
}

/* ---- staging: a slot for each block that a carrier sends in a round */

static int slots_of_turn(const struct swap *s, int node, int carrier)
{
    const struct cecl_rails *rails = s->rails;
    const int before = (carrier + rails->size - 1) % rails->size;
    return cecl_rails_carried(rails, node, carrier, rails->size) * (rails->size - 1) +
           (takes_places(rails->part) ? cecl_rails_carried(rails, node, before, rails->size) : 0);
}

/* Where a block for rank `to` lies in the carrier's staging. The carrier is a rank of this node. */
static struct cecl_place slot_of(const struct swap *s, int turn, int from, int to)
{
    const struct cecl_rails *rails = s->rails;
    const struct cecl_nodes *nodes = rails->nodes;
    const int carrier = carrier_of(s, from, to), y = nodes->local[carrier], l = nodes->local[from],
              target = nodes->local[to];
    int slot = 0;
    for (int t = (turn - 1) / rails->wave * rails->wave + 1; t < turn; t++)
        slot += slots_of_turn(s, cecl_rails_to(rails, t), y);
    if (target % rails->size == l && takes_places(rails->part))
        slot += cecl_rails_carried(rails, nodes->node[to], y, rails->size) * (rails->size - 1) +
                target / rails->size;
    else
        slot += target / rails->size * (rails->size - 1) + l - (l > y);
    return cecl_rails_staging(rails, carrier,
                              s->begun % ROOMS * s->room + (uint64_t)slot * s->chunk);
}

/* The largest number of slots that a rank needs in a wave, if waves have `wave` nodes. */
static uint64_t most_slots(const struct cecl_rails *rails, int wave)
{
    const struct cecl_nodes *nodes = rails->nodes;
    uint64_t most = 0;
    for (int n = 0; n < nodes->count; n++) {
        const int size = cecl_node_size(nodes, n);
        const int senders = takes_places(rails->part) ? size : size - 1;
        uint64_t slots = 0;
        for (int turn = 1; turn < nodes->count && senders > 0; turn++) {
            const int to = (n + cecl_rails_distance(rails, turn)) % nodes->count;
            if ((turn - 1) % wave == 0)
                slots = 0;
            slots += (uint64_t)((cecl_node_size(nodes, to) + size - 1) / size * senders);
            most = slots > most ? slots : most;
        }
    }
    return most;
}

/* Chooses the chunk and the wave: as many nodes at a time as staging has room for. */
static ceclResult_t make_rooms(struct swap *s)
{
    struct cecl_rails *rails = s->rails;
    /* with a layout on each rank, no rank knows the largest block */
    const uint64_t most = knows_all(rails->part) ? rails->part->call.bytes : UINT64_MAX;
    const uint64_t wanted = rails->chunk < most ? rails->chunk : most;
    uint64_t slots = most_slots(rails, rails->wave);
    s->room = rails->staging_bytes / ROOMS;
    while (rails->wave > 2 && slots > 0 && s->room / slots < wanted) {
        rails->wave -= 2;
        slots = most_slots(rails, rails->wave);
    }
    s->chunk =
        slots > 0 && s->room / slots < wanted ? cecl_rails_aligned(rails, s->room / slots) : wanted;
    return s->chunk > 0
               ? ceclSuccess
               : cecl_rails_too_small(rails, 2 * ROOMS * slots * rails->part->call.element);
}

/* ---- rounds */

/* How many consecutive ranks, from local index `l` of a node on, have their blocks for `to` side by side at
 * one carrier, so that the carrier sends them as one message. */
static int run_of(const struct swap *s, int node, int l, int to)
{
    const struct cecl_nodes *nodes = s->rails->nodes;
    const int first = cecl_node_rank(nodes, node, l), carrier = carrier_of(s, first, to);
    int n = 1;
    if (!is_alike(s->rails->part) || s->chunk < s->rails->part->call.bytes ||
        !is_staged(s, first, to) || nodes->local[to] % cecl_node_size(nodes, node) == l)
        return 1;
    while (l + n < cecl_node_size(nodes, node) &&
           nodes->local[to] % cecl_node_size(nodes, node) != l + n &&
           cecl_node_rank(nodes, node, l + n) == first + n &&
           carrier_of(s, first + n, to) == carrier)
        n++;
    return n;
}

static void hand_over(const struct swap *s, int turn, uint64_t first)
{
    const struct cecl_rails *rails = s->rails;
    const int node = cecl_rails_to(rails, turn);
    for (int i = 0; i < cecl_node_size(rails->nodes, node); i++) {
        /* ranks of a node begin with different carriers */
        const int to = cecl_node_rank(rails->nodes, node,
                                      (rails->local + 1 + i) % cecl_node_size(rails->nodes, node));
        const uint64_t bytes = cecl_chunk_left(bytes_of(s, rails->me, to), first, s->chunk);
        if (bytes > 0 && is_staged(s, rails->me, to))
            cecl_plan_copy(s->plan, slot_of(s, turn, rails->me, to),
                           cecl_place_on(cecl_sent(rails->part, rails->me, to).at, first), bytes);
    }
}

static void send_to(const struct swap *s, int turn, int to, uint64_t first)
{
    const struct cecl_rails *rails = s->rails;
    for (int l = 0, n; l < rails->size; l += n) {
        const int from = cecl_node_rank(rails->nodes, rails->node, l);
        n = run_of(s, rails->node, l, to);
        if (carrier_of(s, from, to) != rails->me)
            continue;
        cecl_plan_send(s->plan, to,
                       is_staged(s, from, to)
                           ? slot_of(s, turn, from, to)
                           : cecl_place_on(cecl_sent(rails->part, from, to).at, first),
                       (uint64_t)n * cecl_chunk_left(bytes_of(s, from, to), first, s->chunk));
    }
}

static void receive_from(const struct swap *s, int node, uint64_t first)
{
    const struct cecl_rails *rails = s->rails;
    for (int l = 0, n; l < cecl_node_size(rails->nodes, node); l += n) {
        const int from = cecl_node_rank(rails->nodes, node, l);
        n = run_of(s, node, l, rails->me);
        cecl_plan_receive(s->plan, carrier_of(s, from, rails->me),
                          cecl_place_on(cecl_received(rails->part, from, rails->me).at, first),
                          (uint64_t)n *
                              cecl_chunk_left(bytes_of(s, from, rails->me), first, s->chunk));
    }
}

static void exchange(const struct swap *s, int wave, uint64_t first)
{
    const struct cecl_rails *rails = s->rails;
    for (int turn = cecl_rails_first(rails, wave); turn <= cecl_rails_last(rails, wave); turn++) {
        const int node = cecl_rails_to(rails, turn);
        for (int i = 0; i < cecl_node_size(rails->nodes, node); i++)
            send_to(s, turn, cecl_node_rank(rails->nodes, node, i), first);
        receive_from(s, cecl_rails_from(rails, turn), first);
    }
}

/* Adds the part of the call within this node. In a scatter only the root's node has such a part. */
static void within(const struct swap *s, const struct cecl_part *inner, ceclResult_t *result)
{
    const struct cecl_nodes *nodes = s->rails->nodes;
    if (inner->call.op->family == CECL_FAMILY_AT_ROOT &&
        nodes->node[inner->call.root] != s->rails->node)
        return;
    if (*result == ceclSuccess)
        *result = is_alike(inner) ? cecl_lower_exchanged(inner, s->plan)
                                  : cecl_lower_per_rank(inner, s->plan);
}

static void round_of(struct swap *s, int wave, uint64_t k)
{
    const struct cecl_rails *rails = s->rails;
    const uint64_t first = k * s->chunk;
    const bool hands_over = !s->direct && k < s->handed;
    if (hands_over) {
        for (int turn = cecl_rails_first(rails, wave); turn <= cecl_rails_last(rails, wave); turn++)
            hand_over(s, turn, first);
        cecl_rails_await(s->rails, s->plan, s->sent[(s->begun + 1) % ROOMS]);
        cecl_plan_barrier(s->plan);
        cecl_rails_follow(s->plan);
    }
    exchange(s, wave, first);
    const uint32_t last = cecl_plan_close_exchange(s->plan);
    if (hands_over)
        s->sent[s->begun++ % ROOMS] = last;
}

static uint64_t chunks_in(const struct swap *s, uint64_t bytes)
{
    return s->chunk ? bytes / s->chunk + (bytes % s->chunk > 0) : 0;
}

/* Counts the chunks of the largest block that leaves this node, and the chunks of the largest block that
 * this rank receives. */
static void count_rounds(struct swap *s)
{
    const struct cecl_rails *rails = s->rails;
    uint64_t sent = 0, received = 0;
    for (int r = 0; r < rails->nodes->nranks; r++) {
        if (rails->nodes->node[r] == rails->node)
            continue;
        const uint64_t in = bytes_of(s, r, rails->me);
        received = in > received ? in : received;
        for (int l = 0; l < rails->size; l++) {
            const int from = cecl_node_rank(rails->nodes, rails->node, l);
            const uint64_t out = s->direct && from != rails->me ? 0 : bytes_of(s, from, r);
            sent = out > sent ? out : sent;
        }
    }
    s->handed = chunks_in(s, sent);
    s->rounds = chunks_in(s, received > sent ? received : sent);
}

ceclResult_t cecl_lower_nodes_exchanged(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    struct swap s = {
        .rails = &rails, .plan = plan, .direct = !knows_all(part) && !part->node_sends};
    ceclResult_t result = ceclSuccess;
    bool is_within = false;
    if (s.direct)
        s.chunk = rails.chunk;
    else
        CECL_TRY(make_rooms(&s));
    count_rounds(&s);
    if (!s.direct && s.handed > 0)
        cecl_plan_barrier(plan);
    cecl_rails_follow(plan);
    for (int wave = 0; wave < cecl_rails_waves(&rails); wave++)
        for (uint64_t k = 0; k < s.rounds; k++) {
            round_of(&s, wave, k);
            if (s.begun == 2 && !is_within)
                within(&s, &inner, &result);
            is_within = is_within || s.begun == 2;
        }
    if (!is_within)
        within(&s, &inner, &result);
    cecl_rails_await(&rails, plan, plan->nexchanges);
    cecl_plan_say(plan, "%d nodes, %s%" PRIu32 " exchange%s", rails.nodes->count,
                  s.direct ? "directly, " : "within the node first, ", plan->nexchanges,
                  cecl_plural(plan->nexchanges));
    return result;
}
