/* Calls in which each rank knows only its own blocks: all-to-alls with layouts of random sizes and places,
 * gathers and scatters. Also broadcasts, whole and in pieces. Each call alone, in sequences, and in groups
 * with all other calls. */
#include "plans.h"

#define PARTS_MAX 4
#define CALLS 3

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32};

/* A call, and each rank's view of it. */
struct drawn {
    struct cecl_part part;
    uint64_t *layouts; /* each rank's own, or one for all ranks, or NULL */
    int in_place_at;   /* the only rank in place, or -1 for none; -2: as `part` says */
    uint64_t differ;   /* bit r % 64: whether rank r is in place differs from `part` */
};

static uint64_t *word(const struct drawn *d, int n, int rank, int array, int peer)
{
    return &d->layouts[cecl_layout_at(n, rank * CECL_LAYOUT_OWN_ARRAYS + array, peer)];
}

/* Fills in the rest from the sizes: received blocks one after the other from some rank on, with gaps; sent
 * blocks at any place. */
static void place(uint64_t *x, const struct drawn *d, int n, bool gaps)
{
    for (int r = 0; r < n; r++) {
        const int first = gaps ? (int)(next(x) % (uint64_t)n) : 0;
        uint64_t sent = gaps ? next(x) % 3 : 0, received = gaps ? next(x) % 3 : 0;
        for (int i = 0; i < n; i++) {
            const int p = (first + i) % n;
            *word(d, n, r, CECL_LAYOUT_SENT_AT, p) = sent;
            *word(d, n, r, CECL_LAYOUT_RECEIVED_AT, p) = received;
            *word(d, n, r, CECL_LAYOUT_RECEIVED, p) = *word(d, n, p, CECL_LAYOUT_SENT, r);
            sent += *word(d, n, r, CECL_LAYOUT_SENT, p) + (gaps ? next(x) % 3 : 0);
            received += *word(d, n, r, CECL_LAYOUT_RECEIVED, p) + (gaps ? next(x) % 3 : 0);
        }
    }
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *word(d, n, r, CECL_LAYOUT_TARGET, p) = *word(d, n, p, CECL_LAYOUT_RECEIVED_AT, r);
}

static struct drawn without_blocks(uint64_t *x, int n)
{
    const enum cecl_op_index op = next(x) % 2 ? CECL_OP_ALL_TO_ALLV : CECL_OP_ALL_TO_ALLV_AT;
    struct drawn d = {.part = part_of(op, false, CECL_PUSH, 0), .in_place_at = -1};
    d.layouts = calloc((size_t)n * CECL_LAYOUT_WORDS_MAX(n), sizeof(*d.layouts));
    assert_non_null(d.layouts);
    return d;
}

static struct drawn draw_exchange(uint64_t *x, int n)
{
    struct drawn d = without_blocks(x, n);
    const uint64_t most = n > 16 ? 5 : 30;
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            *word(&d, n, r, CECL_LAYOUT_SENT, p) = next(x) % 3 == 0 ? 0 : next(x) % most;
    place(x, &d, n, true);
    return d;
}

/* An all-to-all with the blocks of a gather or a scatter. */
static struct drawn draw_rooted_exchange(uint64_t *x, int n)
{
    struct drawn d = without_blocks(x, n);
    const bool gathers = next(x) % 2;
    const int root = (int)(next(x) % (uint64_t)n);
    const uint64_t bytes = 1 + next(x) % 20;
    for (int r = 0; r < n; r++)
        *word(&d, n, gathers ? r : root, CECL_LAYOUT_SENT, gathers ? root : r) = bytes;
    place(x, &d, n, false);
    d.in_place_at = next(x) % 2 ? root : -1;
    return d;
}

/* A gather or a scatter, in which only the root may be in place. */
static struct drawn rooted(enum cecl_op_index op, int root, bool in_place, uint64_t bytes)
{
    struct drawn d = {.part = part_of(op, false, CECL_PUSH, bytes),
                      .in_place_at = in_place ? root : -1};
    d.part.call.root = root;
    return d;
}

