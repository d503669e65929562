/* The order of a plan's steps: each series of signals, waits or copies starts with the right neighbour, and
 * chunks fit staging. Also: building a plan without memory. */
#include "plans.h"

#define RANKS 7

static struct cecl_plan lower_one(enum cecl_op_index op, bool in_place,
                                  enum cecl_direction direction, int rank, uint64_t bytes,
                                  uint64_t staging_bytes)
{
    struct cecl_part part = part_of(op, in_place, direction, bytes);
    struct cecl_plan plan;
    part.call.nranks = RANKS;
    part.call.rank = rank;
    part.means.staging_bytes = staging_bytes;
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    return plan;
}

/* The peer that a copy of `rank` serves: the other end, or, in a copy within `rank`, the block's owner. */
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
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL};
    for (int rank = 0; rank < RANKS; rank++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int direction = CECL_PUSH; direction <= CECL_PULL; direction++)
                for (int i = 0; i < 2; i++) {
                    struct cecl_plan plan =
                        lower_one(ops[i], in_place, (enum cecl_direction)direction, rank, 24,
                                  10 * (RANKS - 1));
                    expect_rotation(&plan);
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

/* All chunks but the last are the largest multiple of 256 bytes that fits for each peer. */
TEST(chunks_through_staging_are_aligned_and_as_large_as_fit)
{
    const uint64_t staging = (RANKS - 1) * 1000 + 5, chunk = 768, bytes = 2 * chunk + 100;
    struct cecl_plan plan = lower_one(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 2, bytes, staging);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 6);
    assert_string_equal(plan.path, "push through staging, 3 chunks");
    for (uint32_t i = 0; i < plan.ncopies; i++) {
        const struct cecl_copy *copy = &plan.copies[i];
        const bool last = i / (2 * (RANKS - 1)) == 2; /* into staging, and out of it */
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
