/* Gather over several nodes. A reduce uses this too, to gather the shares of its result.
 *
 *     other nodes | net: chunk 0 of my block -> its carrier on the root's node | chunk 1 | ...
 *     root's node | net: chunks of a wave of nodes -> my staging | the next, -> the other room | ...
 *                 | main: my block -> root | after the first: staging -> root | ... | barrier |
 *
 * All rails of the root's node bring blocks, and copy engines take them to the root. What comes on the
 * root's own rail goes to its place at once. The two rooms are used by turns. Only this rank uses its rooms:
 * the network's lane waits for the rank's copies, so no flag is needed. */
#include "ce/lower_nodes.h"

#include <inttypes.h>

struct collect {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    const struct cecl_shares *shares;
    struct cecl_place at; /* where this rank's share lies */
    int home;             /* the root's node */
    uint64_t chunks, room;
};

static uint64_t bytes_of(const struct collect *c, int rank)
{
    return c->shares ? cecl_share_bytes(c->shares, rank) : c->rails->part->call.bytes;
}

static struct cecl_place target_of(const struct collect *c, int rank)
{
    const int root = c->rails->part->call.root;
    return c->shares ? cecl_place_at(CECL_AREA_RECV, root,
                                     c->shares->base + (uint64_t)rank * c->shares->each)
                     : cecl_received(c->rails->part, rank, root).at;
}

/* The node whose blocks come at a turn. Nodes take turns in order, beginning with the node after the root's
 * node. */
static int node_at(const struct collect *c, int turn)
{
    return (c->home + turn) % c->rails->nodes->count;
}

/* The most blocks that a rank of the root's node receives at once. */
static uint64_t most_slots(const struct collect *c)
{
    const struct cecl_rails *rails = c->rails;
    const int size = cecl_node_size(rails->nodes, c->home);
    uint64_t most = 0;
    for (int wave = 0; wave < cecl_rails_waves(rails) && size > 1; wave++) {
        uint64_t slots = 0;
        for (int t = cecl_rails_first(rails, wave); t <= cecl_rails_last(rails, wave); t++)
            slots += (uint64_t)cecl_rails_carried(rails, node_at(c, t), 0, size);
        most = slots > most ? slots : most;
    }
    return most;
}

static ceclResult_t cut(struct collect *c)
{
    struct cecl_rails *rails = c->rails;
    const uint64_t most = c->shares ? c->shares->each : rails->part->call.bytes,
                   slots = most_slots(c);
    c->room = rails->staging_bytes / 2;
    if (rails->chunk > most)
        rails->chunk = most;
    if (slots > 0 && c->room / slots < rails->chunk)
        rails->chunk = cecl_rails_aligned(rails, c->room / slots);
    if (rails->chunk == 0)
        return cecl_rails_too_small(rails, 4 * slots * rails->part->call.element);
    c->chunks = (most + rails->chunk - 1) / rails->chunk;
    return ceclSuccess;
}

static struct cecl_place landing(const struct collect *c, uint64_t k, int rank, uint64_t slot)
{
    const struct cecl_rails *rails = c->rails;
    return rails->me == rails->part->call.root
               ? cecl_place_on(target_of(c, rank), k % c->chunks * rails->chunk)
               : cecl_rails_staging(rails, rails->me, k % 2 * c->room + slot * rails->chunk);
}

/* Round k, which is chunk k % chunks: receives blocks, or (`on`) copies them to the root. */
static uint32_t take(const struct collect *c, uint64_t k, bool on)
{
    const struct cecl_rails *rails = c->rails;
    const int wave = (int)(k / c->chunks);
    const uint64_t first = k % c->chunks * rails->chunk;
    uint64_t slot = 0;
    for (int t = cecl_rails_first(rails, wave);
         wave < cecl_rails_waves(rails) && t <= cecl_rails_last(rails, wave); t++) {
        const int node = node_at(c, t);
        for (int l = rails->local; l < cecl_node_size(rails->nodes, node); l += rails->size) {
            const int from = cecl_node_rank(rails->nodes, node, l);
            const uint64_t bytes = cecl_chunk_left(bytes_of(c, from), first, rails->chunk);
            const struct cecl_place place = landing(c, k, from, slot++);
            if (!on)
                cecl_plan_receive(c->plan, from, place, bytes);
            else if (bytes > 0)
                cecl_plan_copy(c->plan, cecl_place_on(target_of(c, from), first), place, bytes);
        }
    }
    return on ? 0 : cecl_plan_close_exchange(c->plan);
}

static void push_own(const struct collect *c)
{
    const struct cecl_rails *rails = c->rails;
    cecl_plan_barrier(c->plan);
    if (rails->me != rails->part->call.root && bytes_of(c, rails->me) > 0)
        cecl_plan_copy(c->plan, target_of(c, rails->me), c->at, bytes_of(c, rails->me));
}

static ceclResult_t at_home(const struct collect *c, const struct cecl_part *within)
{
    const struct cecl_rails *rails = c->rails;
    const bool is_root = rails->me == rails->part->call.root;
    const uint64_t rounds = (uint64_t)cecl_rails_waves(rails) * c->chunks;
    cecl_rails_follow(c->plan);
    uint32_t landed[2] = {take(c, 0, false), take(c, 1, false)};
    if (within)
        CECL_TRY(cecl_lower_per_rank(within, c->plan));
    else
        push_own(c);
    for (uint64_t k = 0; k < rounds; k++) {
        cecl_rails_await(c->rails, c->plan, landed[k % 2]);
        if (!is_root) {
            take(c, k, true);
            cecl_rails_follow(c->plan);
        }
        landed[k % 2] = take(c, k + 2, false);
    }
    cecl_plan_barrier(c->plan);
    return ceclSuccess;
}

ceclResult_t cecl_rails_to_root(struct cecl_rails *rails, struct cecl_plan *plan,
                                const struct cecl_shares *shares, struct cecl_place at,
                                const struct cecl_part *within)
{
    struct collect c = {.rails = rails,
                        .plan = plan,
                        .shares = shares,
                        .at = at,
                        .home = rails->nodes->node[rails->part->call.root]};
    CECL_TRY(cut(&c));
    if (rails->node == c.home)
        return at_home(&c, within);
    cecl_rails_follow(plan);
    for (uint64_t k = 0; k < c.chunks; k++) {
        const uint64_t first = k * rails->chunk;
        cecl_plan_send(plan, cecl_node_carrier(rails->nodes, c.home, rails->local),
                       cecl_place_on(at, first),
                       cecl_chunk_left(bytes_of(&c, rails->me), first, rails->chunk));
        cecl_plan_close_exchange(plan);
    }
    cecl_rails_await(rails, plan, plan->nexchanges);
    return ceclSuccess;
}

ceclResult_t cecl_lower_nodes_at_root(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    if (part->call.op->to != CECL_TO_ROOT)
        return cecl_lower_nodes_exchanged(part, plan);
    CECL_TRY(cecl_rails_to_root(&rails, plan, NULL,
                                cecl_sent(part, part->call.rank, part->call.root).at, &inner));
    cecl_plan_say(plan, "%d nodes, by all rails of the root's, %" PRIu32 " exchange%s",
                  rails.nodes->count, plan->nexchanges, cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