static struct drawn draw_rooted(uint64_t *x, int n)
{
    const enum cecl_op_index op = next(x) % 2 ? CECL_OP_GATHER : CECL_OP_SCATTER;
    const int root = (int)(next(x) % (uint64_t)n);
    return rooted(op, root, next(x) % 2, 1 + next(x) % 20);
}

static struct drawn broadcast(int root, bool in_place, uint64_t bytes, uint64_t spread)
{
    struct drawn d = {.part = part_of(CECL_OP_BROADCAST, in_place, CECL_PUSH, bytes),
                      .in_place_at = -2};
    d.part.call.root = root;
    d.part.way.move.spread = spread; /* 0: whole */
    return d;
}

static struct drawn draw_broadcast(uint64_t *x, int n)
{
    const int root = (int)(next(x) % (uint64_t)n);
    struct drawn d = broadcast(root, next(x) % 2, 1 + next(x) % 60, next(x) % 5);
    if (d.part.way.move.spread == 0 && next(x) % 2)
        d.part.way.move.direction = CECL_PULL;
    return d;
}

/* A variable all-gather to which only one rank contributes. */
static struct drawn draw_only_block(uint64_t *x, int n)
{
    struct drawn d = {.part =
                          part_of(CECL_OP_ALL_GATHERV, next(x) % 2, CECL_PUSH, 1 + next(x) % 60),
                      .in_place_at = -2};
    const int only = (int)(next(x) % (uint64_t)n);
    d.layouts = calloc(CECL_LAYOUT_WORDS_MAX(n), sizeof(*d.layouts));
    assert_non_null(d.layouts);
    d.layouts[cecl_layout_at(n, CECL_LAYOUT_BYTES, only)] = d.part.call.bytes;
    d.layouts[cecl_layout_at(n, CECL_LAYOUT_AT, only)] = next(x) % 5;
    d.part.way.move.spread = next(x) % 5;
    return d;
}

static struct drawn draw_equal(uint64_t *x)
{
    const enum cecl_op_index op = next(x) % 2 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL;
    return (struct drawn){
        .part = part_of(op, next(x) % 2, next(x) % 2 ? CECL_PUSH : CECL_PULL, 1 + next(x) % 12),
        .in_place_at = -2};
}

static struct drawn draw_reduction(uint64_t *x, int n)
{
    static const enum cecl_op_index ops[] = {CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE,
                                             CECL_OP_REDUCE};
    const uint32_t element = 1u << next(x) % 3;
    struct drawn d = {.part =
                          reduction_of(ops[next(x) % 3], (uint64_t)n, 1 + next(x) % 12, element),
                      .in_place_at = -2};
    d.part.call.in_place = next(x) % 2;
    /* in several chunks, or in one, so that reductions of a group may share barriers */
    d.part.way.reduce.chunk = next(x) % 2 ? 4096 : (1 + next(x) % 6) * element;
    d.part.way.reduce.one_shot = next(x) % 3 == 0 ? 64 : 0;
    d.part.way.reduce.read_at_peers = !d.part.call.op->rooted && next(x) % 3 == 0;
    if (d.part.call.op->rooted)
        d.part.call.root = (int)(next(x) % (uint64_t)n);
    return d;
}

enum kind { EXCHANGE, ROOTED_EXCHANGE, ROOTED, BROADCAST, ONLY_BLOCK, EQUAL, REDUCTION, KINDS };

static struct drawn draw_kind(uint64_t *x, int n, enum kind kind)
{
    switch (kind) {
    case EXCHANGE: return draw_exchange(x, n);
    case ROOTED_EXCHANGE: return draw_rooted_exchange(x, n);
    case ROOTED: return draw_rooted(x, n);
    case BROADCAST: return draw_broadcast(x, n);
    case ONLY_BLOCK: return draw_only_block(x, n);
    case EQUAL: return draw_equal(x);
    default: return draw_reduction(x, n);
    }
}

