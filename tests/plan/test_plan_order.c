/* The order of a plan's steps: each series of signals, waits or copies begins with the next rank, and chunks fit
 * in staging. Also: what a builder returns after a failed allocation. */
#include "plans.h"

#define RANKS 7

static struct cecl_plan lower_one(enum cecl_op_index op, bool in_place,
                                  enum cecl_direction direction, int rank, uint64_t bytes,
                                  uint64_t staging_bytes)
{
    struct cecl_part part = part_of(op, in_place, direction, bytes);
    part.means.staging_bytes = staging_bytes;
    return lower_at(part, RANKS, rank);
}

/* The peer at the other end of the copy; the block's owner if both ends are this rank. */
static int partner(const struct cecl_plan *plan, const struct cecl_copy *copy)
{
    if (copy->dst.rank != plan->part.call.rank)
        return copy->dst.rank;
    if (copy->src.rank != plan->part.call.rank)
        return copy->src.rank;
    return (int)(copy->dst.offset / plan->part.call.bytes);
}

static void expect_rotation_of_batch(const struct cecl_plan *plan, const struct cecl_step *batch)
{
    assert_in_range(batch->count, RANKS - 1, RANKS);
    for (uint32_t i = 0; i < batch->count; i++) {
        const int expected =
            (plan->part.call.rank + 1 + (int)i) % RANKS; /* the own block, if any, comes last */
        assert_int_equal(partner(plan, &plan->copies[batch->first + i]), expected);
    }
}

static void expect_rotation(const struct cecl_plan *plan)
{
    int flags = 0;
    for (uint32_t s = 0; s < plan->nsteps; s++) {
        const struct cecl_step *step = &plan->steps[s];
        if (step->kind != CECL_STEP_COPY) {
            assert_int_equal(step->peer, (plan->part.call.rank + 1 + flags % (RANKS - 1)) % RANKS);
            flags++;
        } else if (step->count > 1) {
            expect_rotation_of_batch(plan, step);
        }
    }
    assert_int_equal(flags, 2 * (RANKS - 1) * (int)plan->phases[CECL_LANE_MAIN]);
}

TEST(every_round_goes_from_the_right_neighbour_on)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_BARRIER};
    for (int rank = 0; rank < RANKS; rank++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int direction = CECL_PUSH; direction <= CECL_PULL; direction++)
                for (int i = 0; i < 3; i++) {
                    struct cecl_plan plan =
                        lower_one(ops[i], in_place, (enum cecl_direction)direction, rank, 24,
                                  10 * (RANKS - 1));
                    expect_rotation(&plan);
                    if (ops[i] == CECL_OP_BARRIER) /* a signal to each, and a wait for each */
                        assert_int_equal(plan.nsteps, 2 * (RANKS - 1));
                    cecl_plan_free(&plan);
                }
}

TEST(a_pull_out_of_place_copies_its_own_block_before_it_says_so)
{
    struct cecl_plan plan = lower_one(CECL_OP_ALL_GATHER, false, CECL_PULL, 3, 24, 0);
    assert_int_equal(plan.steps[0].kind, CECL_STEP_COPY);
    assert_int_equal(plan.steps[0].count, 1);
    assert_int_equal(plan.copies[0].src.area, CECL_AREA_SEND);
    for (uint32_t i = 1; i < plan.ncopies; i++)
        assert_int_equal(plan.copies[i].src.area, CECL_AREA_RECV); /* sendbuff may be private */
    cecl_plan_free(&plan);
}

TEST(chunks_through_staging_are_aligned_and_as_large_as_fit)
{
    const uint64_t staging = (RANKS - 1) * 1000 + 5, chunk = 768, bytes = 2 * chunk + 100;
    struct cecl_plan plan = lower_one(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 2, bytes, staging);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 6);
    assert_string_equal(plan.path, "push through staging, 3 chunks");
    for (uint32_t i = 0; i < plan.ncopies; i++) {
        const struct cecl_copy *copy = &plan.copies[i];
        const bool last = i / (2 * (RANKS - 1)) == 2; /* 2 copies a peer: in, and out again */
        const struct cecl_place *in_staging =
            copy->dst.area == CECL_AREA_STAGING ? &copy->dst : &copy->src;
        assert_int_equal(in_staging->area, CECL_AREA_STAGING);
        assert_int_equal(copy->bytes, last ? 100 : chunk);
        assert_true(in_staging->offset % 256 == 0);
        assert_true(in_staging->offset + copy->bytes <= staging);
    }
    cecl_plan_free(&plan);
}

TEST(staging_of_one_byte_a_peer_is_enough)
{
    struct cecl_plan plan = lower_one(CECL_OP_ALL_TO_ALL, true, CECL_PULL, 0, 3, RANKS - 1);
    assert_string_equal(plan.path, "push through staging, 3 chunks");
    cecl_plan_free(&plan);
}

