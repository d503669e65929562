/* The reduce-scatter over several nodes, of which all reductions over nodes consist (lower_nodes_reduce.c). For each
 * rank of another node, a node reduces the blocks that its own ranks have for that rank, and sends the partial
 * result over that rank's rail. Each rank reduces the partial results of all nodes:
 *
 *     main | barrier | for each round k: my blocks for ranks of a wave of nodes -> staging of their
 *          |   carriers in my node; signal "they are there"
 *     side | for each round k: once they are there: reduce them to partial results; signal "room is free"
 *     net  | for each round k: partial results -> their ranks; those of other nodes for me -> my staging
 *     side | for each chunk, once all nodes' partial results are there: reduce them to the result
 *
 * A chunk of a block has one round for each wave of nodes, and one for the ranks of this node.
 *
 * Sums are made in the order of ranks within a node, and then in the order of nodes. So they depend on which
 * ranks share a node, and on nothing else: all ranks have the same bits, every time.
 *
 * Staging has three kinds of rooms, and each kind is used by turns: two rooms for blocks that peers send,
 * three for partial results (one is filled while two are sent), and two in which a chunk's partial results
 * arrive from all nodes.
 *
 * Tiles (call/tiles.h) go the same way. But kernels and the network take contiguous blocks, so a rank copies its
 * own tiles to staging, too: to its room for blocks, or, if it is alone in its node, to that for partial results. */
#include "ce/lower_nodes.h"

#define IN_ROOMS CECL_CHUNKS_IN_FLIGHT
#define PARTIAL_ROOMS 3u
#define CHUNKS_KEPT 2u
#define LEAST_WAVES 3

struct fold {
    struct cecl_rails *rails;
    struct cecl_plan *plan;
    struct cecl_shares shares;
    struct cecl_place result; /* where this rank's share of the result goes */
    bool tiles;               /* the input is tiles */
    bool packs;               /* this rank's input is reduced or packed before it is sent */
    uint64_t chunk;
    uint64_t per_chunk, rounds; /* per_chunk: rounds of a chunk; rounds: of all chunks */
    /* how many places a room has: for inputs, for partial results */
    uint64_t inputs, partials;
    uint32_t sent[PARTIAL_ROOMS]; /* the exchanges that sent the last partial results */
};

/* ---- places */

static uint64_t first_of(const struct fold *f, uint64_t k)
{
    return k / f->per_chunk * f->chunk;
}

static uint64_t bytes_of(const struct fold *f, int rank, uint64_t k)
{
    return cecl_chunk_left(cecl_share_bytes(&f->shares, rank), first_of(f, k), f->chunk);
}

static struct cecl_place input_at(const struct fold *f, int rank, uint64_t k)
{
    const struct cecl_part *part = f->rails->part;
    return cecl_place_at(part->call.in_place ? CECL_AREA_RECV : CECL_AREA_SEND, f->rails->me,
                         f->shares.base + (uint64_t)rank * f->shares.each + first_of(f, k));
}

static struct cecl_place place(const struct fold *f, int rank, uint64_t index)
{
    return cecl_rails_staging(f->rails, rank, index * f->chunk);
}

/* A round has the turns of a wave, each for the blocks for one node. The last round of a chunk is for this
 * node, and has only turn 0. */
static bool is_own_round(const struct fold *f, uint64_t k)
{
    return k % f->per_chunk + 1 == f->per_chunk;
}
static int first_turn(const struct fold *f, uint64_t k)
{
    return is_own_round(f, k) ? 0 : cecl_rails_first(f->rails, (int)(k % f->per_chunk));
}
static int last_turn(const struct fold *f, uint64_t k)
{
    return is_own_round(f, k) ? 0 : cecl_rails_last(f->rails, (int)(k % f->per_chunk));
}
static int node_at(const struct fold *f, int turn)
{
    return turn == 0 ? f->rails->node : cecl_rails_to(f->rails, turn);
}