static struct drawn draw(uint64_t *x, int n, enum kind kind)
{
    struct drawn d = draw_kind(x, n, kind);
    d.part.way.move.no_sm = d.part.call.op->family != CECL_FAMILY_REDUCTION && next(x) % 2;
    d.part.way.move.piece_worth = 1 + next(x) % 9;
    if (next(x) % 2)
        d.differ = next(x) | next(x) << 31;
    return d;
}

static void drop(struct drawn *d)
{
    free(d->layouts);
}

/* The order in which ranks come to a call, and what they announce. */
struct arrivals {
    bool late;
    int turn[64];                    /* [n] how many ranks come before each rank */
    uint64_t send_at[PARTS_MAX][64]; /* storage for the fields of struct cecl_part */
    uint64_t outside[PARTS_MAX][CECL_MAX_RANKS / 64];
};

static struct arrivals on_time;

/* Draws an order; all orders are equally likely. */
static struct arrivals draw_arrivals(uint64_t *x, int n)
{
    struct arrivals arrivals = {.late = n > 1};
    for (int r = 0; r < n; r++) {
        const int other = (int)(next(x) % (uint64_t)(r + 1));
        arrivals.turn[r] = arrivals.turn[other];
        arrivals.turn[other] = r;
    }
    return arrivals;
}

/* Fills in what choosing fills in for a call with late ranks. */
static void be_late(struct cecl_part *part, const struct drawn *d, int n, struct arrivals *arrivals,
                    uint64_t *send_at)
{
    const int me = part->call.rank;
    part->means.late = true;
    part->way.move.direction = CECL_PUSH;
    part->way.reduce.meet_first = part->call.op->to != CECL_TO_EACH;
    part->way.reduce.read_at_peers = false;
    for (int r = 0; r < n; r++)
        if (arrivals->turn[r] < arrivals->turn[me])
            part->earlier |= UINT64_C(1) << r;
    if (part->call.op->family != CECL_FAMILY_OWN_LAYOUT)
        return;
    for (int r = 0; r < n; r++)
        send_at[r] = part->earlier >> r & 1 ? *word(d, n, r, CECL_LAYOUT_SENT_AT, me) : UINT64_MAX;
    part->send_at = send_at;
}

static struct cecl_part part_at(const struct drawn *d, int n, int rank, struct arrivals *arrivals,
                                uint64_t *send_at, uint64_t *outside)
{
    struct cecl_part part = d->part;
    part.call.nranks = n;
    part.call.rank = rank;
    if (d->layouts)
        set_layout(&part,
                   part.call.op->family == CECL_FAMILY_OWN_LAYOUT
                       ? word(d, n, rank, CECL_LAYOUT_SENT, 0)
                       : d->layouts,
                   n);
    if (d->in_place_at != -2)
        part.call.in_place = d->in_place_at == rank;
    if (arrivals->late)
        be_late(&part, d, n, arrivals, send_at);
    learn_outside(&part, (d->part.call.in_place ? UINT64_MAX : 0) ^ d->differ, outside);
    return part;
}

static struct cecl_plan *lower_groups_of(struct drawn groups[][PARTS_MAX], const uint32_t *sizes,
                                         int ncalls, int n, struct arrivals *arrivals)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * n), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < n; r++) {
            struct cecl_part parts[PARTS_MAX];
            for (uint32_t i = 0; i < sizes[c]; i++)
                parts[i] = part_at(&groups[c][i], n, r, &arrivals[c], arrivals[c].send_at[i],
                                   arrivals[c].outside[i]);
            struct cecl_plan *plan = &plans[c * n + r];
            assert_int_equal(cecl_lower_group(parts, sizes[c], plan), ceclSuccess);
            for (uint32_t i = 0; n > 1 && i < plan->ncopies && sizes[c] == 1; i++)
                if (parts[0].way.move.no_sm && plan->copies[i].src.rank == plan->copies[i].dst.rank)
                    fail_msg("%d ranks, call %d: rank %d copies within its GPU", n, c, r);
        }
    return plans;
}

