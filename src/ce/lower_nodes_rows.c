/* All-gather and all-to-all of strided blocks over several nodes.
 *
 * The network carries dense bytes. So a rank packs its blocks into staging, chunk by chunk. Received chunks
 * land in staging, and copies spread them to rows. A round is one chunk of the blocks for a wave of nodes:
 *
 *     all-gather: my chunk -> my staging; from there to its carriers; what came -> all ranks of my node
 *     all-to-all: my chunks -> staging of their carriers in my node; from there to their receivers; what came
 *                 -> my recvbuff. All that a node has for a rank goes as one message
 *
 *     main | pack 0 (barrier) | blocks within the node | pack 1 (barrier) | after 0: spread 0 | pack 2 ...
 *     net  |                  | exchange 0             |                  | exchange 1        | ...
 *
 * Chunks leave from three rooms of staging, and land in two. Only the all-to-all has the barrier, which
 * says: my chunks of this round are with you, and my room of two rounds ago is free. In a wave a rank sends
 * to the same nodes from which it receives. So in an all-to-all in place a chunk is packed before a
 * received chunk overwrites it. */
#include "ce/lower_nodes.h"

#include <inttypes.h>

#define OUT_ROOMS 3u
#define IN_ROOMS 2u

struct rows {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    bool gathers; /* one block for all ranks */
    /* how many slots a room has, for sent and for received chunks; a slot holds a chunk */
    uint64_t out, in;
    uint64_t chunks, rounds;  /* chunks of a block; all rounds */
    uint32_t ends[OUT_ROOMS]; /* the exchanges of the last rounds */
};

/* ---- staging */

static uint64_t bytes_in(const struct rows *r, uint64_t k)
{
    return cecl_chunk_left(r->rails->part->call.bytes, k % r->chunks * r->rails->chunk,
                           r->rails->chunk);
}

/* All chunks of a round have equally many bytes, and lie side by side. */
static struct cecl_place leaves_at(const struct rows *r, int rank, uint64_t k, uint64_t slot)
{
    return cecl_rails_staging(r->rails, rank,
                              k % OUT_ROOMS * r->out * r->rails->chunk + slot * bytes_in(r, k));
}

static struct cecl_place lands_at(const struct rows *r, uint64_t k, uint64_t slot)
{
    return cecl_rails_staging(r->rails, r->rails->me,
                              (OUT_ROOMS * r->out + k % IN_ROOMS * r->in) * r->rails->chunk +
                                  slot * bytes_in(r, k));
}

/* The most slots that any rank needs. The first rank of a node carries blocks for the most ranks. */
static void count_slots(struct rows *r)
{
    const struct cecl_rails *rails = r->rails;
    r->out = r->gathers;
    r->in = 0;
    for (int n = 0; n < rails->nodes->count; n++) {
        const uint64_t size = (uint64_t)cecl_node_size(rails->nodes, n);
        for (int wave = 0; wave < cecl_rails_waves(rails); wave++) {
            uint64_t carried = 0, all = 0;
            for (int t = cecl_rails_first(rails, wave); t <= cecl_rails_last(rails, wave); t++) {
                const int other = (n + cecl_rails_distance(rails, t)) % rails->nodes->count;
                carried += (uint64_t)cecl_rails_carried(rails, other, 0, (int)size);
                all += (uint64_t)cecl_node_size(rails->nodes, other);
            }
            const uint64_t out = r->gathers ? 1 : carried * size, in = r->gathers ? carried : all;
            r->out = out > r->out ? out : r->out;
            r->in = in > r->in ? in : r->in;
        }
    }
}

