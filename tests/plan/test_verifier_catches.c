/* The verifier finds the fault in plans that are broken in each of many ways, and its message names the
 * fault. Random changes to plans do not crash it. */
#include "broken.h"

static void drop_step(struct cecl_plan *plan, uint32_t at)
{
    memmove(&plan->steps[at], &plan->steps[at + 1],
            (plan->nsteps - at - 1) * sizeof(plan->steps[0]));
    plan->nsteps--;
}

static uint32_t find_step(const struct cecl_plan *plan, enum cecl_step_kind kind, int nth)
{
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && nth-- == 0)
            return i;
    fail_msg("no such step");
    return 0;
}

TEST(a_dropped_signal_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    drop_step(
        &plans[5],
        find_step(
            &plans[5], CECL_STEP_SIGNAL,
            RANKS)); /* in the last phase of the last call, so that no later signal replaces it */
    expect_fault(plans, "deadlock");
}

TEST(a_dropped_wait_before_the_copies_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    drop_step(&plans[2], find_step(&plans[2], CECL_STEP_WAIT, 1));
    expect_fault(plans, "race");
}

TEST(a_dropped_wait_after_the_copies_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, false, CECL_PULL);
    drop_step(&plans[1], find_step(&plans[1], CECL_STEP_WAIT, RANKS - 1));
    expect_fault(plans, "race");
}

TEST(a_duplicated_copy_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[1].copies[1] = plans[1].copies[0];
    expect_fault(plans, "race"); /* a batch has no order */
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

TEST(a_dropped_copy_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
    plans[3].steps[find_step(&plans[3], CECL_STEP_COPY, 0)].count--;
    expect_fault(plans, "was written 0 times");
}

TEST(a_target_offset_that_is_off_by_one_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
    plans[0].copies[0].dst.offset++;
    expect_fault(plans, "race"); /* races with the neighbour's block */
}

TEST(a_source_offset_that_is_off_by_one_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
    plans[0].copies[0].src.offset++;
    expect_fault(plans, "is not byte");
}

TEST(a_wrong_source_rank_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PULL);
    plans[0].copies[0].src.rank = plans[0].copies[1].src.rank;
    expect_fault(plans, "race"); /* races with that rank's own pull into the same place */
}

TEST(a_copy_beyond_its_area_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[0].copies[0].bytes += 100;
    expect_fault(plans, "out of its area");
}

TEST(a_copy_to_the_wrong_area_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
    plans[0].copies[0].dst.area = CECL_AREA_STAGING;
    plans[0].copies[0].dst.offset = 0;
    expect_fault(plans, "was written 0 times");
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

TEST(waits_before_signals_are_caught_as_a_deadlock)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    for (int r = 0; r < RANKS; r++) {
        struct cecl_step *steps = plans[r].steps, held[RANKS - 1];
        memcpy(held, steps, sizeof(held));
        memmove(steps, steps + RANKS - 1, sizeof(held));
        memcpy(steps + RANKS - 1, held, sizeof(held));
    }
    expect_fault(plans, "deadlock");
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

TEST(a_flag_that_does_not_grow_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[2].steps[find_step(&plans[2], CECL_STEP_SIGNAL, RANKS - 1)].phase = 1;
    expect_fault(plans, "does not grow");
}

TEST(ranks_with_different_phases_are_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    plans[3].phases[CECL_LANE_MAIN]++;
    expect_fault(plans, "different phases");
}

TEST(staging_reused_without_a_barrier_is_caught)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, true, CECL_PUSH);
    remove_barrier(plans, 2); /* the first barrier of the second chunk */
    expect_fault(plans, "race: staging");
}

/* A plan may contain anything: the verifier returns a result, and accesses nothing out of bounds
 * (sanitizers check). */
TEST(random_garbage_is_answered)
{
    uint64_t x = 987654321;
    int caught = 0;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 3000; round++) {
        struct cecl_plan *plans = two_calls(round % 2 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL,
                                            round % 3 == 0, CECL_PUSH);
        for (int change = 0; change < 1 + round % 3; change++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            struct cecl_plan *plan = &plans[(x >> 33) % (2 * RANKS)];
            const bool step = x >> 60 & 1;
            unsigned char *bytes =
                step ? (unsigned char *)plan->steps : (unsigned char *)plan->copies;
            const size_t size = step ? plan->nsteps * sizeof(plan->steps[0])
                                     : plan->ncopies * sizeof(plan->copies[0]);
            bytes[(x >> 20) % size] ^= (unsigned char)(1u << (x >> 57 & 7));
        }
        caught += cecl_verify(plans, 2, RANKS) == ceclInternalError;
        free_plans(plans, 2 * RANKS);
    }
    assert_true(caught > 1500); /* not all, because some bytes of a step are unused by its kind */
}

/* Every change of a kind that always matters is caught. */
TEST(random_harmful_changes_are_all_caught)
{
    uint64_t x = 1234567;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 2000; round++) {
        struct cecl_plan *plans = two_calls(round % 2 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL,
                                            false, round % 4 < 2 ? CECL_PUSH : CECL_PULL);
        x = x * 6364136223846793005u + 1442695040888963407u;
        struct cecl_plan *plan = &plans[(x >> 33) % (2 * RANKS)];
        struct cecl_copy *copy = &plan->copies[(x >> 25) % plan->ncopies];
        switch (x >> 60 & 3) {
        case 0: copy->bytes--; break;
        case 1: copy->dst.offset = copy->dst.offset > 0 ? copy->dst.offset - 1 : 1; break;
        case 2: copy->dst.rank = (uint16_t)((copy->dst.rank + 1) % RANKS); break;
        default: copy->src.offset = copy->src.offset > 0 ? copy->src.offset - 1 : 1; break;
        }
        if (cecl_verify(plans, 2, RANKS) != ceclInternalError)
            fail_msg("round %d, change %d was not caught", round, (int)(x >> 60 & 3));
        free_plans(plans, 2 * RANKS);
    }
}