static void verify_arrivals(struct drawn groups[][PARTS_MAX], const uint32_t *sizes, int n,
                            struct arrivals *arrivals, const char *what)
{
    if (!verifies_this_time())
        return;
    struct cecl_plan *plans = lower_groups_of(groups, sizes, CALLS, n, arrivals);
    if (cecl_verify(plans, CALLS, n) != ceclSuccess)
        fail_msg("%s, %d ranks: %s", what, n, cecl_message());
    free_plans(plans, CALLS * n);
}

static void verify_groups(struct drawn groups[][PARTS_MAX], const uint32_t *sizes, int n,
                          const char *what)
{
    struct arrivals arrivals[CALLS] = {{.late = false}};
    verify_arrivals(groups, sizes, n, arrivals, what);
}

/* `kind`: KINDS mixes all kinds. */
static void verify_random(int n, int rounds, enum kind kind, uint32_t most, bool late)
{
    uint64_t x = 20261121 + (uint64_t)n;
    for (int round = 0; round < test_share(rounds); round++) {
        struct drawn groups[CALLS][PARTS_MAX];
        uint32_t sizes[CALLS];
        char what[64];
        const uint64_t staging =
            next(&x) % 2 ? 1 << 14 : 2 * PARTS_MAX * (uint64_t)n + next(&x) % 60;
        for (int c = 0; c < CALLS; c++) {
            sizes[c] = 1 + (uint32_t)next(&x) % most;
            for (uint32_t i = 0; i < sizes[c]; i++) {
                const enum kind drawn = kind < KINDS ? kind : (enum kind)(next(&x) % KINDS);
                groups[c][i] = draw(&x, n, drawn);
                groups[c][i].part.means.staging_bytes = staging;
                if (kind <= ROOTED && next(&x) % 2) /* many rounds of a few bytes */
                    groups[c][i].part.means.staging_bytes = 2 + next(&x) % 7;
            }
        }
        snprintf(what, sizeof(what), "round %d, kind %d", round, (int)kind);
        struct arrivals arrivals[CALLS] = {{.late = false}};
        for (int c = 0; c < CALLS; c++)
            if (late && next(&x) % 4 != 0)
                arrivals[c] = draw_arrivals(&x, n);
        verify_arrivals(groups, sizes, n, arrivals, what);
        for (int c = 0; c < CALLS; c++)
            for (uint32_t i = 0; i < sizes[c]; i++)
                drop(&groups[c][i]);
    }
}

static void verify_everywhere(enum kind kind, uint32_t most)
{
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++)
        verify_random(rank_counts[i], rank_counts[i] > 16 ? 3 : 25, kind, most, false);
}

TEST(blocks_of_any_size_reach_their_places)
{
    verify_everywhere(EXCHANGE, 1);
}

TEST(exchanges_with_one_root_are_right)
{
    verify_everywhere(ROOTED_EXCHANGE, 1);
}

TEST(gathers_and_scatters_are_right)
{
    verify_everywhere(ROOTED, 1);
}

TEST(broadcasts_in_pieces_are_right)
{
    verify_everywhere(BROADCAST, 1);
}

TEST(only_blocks_in_pieces_are_right)
{
    verify_everywhere(ONLY_BLOCK, 1);
}

TEST(groups_of_all_calls_are_right)
{
    verify_everywhere(KINDS, PARTS_MAX);
}

/* Ranks come in any order: to each call of each kind alone, and to groups of all kinds. */
TEST(calls_that_ranks_come_late_to_are_right)
{
    for (int n = 2; n <= 9; n++)
        for (int kind = EXCHANGE; kind < KINDS; kind++)
            verify_random(n, 25, (enum kind)kind, 1, true);
}