TEST(a_builder_that_lost_a_step_hands_back_nothing)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 8);
    const struct cecl_plan nothing = {0};
    struct cecl_plan plan;
    part.call.nranks = RANKS;
    cecl_plan_init(&plan, &part);
    cecl_plan_barrier(&plan);
    const uint32_t nsteps = plan.nsteps;
    plan.failed = true; /* the state after a failed allocation */
    cecl_plan_copy(&plan, (struct cecl_place){.rank = 1}, (struct cecl_place){.rank = 0}, 8);
    cecl_plan_barrier(&plan);
    assert_int_equal(plan.nsteps, nsteps);
    assert_int_equal(cecl_plan_finish(&plan), ceclOutOfMemory);
    assert_memory_equal(&plan, &nothing, sizeof(plan));
}

/* A call. `in_place_at`: the only rank in place; -1: no rank is; -2: all ranks are or none is, as `part` says. */
struct drawn {
    struct cecl_part part;
    int in_place_at;
    uint64_t outside[CECL_MAX_RANKS / 64]; /* for the parts that part_at makes */
};

/* A gather or a scatter, in which only the root may be in place. */
static struct drawn rooted(enum cecl_op_index op, int root, bool in_place, uint64_t bytes)
{
    struct drawn d = {.part = part_of(op, false, CECL_PUSH, bytes),
                      .in_place_at = in_place ? root : -1};
    d.part.call.root = root;
    return d;
}

static struct drawn broadcast(int root, bool in_place, uint64_t bytes, uint64_t spread)
{
    struct drawn d = {.part = part_of(CECL_OP_BROADCAST, in_place, CECL_PUSH, bytes),
                      .in_place_at = -2};
    d.part.call.root = root;
    d.part.way.move.spread = spread; /* 0: in whole blocks */
    return d;
}

static struct cecl_part part_at(struct drawn *d, int n, int rank)
{
    struct cecl_part part = d->part;
    part.call.nranks = n;
    part.call.rank = rank;
    if (d->in_place_at != -2)
        part.call.in_place = d->in_place_at == rank;
    learn_outside(&part, d->part.call.in_place ? UINT64_MAX : 0, d->outside);
    return part;
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
                if (!verifies_this_time())
                    continue;
                struct cecl_plan *plans = lower_all(parts, 3, n);
                if (cecl_verify(plans, 3, n) != ceclSuccess)
                    fail_msg("%d ranks, %d bytes of staging, no_sm %d: %s", n, (int)staging, no_sm,
                             cecl_message());
                free_plans(plans, 3 * n);
            }
}

enum { IN_PLACE = 1, NO_SM = 2, HOWS = 4 };

static struct drawn as(struct drawn d, int how, uint64_t staging)
{
    d.part.way.move.no_sm = how & NO_SM;
    d.part.way.move.piece_worth = 5;
    d.part.means.staging_bytes = staging;
    return d;
}

/* A call of two ranks. Each keeps `own` bytes, and sends 4 to the other. */
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
    static const uint32_t copies[] = {1, 3, 3, 7, 51}; /* the peer's block, and two a round */
    for (size_t i = 0; i < 5; i++) {
        const struct cecl_part part = swap_part(layout, 0, owns[i], 8);
        struct cecl_plan plan = lower_at(part, 2, 0);
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

/* Staging of 7 bytes has halves of 3: a block of 20 bytes takes 7 rounds in each direction. */
TEST(the_roots_own_block_goes_in_rounds)
{
    const uint32_t rounds = 7, peers = 3;
    for (int at = 0; at < 4 * 2 * 2; at++) {
        const int rank = at % 4, root = 2;
        const bool in_place = at / 4 % 2, gathers = at / 8, is_root = rank == root;
        struct drawn d =
            as(rooted(gathers ? CECL_OP_GATHER : CECL_OP_SCATTER, root, in_place, 20), NO_SM, 7);
        const struct cecl_part part = part_at(&d, 4, rank);
        const uint32_t sent = gathers ? !is_root : is_root ? peers : 0;
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
        assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
        assert_int_equal(plan.ncopies, sent + (is_root && !in_place ? 2 * rounds : 0));
        assert_int_equal(cecl_plan_local_copies(&plan), 0);
        cecl_plan_free(&plan);
    }
}

/* A whole block leaves its root once for each peer; in pieces, each byte leaves it once. */
TEST(a_broadcast_in_pieces_leaves_its_root_once)
{
    for (uint64_t spread = 0; spread < 3; spread++)
        for (int how = IN_PLACE; how < HOWS; how++) {
            struct drawn d = as(broadcast(1, how & IN_PLACE, 60, spread), how, 4096);
            const struct cecl_part part = part_at(&d, 4, 1);
            struct cecl_plan plan;
            assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
            assert_int_equal(cecl_plan_bytes(&plan), spread ? 60 : 3 * 60);
            assert_int_equal(plan.ncopies, spread ? 3 * spread : 3);
            cecl_plan_free(&plan);
        }
}
