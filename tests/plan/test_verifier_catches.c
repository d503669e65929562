/* The verifier finds the fault in plans that are broken in each of many ways, and its message names the
 * fault. Random changes to plans do not crash it. */
#include "broken.h"

static uint32_t find_step(const struct cecl_plan *plan, enum cecl_step_kind kind, int nth)
{
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && nth-- == 0)
            return i;
    fail_msg("no such step");
    return 0;
}

TEST(a_copy_done_again_in_a_batch_of_its_own_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    struct cecl_plan *plan = &plans[1];
    const uint32_t at = find_step(plan, CECL_STEP_COPY, 0);
    plan->steps = realloc(plan->steps, (plan->nsteps + 1) * sizeof(plan->steps[0]));
    assert_non_null(plan->steps);
    memmove(&plan->steps[at + 1], &plan->steps[at], (plan->nsteps - at) * sizeof(plan->steps[0]));
    plan->steps[at + 1].count = 1;
    plan->nsteps++;
    expect_fault(plans, "was written 2 times");
}

TEST(a_copy_beyond_its_area_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[0].copies[0].bytes += 100;
    expect_fault(plans, "out of its area");
}

TEST(a_copy_into_a_sendbuff_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
    plans[0].copies[0].dst.area = CECL_AREA_SEND;
    expect_fault(plans, "writes to the sendbuff");
}

TEST(a_copy_to_the_senders_own_part_in_place_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[0].copies[0].dst.offset = plans[0].copies[0].dst.rank * 6u;
    expect_fault(plans, "own part");
}

/* A gap byte separates any two blocks of the output, and each rank's own block ends in front of one. */
TEST(one_stray_write_between_blocks_is_caught)
{
    const uint64_t layout[2 * RANKS] = {6, 6, 6, 6, 0, 7, 14, 21};
    struct cecl_part parts[2] = {part_of(CECL_OP_ALL_GATHERV, true, CECL_PUSH, 6),
                                 part_of(CECL_OP_ALL_GATHERV, true, CECL_PUSH, 6)};
    for (int i = 0; i < 2; i++)
        set_layout(&parts[i], layout, RANKS);
    struct cecl_plan *plans = lower_all(parts, 2, RANKS);
    assert_int_equal(cecl_verify(plans, 2, RANKS), ceclSuccess);
    plans[1].copies[0].bytes++;
    expect_fault(plans, "is no output, but was written 1 times");
}

static void remove_barrier(struct cecl_plan *plans, int which)
{
    for (int r = 0; r < RANKS; r++) {
        const uint32_t at = find_step(&plans[r], CECL_STEP_SIGNAL, which * (RANKS - 1));
        for (int i = 0; i < 2 * (RANKS - 1); i++)
            drop_step(&plans[r], at);
    }
}

TEST(a_missing_first_barrier_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    remove_barrier(plans, 0);
    expect_fault(plans, "race");
}

TEST(a_missing_last_barrier_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PULL);
    remove_barrier(plans, 1);
    expect_fault(plans, "race");
}

TEST(staging_reused_without_a_barrier_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, true, CECL_PUSH);
    remove_barrier(plans, 2); /* the first barrier of the second chunk */
    expect_fault(plans, "race: staging");
}