TEST(groups_that_ranks_come_late_to_are_right)
{
    for (int n = 2; n <= 9; n++)
        verify_random(n, 60, KINDS, PARTS_MAX, true);
    verify_random(32, 2, KINDS, PARTS_MAX, true);
}

/* Each rank sends its own block through the next rank's staging, in any number of chunks. */
TEST(carried_blocks_arrive)
{
    for (int n = 1; n <= 9; n++)
        for (uint64_t staging = 2; staging <= 64; staging *= 2)
            for (int no_sm = 0; no_sm < 2; no_sm++) {
                struct cecl_part parts[3];
                for (int c = 0; c < 3; c++) {
                    parts[c] = part_of(CECL_OP_CARRY, false, CECL_PUSH, 1 + 13 * (uint64_t)c);
                    parts[c].way.move.no_sm = no_sm;
                    parts[c].means.staging_bytes = staging;
                }
                verify_calls(parts, 3, n);
            }
}

/* ---- every root */

/* Bits that vary a call. */
enum { IN_PLACE = 1, NO_SM = 2, HOWS = 4 };

static struct drawn as(struct drawn d, int how, uint64_t staging)
{
    d.part.way.move.no_sm = how & NO_SM;
    d.part.way.move.piece_worth = 5;
    d.part.means.staging_bytes = staging;
    return d;
}

/* The call itself, then with another root and out of place, then in the reverse direction. */
static void verify_root(enum cecl_op_index op, int n, int root, int how)
{
    static const struct {
        uint64_t bytes, staging;
    } cases[] = {{1, 2}, {20, 7}, {21, 2}, {22, 4096}}; /* whole; 7 rounds; 21 rounds; whole */
    static const uint32_t sizes[CALLS] = {1, 1, 1};
    const enum cecl_op_index back = op == CECL_OP_GATHER ? CECL_OP_SCATTER : CECL_OP_GATHER;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const uint64_t bytes = cases[i].bytes, staging = cases[i].staging;
        struct drawn calls[CALLS][PARTS_MAX];
        char what[64];
        calls[0][0] = as(rooted(op, root, how & IN_PLACE, bytes), how, staging);
        calls[1][0] = as(rooted(op, (root + 1) % n, false, bytes), how, staging);
        calls[2][0] = as(rooted(back, root, how & IN_PLACE, bytes), how, staging);
        snprintf(what, sizeof(what), "%s, root %d, how %d, case %zu", cecl_ops[op].name, root, how,
                 i);
        verify_groups(calls, sizes, n, what);
    }
}

static void verify_every_root(enum cecl_op_index op)
{
    for (int n = 1; n <= 16; n++)
        for (int root = 0; root < n; root++)
            for (int how = 0; how < HOWS; how++)
                verify_root(op, n, root, how);
}

TEST(a_gather_to_every_root_is_right)
{
    verify_every_root(CECL_OP_GATHER);
}

TEST(a_scatter_from_every_root_is_right)
{
    verify_every_root(CECL_OP_SCATTER);
}

TEST(a_broadcast_from_every_root_is_right)
{
    static const uint64_t bytes[] = {1, 17, 60};
    static const uint32_t sizes[CALLS] = {1, 1, 1};
    for (int at = 0; at < 16 * 16 * HOWS * 3; at++) {
        const int n = 1 + at % 16, root = at / 16 % 16, how = at / 256 % HOWS, i = at / 256 / HOWS;
        struct drawn calls[CALLS][PARTS_MAX];
        char what[64];
        if (root >= n)
            continue;
        for (uint64_t spread = 0; spread < 4; spread++) {
            calls[0][0] = as(broadcast(root, how & IN_PLACE, bytes[i], spread), how, 4096);
            calls[1][0] = as(broadcast((root + 1) % n, false, bytes[i], 3 - spread), how, 4096);
            calls[2][0] = as(broadcast(root, how & IN_PLACE, bytes[i], 0), how, 4096);
            calls[2][0].part.way.move.direction = CECL_PULL;
            snprintf(what, sizeof(what), "root %d, how %d, %d bytes, spread %d", root, how,
                     (int)bytes[i], (int)spread);
            verify_groups(calls, sizes, n, what);
        }
    }
}