/* The number of ranks for which a carrier has blocks in a round before turn `turn`. */
static uint64_t before_turn(const struct fold *f, uint64_t k, int turn, int carrier)
{
    uint64_t count = 0;
    for (int t = first_turn(f, k); t < turn; t++)
        count += (uint64_t)cecl_rails_carried(f->rails, node_at(f, t), carrier, f->rails->size);
    return count;
}

/* How many ranks of a node of `size` ranks send blocks to the same carrier's staging: all if blocks are tiles,
 * except that a rank that is alone packs its tiles elsewhere. */
static uint64_t senders(const struct fold *f, int size)
{
    return f->tiles && size > 1 ? (uint64_t)size : (uint64_t)size - 1;
}

/* Places in staging. In a round a carrier has blocks for several ranks; `index` counts these ranks.
 * sent_at: where a peer's block for such a rank lies at the carrier. partial_at: where this rank, as a
 * carrier, has its partial result for such a rank. node_result_at: where this rank has a node's partial
 * result for its own block. */
static struct cecl_place sent_at(const struct fold *f, uint64_t k, uint64_t index, int carrier,
                                 int sender)
{
    const uint64_t at =
        index * senders(f, f->rails->size) + (uint64_t)(sender - (!f->tiles && sender > carrier));
    return place(f, cecl_node_rank(f->rails->nodes, f->rails->node, carrier),
                 k % IN_ROOMS * f->inputs + at);
}
static struct cecl_place partial_at(const struct fold *f, uint64_t k, uint64_t index)
{
    return place(f, f->rails->me, IN_ROOMS * f->inputs + k % PARTIAL_ROOMS * f->partials + index);
}
static struct cecl_place node_result_at(const struct fold *f, uint64_t k, int node)
{
    return place(f, f->rails->me,
                 IN_ROOMS * f->inputs + PARTIAL_ROOMS * f->partials +
                     k / f->per_chunk % CHUNKS_KEPT * (uint64_t)f->rails->nodes->count +
                     (uint64_t)node);
}

/* ---- rounds */

/* Copies this rank's block of round k for rank `to` to staging. */
static void stage(const struct fold *f, uint64_t k, struct cecl_place dst, int to)
{
    const uint64_t bytes = bytes_of(f, to, k);
    if (f->tiles)
        cecl_lower_tiles(f->rails->part, f->plan, dst, to, first_of(f, k), bytes);
    else if (bytes > 0)
        cecl_plan_copy(f->plan, dst, input_at(f, to, k), bytes);
}

/* Sends this rank's blocks of round k to their carriers. */
static void send_blocks(const struct fold *f, uint64_t k)
{
    const struct cecl_rails *rails = f->rails;
    for (int p = 1; p < rails->size; p++) {
        const int carrier = (rails->local + p) % rails->size;
        for (int turn = first_turn(f, k); turn <= last_turn(f, k); turn++) {
            const int node = node_at(f, turn);
            uint64_t index = before_turn(f, k, turn, carrier);
            for (int l = carrier; l < cecl_node_size(rails->nodes, node); l += rails->size)
                stage(f, k, sent_at(f, k, index++, carrier, rails->local),
                      cecl_node_rank(rails->nodes, node, l));
        }
    }
}

static uint32_t main_turn(const struct fold *f, uint64_t k)
{
    if (k >= f->rounds)
        return 0;
    if (k > 0)
        cecl_plan_wait_all(f->plan, CECL_LANE_MAIN, f->plan->phases[CECL_LANE_MAIN]);
    if (k >= IN_ROOMS)
        cecl_plan_wait_all(f->plan, CECL_LANE_SIDE, f->plan->phases[CECL_LANE_SIDE]);
    send_blocks(f, k);
    return cecl_plan_signal_all(f->plan);
}

/* What is done in round k with the blocks for rank `to`, which this rank carries: it copies its own tiles to its
 * room for blocks, reduces the node's blocks to a partial result, or sends that result. */
typedef void carry_fn(const struct fold *f, uint64_t k, uint64_t index, int to);