/* Chooses the chunk and the wave: as many nodes at a time as staging has room for. */
static ceclResult_t make_rooms(struct rows *r)
{
    struct cecl_rails *rails = r->rails;
    const uint64_t all = rails->part->call.bytes, wanted = rails->chunk < all ? rails->chunk : all;
    count_slots(r);
    while (rails->wave > 2 &&
           rails->staging_bytes / (OUT_ROOMS * r->out + IN_ROOMS * r->in) < wanted) {
        rails->wave -= 2;
        count_slots(r);
    }
    const uint64_t slots = OUT_ROOMS * r->out + IN_ROOMS * r->in,
                   most = rails->staging_bytes / slots;
    rails->chunk = most < wanted ? cecl_rails_aligned(rails, most) : wanted;
    if (rails->chunk == 0)
        return cecl_rails_too_small(rails, 2 * slots * rails->part->call.element);
    r->chunks = (all + rails->chunk - 1) / rails->chunk;
    r->rounds = r->chunks * (uint64_t)cecl_rails_waves(rails);
    return ceclSuccess;
}

/* ---- a round */

/* pack_block copies the round's chunk of a block from rows to dense memory. spread_block copies it from
 * dense memory to rows. */
static void pack_block(const struct rows *r, uint64_t k, struct cecl_place to,
                       struct cecl_extent block)
{
    const uint64_t first = k % r->chunks * r->rails->chunk;
    cecl_lower_copy(r->rails->part, r->plan, (struct cecl_extent){.at = to, .from = first}, block,
                    first, bytes_in(r, k));
}

static void spread_block(const struct rows *r, uint64_t k, struct cecl_place from,
                         struct cecl_extent block)
{
    const uint64_t first = k % r->chunks * r->rails->chunk;
    cecl_lower_copy(r->rails->part, r->plan, block, (struct cecl_extent){.at = from, .from = first},
                    first, bytes_in(r, k));
}

/* All-to-all: how many slots the earlier turns of the wave take at a carrier in this node. */
static uint64_t slots_before(const struct rows *r, int turn, int carrier)
{
    const struct cecl_rails *rails = r->rails;
    uint64_t slots = 0;
    for (int t = (turn - 1) / rails->wave * rails->wave + 1; t < turn; t++)
        slots +=
            (uint64_t)(cecl_rails_carried(rails, cecl_rails_to(rails, t), carrier, rails->size) *
                       rails->size);
    return slots;
}

/* All-to-all: this node's ranks have chunks for rank `l` of another node. Returns the first slot of these
 * chunks. */
static uint64_t slot_for(const struct rows *r, int turn, int l)
{
    return slots_before(r, turn, l % r->rails->size) +
           (uint64_t)(l / r->rails->size * r->rails->size);
}

static void hand_over(const struct rows *r, uint64_t k, int turn)
{
    const struct cecl_rails *rails = r->rails;
    const int node = cecl_rails_to(rails, turn), n = cecl_node_size(rails->nodes, node);
    for (int i = 0; i < n; i++) {
        const int l =
            (rails->local + 1 + i) % n; /* ranks of a node begin with different carriers */
        pack_block(r, k,
                   leaves_at(r, cecl_node_carrier(rails->nodes, rails->node, l), k,
                             slot_for(r, turn, l) + (uint64_t)rails->local),
                   cecl_sent(rails->part, rails->me, cecl_node_rank(rails->nodes, node, l)));
    }
}

static void pack(const struct rows *r, uint64_t k)
{
    const struct cecl_rails *rails = r->rails;
    const int wave = (int)(k / r->chunks), me = rails->me;
    if (r->gathers) {
        pack_block(r, k, leaves_at(r, me, k, 0), cecl_sent(rails->part, me, me));
        return;
    }
    for (int t = cecl_rails_first(rails, wave); t <= cecl_rails_last(rails, wave); t++)
        hand_over(r, k, t);
    cecl_plan_barrier(r->plan);
}