/* A gather, a scatter, a broadcast and another call in one group; then two calls; then one. The staging
 * that two calls share is too small for the scatter's own block. */
TEST(groups_with_every_root_are_right)
{
    static const enum cecl_op_index others[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                                CECL_OP_REDUCE_SCATTER};
    static const uint32_t sizes[CALLS] = {4, 2, 1};
    for (int at = 0; at < 9 * 9 * HOWS * 3; at++) {
        const int n = 1 + at % 9, root = at / 9 % 9, how = at / 81 % HOWS;
        const enum cecl_op_index other = others[at / 81 / HOWS];
        const bool in_place = how & IN_PLACE,
                   reduces = cecl_ops[other].family == CECL_FAMILY_REDUCTION;
        struct drawn groups[CALLS][PARTS_MAX], *first = groups[0];
        char what[64];
        if (root >= n)
            continue;
        first[0] = as(rooted(CECL_OP_GATHER, root, in_place, 12), how, 48);
        first[1] = as(rooted(CECL_OP_SCATTER, (root + 1) % n, in_place, 26), how, 48);
        first[2] = as(broadcast(root, in_place, 30, (uint64_t)root % 3), how, 48);
        first[3] = (struct drawn){.part = reduces ? reduction_of(other, (uint64_t)n, 5, 1)
                                                  : part_of(other, in_place, CECL_PUSH, 9),
                                  .in_place_at = -2};
        first[3] = as(first[3], reduces ? 0 : how, 48);
        groups[1][0] = first[1];
        groups[1][1] = first[0];
        groups[2][0] = first[1];
        snprintf(what, sizeof(what), "%s, root %d, how %d", cecl_ops[other].name, root, how);
        verify_groups(groups, sizes, n, what);
    }
}

/* ---- the shape of plans */

/* Two ranks that keep `own` bytes each and exchange 4. */
static struct cecl_part swap_part(uint64_t layout[2][10], int rank, uint64_t own, uint64_t staging)
{
    for (int r = 0; r < 2; r++)
        for (int p = 0; p < 2; p++) {
            uint64_t *mine = layout[r];
            mine[0 + p] = mine[6 + p] = p == r ? own : 4;
            mine[2 + p] = mine[8 + p] = p == 0 ? 0 : r == 0 ? own : 4;
            mine[4 + p] = r == 0 ? 0 : p == 0 ? own : 4;
        }
    struct cecl_part part = part_of(CECL_OP_ALL_TO_ALLV, false, CECL_PUSH, 0);
    part.call.nranks = 2;
    part.call.rank = rank;
    set_layout(&part, layout[rank], 2);
    part.way.move.no_sm = true;
    part.means.staging_bytes = staging;
    return part;
}

TEST(all_ranks_have_two_barriers_whatever_they_lend)
{
    uint64_t layout[2][10];
    static const uint64_t owns[] = {0, 1, 8, 9, 100};
    static const uint32_t copies[] = {1, 3, 3, 7, 51}; /* the block; two for each round */
    for (size_t i = 0; i < 5; i++) {
        const struct cecl_part part = swap_part(layout, 0, owns[i], 8);
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
        assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
        assert_int_equal(plan.ncopies, copies[i]);
        assert_int_equal(cecl_plan_local_copies(&plan), 0);
        cecl_plan_free(&plan);
    }
}

TEST(staging_of_one_byte_is_refused_by_all)
{
    uint64_t layout[2][10];
    for (uint64_t own = 0; own < 2; own++) {
        const struct cecl_part part = swap_part(layout, 0, own, 1);
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&part, &plan), ceclInvalidUsage);
        assert_non_null(strstr(cecl_message(), "stagingBytes"));
    }
}

