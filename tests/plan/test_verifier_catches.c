/* The verifier finds faults that test_verifier_mutations.c never makes, and says where. It accepts a harmless change. */
#include "plans.h"

#define RANKS 4

static struct cecl_plan *two_gathers(void)
{
    const struct cecl_part part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 6),
                           parts[2] = {part, part};
    return lower_all(parts, 2, RANKS);
}

static void expect_fault_in_two(struct cecl_plan *plans, const char *words)
{
    expect_fault(plans, 2, RANKS, words);
    free_plans(plans, 2 * RANKS);
}

TEST(a_copy_done_again_in_a_batch_of_its_own_is_caught)
{
    struct cecl_plan *plans = two_gathers(), *plan = &plans[1];
    const uint32_t at = find_step(plan, CECL_STEP_COPY, CECL_LANE_MAIN, 0);
    plan->steps = realloc(plan->steps, (plan->nsteps + 1) * sizeof(plan->steps[0]));
    assert_non_null(plan->steps);
    memmove(&plan->steps[at + 1], &plan->steps[at], (plan->nsteps - at) * sizeof(plan->steps[0]));
    plan->steps[at + 1].count = 1;
    plan->nsteps++;
    expect_fault_in_two(plans, "was written 2 times");
}

TEST(a_copy_into_a_sendbuff_is_caught)
{
    const struct cecl_part part = part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 6),
                           parts[2] = {part, part};
    struct cecl_plan *plans = lower_all(parts, 2, RANKS);
    plans[0].copies[0].dst.area = CECL_AREA_SEND;
    expect_fault_in_two(plans, "writes to the sendbuff");
}

/* Between any two blocks of the output lies a gap of one byte, and each rank's own block ends right before a gap. */
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
    expect_fault_in_two(plans, "is no output, but was written 1 times");
}

TEST(a_fault_of_form_names_call_rank_and_step)
{
    struct cecl_plan *plans = two_gathers();
    assert_int_equal(plans[RANKS + 2].steps[1].kind, CECL_STEP_SIGNAL);
    plans[RANKS + 2].steps[1].peer = RANKS;
    expect_fault_in_two(plans, "call 1, rank 2, step 1: ");
}

TEST(a_race_names_both_uses_and_their_steps)
{
    struct cecl_plan *plans = two_gathers(), *plan = &plans[RANKS + 1]; /* rank 1's second call */
    struct cecl_step *last = &plan->steps[find_step(plan, CECL_STEP_COPY, CECL_LANE_MAIN, 0) - 1];
    last->phase = plan->steps[0].phase; /* the form stays right, but rank 0 is not awaited */
    assert_int_equal(last->peer, 0);
    last->peer = 2;
    expect_fault_in_two(
        plans, "race: recvbuff of rank 0, bytes 6 to 11: the user of rank 0 before call 1 and "
               "the write of call 1, rank 1, step 6 have no order");
}

/* Removes `count` steps from step `from` on from all plans of a call by splits: each of 3 ranks sends 2 rows to each.
 * The steps are tell, 2 signals and 2 waits, move, 2 signals and 2 waits. */
static void expect_splits_fault(uint32_t from, uint32_t count, const char *words)
{
    enum { N = 3, STAGING = 1 << 14 };
    static uint64_t splits[2 * N] = {2, 2, 2}, out[2 * N];
    const uint64_t layout[CECL_LAYOUT_SPLITS_WORDS] = {[CECL_LAYOUT_SEND_ROWS] = 2 * N,
                                                       [CECL_LAYOUT_RECV_ROWS] = 2 * N,
                                                       [CECL_LAYOUT_ROW_BYTES] = 3,
                                                       [CECL_LAYOUT_EXPERTS] = 1,
                                                       [CECL_LAYOUT_ALIGN] = 1,
                                                       [CECL_LAYOUT_SPLITS] = (uintptr_t)splits,
                                                       [CECL_LAYOUT_SPLITS_OUT] = (uintptr_t)out};
    struct cecl_part part = part_of(CECL_OP_ALL_TO_ALLV_DEVICE, false, CECL_PUSH, 2 * N * 3);
    part.means.staging_bytes = part.means.table_offset = part.means.table_bytes = STAGING;
    set_layout(&part, layout, N);
    struct cecl_plan *plans = lower_all(&part, 1, N);
    assert_int_equal(cecl_verify(plans, 1, N), ceclSuccess);
    for (int r = 0; r < N; r++)
        for (uint32_t i = 0; i < count; i++)
            drop_step(&plans[r], from);
    expect_fault(plans, 1, N, words);
    free_plans(plans, N);
}

TEST(a_missing_step_or_wait_of_a_call_by_splits_is_caught)
{
    expect_splits_fault(0, 1, "has not told its splits");
    expect_splits_fault(3, 2, "rank"); /* rows arrive before the peers are ready */
    expect_splits_fault(5, 1, "output");
    expect_splits_fault(8, 2, "rank");
}

/* Flags only grow: a later signal also ends the wait, and its sender has come further. */
TEST(a_later_signal_makes_up_for_a_missing_one)
{
    const struct cecl_part part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 5);
    struct cecl_plan *plans = lower_all(&part, 1, RANKS);
    struct cecl_plan *plan = &plans[1];
    assert_int_equal(plan->steps[0].kind, CECL_STEP_SIGNAL);
    drop_step(plan, 0);
    if (cecl_verify(plans, 1, RANKS) != ceclSuccess)
        fail_msg("%s", cecl_message());
    free_plans(plans, RANKS);
}