static void stage_own(const struct fold *f, uint64_t k, uint64_t index, int to)
{
    if (f->rails->size > 1)
        stage(f, k, sent_at(f, k, index, f->rails->local, f->rails->local), to);
}

static void reduce_blocks(const struct fold *f, uint64_t k, uint64_t index, int to)
{
    const struct cecl_rails *rails = f->rails;
    const struct cecl_place result =
        is_own_round(f, k) ? node_result_at(f, k, rails->node) : partial_at(f, k, index);
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int l = 0; l < rails->size; l++)
        sources[l] = l == rails->local && !f->tiles ? input_at(f, to, k)
                                                    : sent_at(f, k, index, rails->local, l);
    if (rails->size == 1)
        stage(f, k, result, to);
    else if (bytes_of(f, to, k) > 0)
        cecl_plan_reduce_partly(f->plan, result, sources, (uint32_t)rails->size,
                                bytes_of(f, to, k));
}

static void send_partial(const struct fold *f, uint64_t k, uint64_t index, int to)
{
    cecl_plan_send(f->plan, to, f->packs ? partial_at(f, k, index) : input_at(f, to, k),
                   bytes_of(f, to, k));
}

static void each_carried(const struct fold *f, uint64_t k, carry_fn *act)
{
    const struct cecl_rails *rails = f->rails;
    uint64_t index = 0;
    for (int turn = first_turn(f, k); turn <= last_turn(f, k); turn++) {
        const int node = node_at(f, turn);
        for (int l = rails->local; l < cecl_node_size(rails->nodes, node); l += rails->size)
            act(f, k, index++, cecl_node_rank(rails->nodes, node, l));
    }
}

static void side_turn(const struct fold *f, uint64_t k, uint32_t arrived)
{
    cecl_plan_on(f->plan, CECL_LANE_SIDE);
    if (f->tiles)
        each_carried(f, k, stage_own);
    cecl_plan_wait_all(f->plan, CECL_LANE_MAIN, arrived);
    if (f->packs) {
        cecl_plan_after_exchange(f->plan, f->sent[k % PARTIAL_ROOMS]);
        each_carried(f, k, reduce_blocks);
    }
    if (k + IN_ROOMS < f->rounds)
        cecl_plan_signal_all(f->plan);
    cecl_plan_on(f->plan, CECL_LANE_MAIN);
}

static void net_turn(struct fold *f, uint64_t k)
{
    const struct cecl_rails *rails = f->rails;
    if (is_own_round(f, k))
        return;
    cecl_plan_on(f->plan, CECL_LANE_SIDE);
    cecl_rails_follow(f->plan);
    cecl_plan_on(f->plan, CECL_LANE_MAIN);
    each_carried(f, k, send_partial);
    for (int turn = first_turn(f, k); turn <= last_turn(f, k); turn++) {
        const int node = cecl_rails_from(rails, turn);
        cecl_plan_receive(f->plan, cecl_node_carrier(rails->nodes, node, rails->local),
                          node_result_at(f, k, node), bytes_of(f, rails->me, k));
    }
    f->sent[k % PARTIAL_ROOMS] = cecl_plan_close_exchange(f->plan);
}

/* Reduces the nodes' partial results for the chunk of round k, once exchange `last` has brought them. */
static void finish_chunk(const struct fold *f, uint64_t k, uint32_t last)
{
    const struct cecl_rails *rails = f->rails;
    struct cecl_place sources[CECL_MAX_RANKS];
    for (int n = 0; n < rails->nodes->count; n++)
        sources[n] =
            n == rails->node && !f->packs ? input_at(f, rails->me, k) : node_result_at(f, k, n);
    cecl_plan_on(f->plan, CECL_LANE_SIDE);
    cecl_plan_after_exchange(f->plan, last);
    if (bytes_of(f, rails->me, k) > 0)
        cecl_plan_reduce(f->plan, cecl_place_on(f->result, first_of(f, k)), sources,
                         (uint32_t)rails->nodes->count, bytes_of(f, rails->me, k));
    cecl_plan_on(f->plan, CECL_LANE_MAIN);
}