/* Staging of 7 has halves of 3: a block of 20 bytes takes 7 rounds in each direction. */
TEST(the_roots_own_block_goes_in_rounds)
{
    const uint32_t rounds = 7, peers = 3;
    for (int at = 0; at < 4 * 2 * 2; at++) {
        const int rank = at % 4, root = 2;
        const bool in_place = at / 4 % 2, gathers = at / 8, is_root = rank == root;
        const struct drawn d =
            as(rooted(gathers ? CECL_OP_GATHER : CECL_OP_SCATTER, root, in_place, 20), NO_SM, 7);
        const struct cecl_part part = part_at(&d, 4, rank, &on_time, NULL, on_time.outside[0]);
        const uint32_t sent = gathers ? !is_root : is_root ? peers : 0;
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
        assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
        assert_int_equal(plan.ncopies, sent + (is_root && !in_place ? 2 * rounds : 0));
        assert_int_equal(cecl_plan_local_copies(&plan), 0);
        cecl_plan_free(&plan);
    }
}

/* A whole block passes its root's link once for each peer; in pieces, once in total. */
TEST(a_broadcast_in_pieces_leaves_its_root_once)
{
    for (uint64_t spread = 0; spread < 3; spread++)
        for (int how = IN_PLACE; how < HOWS; how++) {
            const struct drawn d = as(broadcast(1, how & IN_PLACE, 60, spread), how, 4096);
            const struct cecl_part part = part_at(&d, 4, 1, &on_time, NULL, on_time.outside[0]);
            struct cecl_plan plan;
            assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
            assert_int_equal(cecl_plan_bytes(&plan), spread ? 60 : 3 * 60);
            assert_int_equal(plan.ncopies, spread ? 3 * spread : 3);
            cecl_plan_free(&plan);
        }
}

/* In how many rounds the call's only block is sent, in pieces. 0: it is sent whole. */
static uint64_t spread_of(const struct cecl_call *call)
{
    struct cecl_part part = {.call = *call, .means.staging_bytes = 1 << 20};
    choose(&part);
    assert_false(part.way.small);
    return part.way.move.spread;
}

