/* Reductions: the shape of their plans, and faults that the verifier must find. Random ones: tests/fuzz/fuzz_plan.c. */
#include "plans.h"
#include "sm/reduce.h"

/* A rank names its peers' inputs by the area of its own input. */
TEST(an_input_in_the_other_area_is_refused)
{
    struct cecl_part part = reduction_of(CECL_OP_ALL_REDUCE, 3, 60, 1);
    part.way.reduce.read_at_peers = true;
    for (int in_place = 0; in_place < 2; in_place++) {
        part.call.in_place = in_place;
        struct cecl_plan *plans = lower_all(&part, 1, 3);
        assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
        struct cecl_place *source = &plans[1].sources[2];
        assert_int_equal(source->rank, 2);
        source->area = in_place ? CECL_AREA_SEND : CECL_AREA_RECV;
        expect_fault(plans, 1, 3, "");
        free_plans(plans, 3);
    }
}

static struct cecl_plan *all_reduce_in_chunks(struct cecl_part *part)
{
    *part = reduction_of(CECL_OP_ALL_REDUCE, 3, 60, 1);
    part->way.reduce.chunk = 2;
    return lower_all(part, 1, 3);
}

/* 4096 bytes in chunks of at most 1280 are four chunks of 1024. The last one is halved until the halves are 128. */
TEST(the_last_chunk_is_halved)
{
    static const uint64_t expected[] = {1024, 1024, 1024, 512, 256, 128, 128};
    struct cecl_part part = reduction_of(CECL_OP_REDUCE_SCATTER, 3, 1024, 4);
    part.way.reduce.chunk = 1280;
    part.way.reduce.halved = 128;
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    for (int r = 0; r < 3; r++) {
        const struct cecl_plan *plan = &plans[r];
        assert_int_equal(plan->nreductions, sizeof(expected) / sizeof(expected[0]));
        assert_int_equal(plan->ncopies, 2 * plan->nreductions);
        for (uint32_t k = 0; k < plan->nreductions; k++) {
            assert_int_equal(plan->reductions[k].bytes, expected[k]);
            assert_int_equal(plan->copies[2 * k].bytes, expected[k]);
        }
    }
    free_plans(plans, 3);
}

/* A block slightly larger than two chunks is split into three chunks of about equal size. */
TEST(no_chunk_is_for_a_small_rest)
{
    static const uint64_t expected[] = {1536, 1536, 1028};
    struct cecl_part part = reduction_of(CECL_OP_REDUCE_SCATTER, 3, 1025, 4);
    part.way.reduce.chunk = 2048;
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    assert_int_equal(plans[1].nreductions, 3);
    for (int k = 0; k < 3; k++)
        assert_int_equal(plans[1].reductions[k].bytes, expected[k]);
    free_plans(plans, 3);
}

/* While the last chunk is reduced, the results of all other chunks are sent. */
TEST(an_all_reduce_sends_its_results_in_two)
{
    struct cecl_part part;
    struct cecl_plan *plans = all_reduce_in_chunks(&part); /* blocks of 20 in chunks of 2 */
    const struct cecl_plan *plan = &plans[1];
    const struct cecl_copy *results = &plan->copies[plan->ncopies - 4];
    assert_int_equal(plan->ncopies, 10 * 2 + 2 * 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(results[i].src.offset, i < 2 ? 20 : 38);
        assert_int_equal(results[i].bytes, i < 2 ? 18 : 2);
    }
    free_plans(plans, 3);
}

/* Without this step in rank 0's plan, the verifier must refuse the plans. */
static void without_step(enum cecl_step_kind kind, int lane, uint32_t skip, const char *words)
{
    struct cecl_part part;
    struct cecl_plan *plans = all_reduce_in_chunks(&part);
    struct cecl_plan *plan = &plans[0];
    drop_step(plan, find_step(plan, kind, lane, skip));
    expect_fault(plans, 1, 3, words);
    free_plans(plans, 3);
}

TEST(faults_are_found)
{
    without_step(CECL_STEP_AFTER, CECL_LANE_MAIN, 0, "race"); /* the block is sent too early */
    without_step(CECL_STEP_AFTER, CECL_LANE_MAIN, 1, "race"); /* its last chunk is sent too early */
    without_step(CECL_STEP_WAIT, CECL_LANE_SIDE, 3,
                 "race"); /* reduced before its data has arrived */
    without_step(CECL_STEP_WAIT, CECL_LANE_MAIN, 6, "race"); /* a slot is not free yet */
    without_step(CECL_STEP_REDUCE, CECL_LANE_SIDE, 2, "");
}

TEST(a_wrong_order_of_sources_is_found)
{
    struct cecl_part part;
    struct cecl_plan *plans = all_reduce_in_chunks(&part);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    const struct cecl_place first = plans[1].sources[0];
    plans[1].sources[0] = plans[1].sources[2];
    plans[1].sources[2] = first;
    expect_fault(plans, 1, 3, "in order");
    free_plans(plans, 3);
}

/* Byte by byte the result is right, but a part of an element cannot be reduced. */
TEST(a_reduction_of_a_part_of_an_element_is_refused)
{
    const struct cecl_part part = reduction_of(CECL_OP_REDUCE_SCATTER, 3, 6, 1);
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    for (int r = 0; r < 3; r++)
        plans[r].part.call.element = 4;
    expect_fault(plans, 1, 3, "in elements of 4");
    free_plans(plans, 3);
}