/* The last reduction of a chunk comes after the rounds of the next chunk, so that these rounds need not
 * wait until the network has brought the partial results. */
static void fold_rounds(struct fold *f)
{
    uint32_t last = 0, before = 0;
    cecl_plan_barrier(f->plan);
    cecl_begin_side(f->plan);
    cecl_end_side(f->plan);
    uint32_t arrived = main_turn(f, 0);
    for (uint64_t k = 0; k < f->rounds; k++) {
        const uint32_t next = main_turn(f, k + 1);
        side_turn(f, k, arrived);
        net_turn(f, k);
        arrived = next;
        if (!is_own_round(f, k))
            continue;
        last = f->plan->nexchanges;
        if (k >= f->per_chunk)
            finish_chunk(f, k - f->per_chunk, before);
        before = last;
    }
    finish_chunk(f, f->rounds - 1, last);
    cecl_plan_after_other(f->plan);
    cecl_rails_await(f->rails, f->plan, f->plan->nexchanges);
}

/* ---- how much goes at a time */

/* Finds for how many ranks a carrier has blocks in one round, at most, and how many blocks peers send to a
 * carrier in one round, at most. */
static void measure(struct fold *f, int wave)
{
    const struct cecl_rails *rails = f->rails;
    const int count = rails->nodes->count;
    f->partials = f->inputs = 0;
    for (int n = 0; n < count; n++) {
        const int size = cecl_node_size(rails->nodes, n);
        uint64_t carried = 1, inputs;
        for (int turn = 1, now = 0; turn < count; turn++) {
            const int to = (n + cecl_rails_distance(rails, turn)) % count;
            now = (turn - 1) % wave == 0 ? 0 : now;
            now += (cecl_node_size(rails->nodes, to) + size - 1) / size;
            carried = (uint64_t)now > carried ? (uint64_t)now : carried;
        }
        inputs = carried * senders(f, size);
        f->partials = carried > f->partials ? carried : f->partials;
        f->inputs = inputs > f->inputs ? inputs : f->inputs;
    }
}

static uint64_t places(const struct fold *f)
{
    return IN_ROOMS * f->inputs + PARTIAL_ROOMS * f->partials +
           CHUNKS_KEPT * (uint64_t)f->rails->nodes->count;
}

ceclResult_t cecl_rails_fold(struct cecl_rails *rails, struct cecl_plan *plan,
                             const struct cecl_shares *shares, struct cecl_place result)
{
    const bool tiles = rails->part->call.op->has_tiles;
    struct cecl_rails now = *rails;
    struct fold f = {.rails = &now,
                     .plan = plan,
                     .shares = *shares,
                     .result = result,
                     .tiles = tiles,
                     .packs = tiles || rails->size > 1};
    const uint64_t wanted = rails->chunk < shares->each ? rails->chunk : shares->each;
    /* if a block has several chunks, a chunk has several rounds, so that lanes work on different rounds */
    const int most = (now.nodes->count - 1) / LEAST_WAVES;
    if (wanted < shares->each && now.wave > most)
        now.wave = most < 2 ? 2 : most & ~1;
    measure(&f, now.wave);
    while (now.wave > 2 && rails->staging_bytes / places(&f) < wanted) {
        now.wave -= 2;
        measure(&f, now.wave);
    }
    const uint64_t room = rails->staging_bytes / places(&f);
    f.chunk = cecl_rails_aligned(rails, room < wanted ? room : wanted);
    if (f.chunk == 0)
        return cecl_rails_too_small(rails, places(&f) * rails->part->call.element);
    f.per_chunk = (uint64_t)cecl_rails_waves(&now) + 1;
    f.rounds = (shares->each + f.chunk - 1) / f.chunk * f.per_chunk;
    fold_rounds(&f);
    rails->awaited = now.awaited;
    return ceclSuccess;
}