static void send_to(const struct rows *r, uint64_t k, int turn)
{
    const struct cecl_rails *rails = r->rails;
    const int node = cecl_rails_to(rails, turn);
    if (r->gathers) {
        cecl_plan_send(r->plan, cecl_node_carrier(rails->nodes, node, rails->local),
                       leaves_at(r, rails->me, k, 0), bytes_in(r, k));
        return;
    }
    for (int l = rails->local; l < cecl_node_size(rails->nodes, node); l += rails->size)
        cecl_plan_send(r->plan, cecl_node_rank(rails->nodes, node, l),
                       leaves_at(r, rails->me, k, slot_for(r, turn, l)),
                       (uint64_t)rails->size * bytes_in(r, k));
}

/* Receives into slot `slot` and the next ones. Returns the first slot behind them. */
static uint64_t receive_from(const struct rows *r, uint64_t k, int node, uint64_t slot)
{
    const struct cecl_rails *rails = r->rails;
    const int n = cecl_node_size(rails->nodes, node);
    if (!r->gathers) {
        cecl_plan_receive(r->plan, cecl_node_carrier(rails->nodes, node, rails->local),
                          lands_at(r, k, slot), (uint64_t)n * bytes_in(r, k));
        return slot + (uint64_t)n;
    }
    for (int l = rails->local; l < n; l += rails->size)
        cecl_plan_receive(r->plan, cecl_node_rank(rails->nodes, node, l), lands_at(r, k, slot++),
                          bytes_in(r, k));
    return slot;
}

static void exchange(struct rows *r, uint64_t k)
{
    const struct cecl_rails *rails = r->rails;
    const int wave = (int)(k / r->chunks);
    uint64_t slot = 0;
    cecl_rails_follow(r->plan);
    for (int t = cecl_rails_first(rails, wave); t <= cecl_rails_last(rails, wave); t++) {
        send_to(r, k, t);
        slot = receive_from(r, k, cecl_rails_from(rails, t), slot);
    }
    r->ends[k % OUT_ROOMS] = cecl_plan_close_exchange(r->plan);
}

/* Copies what has landed to a rank of this node; in an all-to-all, to this rank. */
static void spread_at(const struct rows *r, uint64_t k, int to)
{
    const struct cecl_rails *rails = r->rails;
    const int wave = (int)(k / r->chunks), first = r->gathers ? rails->local : 0,
              step = r->gathers ? rails->size : 1;
    uint64_t slot = 0;
    for (int t = cecl_rails_first(rails, wave); t <= cecl_rails_last(rails, wave); t++) {
        const int node = cecl_rails_from(rails, t);
        for (int l = first; l < cecl_node_size(rails->nodes, node); l += step)
            spread_block(r, k, lands_at(r, k, slot++),
                         cecl_received(rails->part, cecl_node_rank(rails->nodes, node, l), to));
    }
}

static void spread(struct rows *r, uint64_t k)
{
    const int ranks = r->gathers ? r->rails->size : 1;
    cecl_rails_await(r->rails, r->plan, r->ends[k % OUT_ROOMS]);
    for (int i = 0; i < ranks; i++)
        spread_at(r, k, cecl_part_peer(r->rails->part, i));
}

ceclResult_t cecl_lower_nodes_rows(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    struct rows r = {
        .rails = &rails, .plan = plan, .gathers = part->call.op->family == CECL_FAMILY_GATHERED};
    CECL_TRY(make_rooms(&r));
    if (!r.gathers)
        cecl_plan_barrier(plan);
    for (uint64_t k = 0; k <= r.rounds; k++) {
        if (k < r.rounds) {
            pack(&r, k);
            exchange(&r, k);
        }
        if (k == 0)
            CECL_TRY(r.gathers ? cecl_lower_gathered(&inner, plan)
                               : cecl_lower_exchanged(&inner, plan));
        else
            spread(&r, k - 1);
    }
    if (r.gathers)
        cecl_plan_barrier(plan);
    cecl_plan_say(plan, "%d nodes, rows packed and spread, %" PRIu32 " exchange%s",
                  rails.nodes->count, plan->nexchanges, cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