TEST(too_little_staging_is_named)
{
    struct cecl_part part = reduction_of(CECL_OP_REDUCE_SCATTER, 8, 100, 8);
    struct cecl_plan plan;
    part.call.nranks = 8;
    part.means.staging_bytes = 2 * 7 * 8 - 1;
    assert_int_equal(cecl_lower(&part, &plan), ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "needs 112 at least"));
    part.means.staging_bytes++;
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    cecl_plan_free(&plan);
}

static struct cecl_part with_input(enum cecl_op_index op, int n, uint64_t elements,
                                   uint32_t element, bool readable)
{
    struct cecl_part part = reduction_of(op, (uint64_t)n, elements, element);
    part.call.nranks = n;
    part.means.inputs_readable = readable;
    return part;
}

/* The caller's direction changes nothing. Nor is a buffer read at peers if some rank does not know its place (`late`). */
TEST(an_input_that_peers_cannot_reach_is_never_read_there)
{
    for (int op = CECL_OP_REDUCE_SCATTER; op <= CECL_OP_REDUCE; op++)
        for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL; direction++)
            for (int readable = 0; readable < 2; readable++)
                for (int late = 0; late < 2; late++) {
                    struct cecl_part part =
                        with_input((enum cecl_op_index)op, 4, 1 << 20, 1, readable);
                    part.means.late = late;
                    part.call.options.direction = (uint8_t)direction;
                    choose(&part);
                    assert_int_equal(part.way.reduce.read_at_peers,
                                     readable && !late && op != CECL_OP_REDUCE &&
                                         direction != CECL_DIRECTION_PUSH);
                    assert_int_equal(part.way.reduce.meet_first,
                                     late && op != CECL_OP_REDUCE_SCATTER);
                }
}

/* 192 MiB without staging: SMs write the end, if a kernel can write to all peers; copy engines send the rest. */
TEST(a_large_all_reduces_end_is_written_where_it_may_be)
{
    for (int n = 2; n <= CECL_REDUCE_ALSO_MAX + 2; n++) {
        struct cecl_part part = with_input(CECL_OP_ALL_REDUCE, n, 48 << 20, 4, true);
        const bool may = n <= CECL_REDUCE_ALSO_MAX + 1;
        choose(&part);
        assert_true(part.way.reduce.read_at_peers && part.way.reduce.urgent &&
                    !part.way.reduce.sms_send);
        assert_int_equal(part.way.reduce.sms_end, may ? (3 << 19) / (n - 1) : 0);
    }
}

/* SMs send the end of each block, or as much of it as a rank has; copy engines send the beginning. */
TEST(the_end_of_a_block_is_apart)
{
    struct cecl_part part = reduction_of(CECL_OP_ALL_REDUCE, 4, 3600, 1);
    part.way.reduce.share = 1000; /* so the last share has 600 bytes */
    part.way.reduce.read_at_peers = true;
    part.way.reduce.sms_end = 300; /* copy engines send the rest, a multiple of 256 */
    struct cecl_plan *plans = lower_all(&part, 1, 4);
    for (int r = 0; r < 4; r++) {
        const struct cecl_plan *plan = &plans[r];
        const uint64_t block = r < 3 ? 1000 : 600;
        assert_int_equal(plan->nreductions, 2);
        assert_int_equal(plan->reductions[0].bytes, 512);
        assert_int_equal(plan->reductions[1].bytes, block - 512);
        assert_int_equal(plan->ncopies, 2 * 3);
        assert_int_equal(cecl_plan_bytes(plan), 3 * block);
    }
    free_plans(plans, 4);
}

/* Ranks meet three times for each chunk: before it is sent, before it is reduced, and before its result is sent. They
 * meet once more at the end. */
TEST(a_reduce_in_rounds_has_no_empty_round)
{
    struct cecl_part part = reduction_of(CECL_OP_REDUCE, 3, 3 * 4096, 1);
    part.way.reduce.chunk = 1024;
    part.way.reduce.meet_first = true;
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(plans[r].nreductions > 1);
        assert_int_equal(plans[r].phases[CECL_LANE_MAIN], 3 * plans[r].nreductions + 1);
    }
    free_plans(plans, 3);
}

/* A single rank has no peers with which to share staging, so its block is not cut into chunks. */
TEST(one_rank_reduces_blocks_of_any_size)
{
    static const enum cecl_op_index ops[] = {CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE,
                                             CECL_OP_REDUCE};
    for (int i = 0; i < 3; i++) {
        struct cecl_part part = with_input(ops[i], 1, UINT64_C(1) << 30, 4, true);
        struct cecl_plan plan;
        part.means.staging_bytes = 192 << 20;
        part.call.options.sm_policy = CECL_SM_REDUCE_ONLY;
        choose(&part);
        assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
        assert_int_equal(plan.nreductions, 1);
        cecl_plan_free(&plan);
    }
}

/* Above the limit, copy engines send the result. */
TEST(sms_send_to_no_more_ranks_than_a_kernel_takes)
{
    for (int n = CECL_REDUCE_ALSO_MAX; n <= CECL_REDUCE_ALSO_MAX + 2; n++) {
        struct cecl_part part = with_input(CECL_OP_ALL_REDUCE, n, 1 << 20, 4, true);
        choose(&part);
        assert_int_equal(part.way.reduce.sms_send, n <= CECL_REDUCE_ALSO_MAX + 1);
    }
}
