/* Groups: what the calls of a plan share, and faults that the verifier must find. Random groups: tests/fuzz/fuzz_plan.c. */
#include "plans.h"

TEST(gathers_share_their_barriers)
{
    struct cecl_part parts[64];
    struct cecl_plan plan;
    for (int i = 0; i < 64; i++) {
        parts[i] = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 100);
        parts[i].call.nranks = 4;
        parts[i].call.rank = 1;
    }
    assert_int_equal(cecl_lower_group(parts, 64, &plan), ceclSuccess);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
    assert_int_equal(plan.nsteps, 2 * 6 + 1);
    assert_int_equal(plan.ncopies, 64 * 3);
    assert_int_equal(cecl_plan_parts(&plan), 64);
    assert_non_null(strstr(plan.path, "group of 64 calls"));
    cecl_plan_free(&plan);
}

#define REDUCTIONS 8

/* Lowers reductions of 10 elements of 4 bytes for each of 4 ranks. Each one's inputs take 120 bytes of staging. */
static void lower_reductions(enum cecl_op_index op, struct cecl_way way, uint64_t staging,
                             struct cecl_plan *plan)
{
    struct cecl_part parts[REDUCTIONS];
    for (int i = 0; i < REDUCTIONS; i++) {
        parts[i] = reduction_of(op, 4, op == CECL_OP_REDUCE_SCATTER ? 10 : 40, 4);
        way.reduce.share = parts[i].way.reduce.share;
        way.reduce.chunk = way.reduce.chunk ? way.reduce.chunk : way.reduce.share;
        parts[i].way = way;
        parts[i].means.staging_bytes = staging;
        parts[i].call.nranks = 4;
        parts[i].call.rank = 1;
    }
    assert_int_equal(cecl_lower_group(parts, REDUCTIONS, plan), ceclSuccess);
}

/* Inputs are sent in one batch. There is one barrier before that, and one before the reductions. */
TEST(reductions_share_their_barriers)
{
    struct cecl_plan plan;
    lower_reductions(CECL_OP_REDUCE_SCATTER, (struct cecl_way){.small = false}, 1 << 20, &plan);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
    assert_int_equal(plan.nsteps, 2 * 6 + 1 + REDUCTIONS);
    assert_int_equal(plan.ncopies, REDUCTIONS * 3);
    assert_int_equal(count_steps(&plan, CECL_STEP_REDUCE), REDUCTIONS);
    assert_string_equal(plan.path, "group of 8 calls, 24 copies, 8 reductions in 1 bundle");
    cecl_plan_free(&plan);
}

/* Results are sent as one batch of copies. But if kernels write them, each reduction is followed by a step for that. */
TEST(results_of_reductions_are_one_batch_unless_kernels_write_them)
{
    struct cecl_plan plan;
    lower_reductions(CECL_OP_ALL_REDUCE, (struct cecl_way){.small = false}, 1 << 20, &plan);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 3);
    assert_int_equal(count_steps(&plan, CECL_STEP_COPY), 2);
    cecl_plan_free(&plan);

    const struct cecl_way writes = {.reduce = {.read_at_peers = true, .sms_send = true}};
    lower_reductions(CECL_OP_ALL_REDUCE, writes, 1 << 20, &plan);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
    assert_int_equal(count_steps(&plan, CECL_STEP_COPY), REDUCTIONS);
    for (uint32_t i = 0; i < plan.nsteps; i++)
        if (plan.steps[i].kind == CECL_STEP_COPY)
            assert_int_equal(plan.steps[i - 1].kind, CECL_STEP_REDUCE);
    cecl_plan_free(&plan);
}

/* Each reduction takes 120 bytes of staging, from a multiple of 256 on. */
TEST(a_bundle_takes_no_more_than_staging)
{
    static const struct {
        uint64_t staging;
        uint32_t bundles;
    } cases[] = {{120, 8}, {375, 8}, {376, 4}, {631, 4}, {632, 3}, {1911, 2}, {1912, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cecl_plan plan;
        char words[32];
        lower_reductions(CECL_OP_REDUCE_SCATTER, (struct cecl_way){.small = false},
                         cases[i].staging, &plan);
        snprintf(words, sizeof(words), "in %u bundle", cases[i].bundles);
        assert_int_equal(plan.phases[CECL_LANE_MAIN], 2 * cases[i].bundles);
        assert_non_null(strstr(plan.path, words));
        cecl_plan_free(&plan);
    }
}

/* The chunks of all calls follow each other. Only the first call's first chunk waits for a barrier, and only the last
 * call is cut into as many chunks as a lone call. */
TEST(reductions_in_chunks_are_one_pipeline)
{
    struct cecl_plan plan;
    const struct cecl_way in_chunks = {.reduce = {.chunk = 20}};
    lower_reductions(CECL_OP_REDUCE_SCATTER, in_chunks, 1 << 20, &plan);
    assert_int_equal(plan.nreductions, REDUCTIONS + 1); /* one chunk each; two of the last call */
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 1 + REDUCTIONS + 1);
    assert_int_equal(plan.phases[CECL_LANE_SIDE], REDUCTIONS - 1);
    assert_non_null(strstr(plan.reason, "the chunks of 8 calls are one pipeline"));
    for (uint32_t i = 0; i < plan.nreductions; i++)
        assert_int_equal(plan.reductions[i].part, i < REDUCTIONS ? i : REDUCTIONS - 1);
    cecl_plan_free(&plan);
}