TEST(a_whole_block_or_its_pieces_as_the_table_says)
{
    static const struct {
        uint64_t bytes;
        int nranks, direction;
        uint64_t rounds;
    } cases[] = {{(1 << 20) - 1, 8, 0, 0}, {1 << 20, 8, 0, 1},  {1 << 20, 3, 0, 1},
                 {1 << 20, 2, 0, 0},       {64 << 20, 4, 0, 5}, {64 << 20, 4, 2, 0},
                 {1u << 31, 4, 0, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t layout[16] = {0};
        struct cecl_part part = part_of(CECL_OP_ALL_GATHERV, true, CECL_PUSH, cases[i].bytes);
        part.call.nranks = cases[i].nranks;
        part.call.options = (struct cecl_options){CECL_SM_NEVER, (uint8_t)cases[i].direction, 0};
        set_layout(&part, layout, cases[i].nranks);
        layout[1] = cases[i].bytes;
        assert_int_equal(spread_of(&part.call), cases[i].rounds);
        layout[0] = 1; /* two ranks contribute: not a broadcast */
        assert_int_equal(spread_of(&part.call), 0);
        part.call.op = &cecl_ops[CECL_OP_BROADCAST];
        part.call.root = 1;
        part.call.view.layout = NULL;
        part.call.layout_words = 0;
        assert_int_equal(spread_of(&part.call), cases[i].rounds);
        part.call.op = &cecl_ops[CECL_OP_ALL_GATHER]; /* all ranks contribute */
        part.call.root = 0;
        assert_int_equal(spread_of(&part.call), 0);
    }
}

/* ---- faults that the verifier finds */

static struct cecl_plan *swap_plans(uint64_t layout[2][10])
{
    struct cecl_plan *plans = calloc(2, sizeof(*plans));
    assert_non_null(plans);
    for (int r = 0; r < 2; r++) {
        const struct cecl_part part = swap_part(layout, r, 6, 16);
        assert_int_equal(cecl_lower(&part, &plans[r]), ceclSuccess);
    }
    assert_int_equal(cecl_verify(plans, 1, 2), ceclSuccess);
    return plans;
}

static void found(struct cecl_plan *plans, const char *words)
{
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    if (!strstr(cecl_message(), words))
        fail_msg("not found: %s; said: %s", words, cecl_message());
    free_plans(plans, 2);
}

/* Merges rank 0's first and second batch. */
TEST(a_fetch_beside_its_lending_is_a_race)
{
    uint64_t layout[2][10];
    struct cecl_plan *plans = swap_plans(layout);
    struct cecl_step *steps = plans[0].steps;
    assert_true(steps[2].kind == CECL_STEP_COPY && steps[3].kind == CECL_STEP_COPY);
    steps[2].count += steps[3].count;
    memmove(&steps[3], &steps[4], (plans[0].nsteps - 4) * sizeof(*steps));
    plans[0].nsteps--;
    found(plans, "race: staging");
}

TEST(wrong_places_are_found)
{
    uint64_t layout[2][10];
    struct cecl_plan *plans = swap_plans(layout);
    plans[0].copies[1].src.offset--; /* a byte of another rank's block */
    found(plans, "is not byte");
    plans = swap_plans(layout);
    plans[0].copies[1].dst.offset++;
    found(plans, "race: recvbuff of rank 1"); /* overwrites a byte of its own block */
    plans = swap_plans(layout);
    layout[0][5]++; /* changes the place that rank 0 assumes for rank 1 */
    found(plans, "the block for rank 1 is not the one that it receives");
    plans = swap_plans(layout);
    layout[1][6]++;
    found(plans, "the block for rank 1 is not the one that it receives");
}

/* A gather, scatter or broadcast of two ranks, out of place, with local copies on every GPU. */
static struct cecl_plan *rooted_plans(enum cecl_op_index op)
{
    struct cecl_part part = part_of(op, false, CECL_PUSH, 6);
    part.call.root = 1;
    struct cecl_plan *plans = lower_all(&part, 1, 2);
    assert_int_equal(cecl_verify(plans, 1, 2), ceclSuccess);
    return plans;
}

TEST(roots_and_sizes_that_differ_are_found)
{
    static const enum cecl_op_index ops[] = {CECL_OP_GATHER, CECL_OP_SCATTER, CECL_OP_BROADCAST};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        struct cecl_plan *plans = rooted_plans(ops[i]);
        plans[1].part.call.root = 0;
        found(plans, "ranks are in different calls");
        plans = rooted_plans(ops[i]);
        plans[1].part.call.bytes++;
        found(plans, "ranks are in different calls");
        plans = rooted_plans(ops[i]);
        plans[0].part.call.root = plans[1].part.call.root = 2; /* not a rank */
        found(plans, "ranks are in different calls");
        plans = rooted_plans(ops[i]);
        plans[0].part.call.root = plans[1].part.call.root = 0; /* not the root of the plans */
        assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
        free_plans(plans, 2);
    }
}

TEST(an_own_block_that_stands_is_not_written)
{
    static const enum cecl_op_index ops[] = {CECL_OP_GATHER, CECL_OP_SCATTER};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        struct cecl_plan *plans = rooted_plans(ops[i]);
        plans[1].part.call.in_place = true; /* the root still copies its block */
        found(plans, "own part of an in-place call");
    }
}

/* Buffers that only the root has: the result of a gather, the input of a scatter. */
TEST(what_the_root_alone_has_is_nowhere_else)
{
    struct cecl_plan *plans = rooted_plans(CECL_OP_GATHER);
    plans[1].copies[0].dst.rank = 0;
    found(plans, "out of its area");
    plans = rooted_plans(CECL_OP_SCATTER);
    plans[1].copies[0].src.rank = 0;
    found(plans, "out of its area");
}