/* In a group, the end of a share is not reduced separately, so that calls can share barriers. */
TEST(reductions_with_an_end_are_in_a_bundle)
{
    struct cecl_plan plan;
    const struct cecl_way in_two = {.reduce = {.read_at_peers = true, .sms_end = 8}};
    lower_reductions(CECL_OP_ALL_REDUCE, in_two, 1 << 20, &plan);
    assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
    assert_string_equal(plan.path, "group of 8 calls, 24 copies, 8 reductions in 1 bundle");
    cecl_plan_free(&plan);
}

/* Calls that only move data share all of staging in one bundle. Reductions that need staging are in the next one. */
TEST(reductions_take_no_staging_from_other_calls)
{
    struct cecl_part parts[3];
    struct cecl_plan plan;
    for (int reads = 0; reads < 2; reads++) {
        parts[0] = reduction_of(CECL_OP_REDUCE_SCATTER, 4, 10, 4);
        parts[0].way.reduce.read_at_peers = reads;
        parts[1] = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 8);
        parts[2] = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 8);
        for (int i = 0; i < 3; i++) {
            parts[i].means.staging_bytes = 4096;
            parts[i].call.nranks = 4;
            parts[i].call.rank = 1;
        }
        struct cecl_part other = parts[1];
        assert_int_equal(cecl_lower_group(&other, 1, &plan), ceclSuccess);
        const uint32_t alone = plan.phases[CECL_LANE_MAIN];
        cecl_plan_free(&plan);
        assert_int_equal(cecl_lower_group(parts, 3, &plan), ceclSuccess);
        assert_int_equal(plan.phases[CECL_LANE_MAIN], alone + (reads ? 0 : 2));
        assert_non_null(strstr(plan.path, "1 reduction in 1 bundle"));
        cecl_plan_free(&plan);
    }
}

/* The plans of 3 ranks for a group of two calls like `part`. They are right; a test then plants a fault. */
static struct cecl_plan *lower_two(struct cecl_part part)
{
    struct cecl_plan *plans = calloc(3, sizeof(*plans));
    assert_non_null(plans);
    part.call.nranks = 3;
    for (part.call.rank = 0; part.call.rank < 3; part.call.rank++) {
        struct cecl_part parts[2] = {part, part};
        assert_int_equal(cecl_lower_group(parts, 2, &plans[part.call.rank]), ceclSuccess);
    }
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    return plans;
}

static void give_the_first_ones(struct cecl_place *place)
{
    if (place->area == CECL_AREA_STAGING)
        place->offset %= 256;
}

TEST(the_verifier_tells_reductions_of_a_bundle_apart)
{
    struct cecl_plan *plans = lower_two(reduction_of(CECL_OP_REDUCE_SCATTER, 3, 5, 1));
    for (int r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < plans[r].ncopies; i++)
            give_the_first_ones(&plans[r].copies[i].dst);
        for (uint32_t i = 0; i < plans[r].nsources; i++)
            give_the_first_ones(&plans[r].sources[i]);
    }
    expect_fault(plans, 1, 3, "race");
    free_plans(plans, 3);
}

/* The fault is a copy from another call's buffer. */
TEST(the_verifier_tells_calls_of_a_group_apart)
{
    struct cecl_plan *plans = lower_two(part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8));
    struct cecl_copy *copy = &plans[1].copies[0];
    copy->src.area = cecl_area_of(CECL_AREA_SEND, 1);
    expect_fault(plans, 1, 3, "");
    copy->src.area = cecl_area_of(CECL_AREA_SEND, 2);
    expect_fault(plans, 1, 3, "there is none");
    free_plans(plans, 3);
}

static void give_to_second_call(struct cecl_place *place)
{
    if (place->area == CECL_AREA_STAGING)
        place->area = CECL_AREA_COUNT + CECL_AREA_STAGING;
}

/* All calls of a group use the staging of its first call. */
TEST(staging_of_a_later_call_of_a_group_is_refused)
{
    struct cecl_plan *plans = lower_two(part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 8));
    for (int r = 0; r < 3; r++) /* equal on all ranks, so that this is the only fault */
        for (uint32_t i = 0; i < plans[r].ncopies; i++) {
            give_to_second_call(&plans[r].copies[i].dst);
            give_to_second_call(&plans[r].copies[i].src);
        }
    expect_fault(plans, 1, 3, "there is none");
    free_plans(plans, 3);
}
