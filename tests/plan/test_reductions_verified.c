/* Reductions: every lowering over all ranks, whole and in chunks, blocks that are cut off or empty, in
 * sequences and groups with calls that only move data; and faults that the verifier must see. */
#include "plans.h"
#include "sm/reduce.h"

#define RANKS_MAX 12

static void draw(uint64_t *x, int n, struct cecl_call *call)
{
    static const ceclOp_t ops[] = {ceclOpReduceScatter, ceclOpAllReduce, ceclOpReduce};
    const uint32_t element = 1u << next(x) % 3;
    const uint64_t extra = next(x) % 3; /* elements by which blocks are larger than need be */
    *call = reduction_of(ops[next(x) % 3], (uint64_t)n, 1 + next(x) % 40, element);
    if (call->op != ceclOpReduceScatter)
        call->bytes += extra * element;
    call->in_place = next(x) % 2;
    call->peers_read = call->op != ceclOpReduce && next(x) % 2;
    call->sms_end = call->op == ceclOpAllReduce && next(x) % 2 ? (next(x) % 12) * element : 0;
    call->one_shot = next(x) % 3 == 0 ? 64 : 0;
    call->chunk = (1 + next(x) % 6) * element;
    call->halved = next(x) % 2 ? 0 : (1 + next(x) % 3) * element;
    call->staging_bytes = next(x) % 2 ? 4096 : 2 * (uint64_t)n * element * (1 + next(x) % 4);
    call->root = (int)(next(x) % (uint64_t)n);
}

static void reductions_are_right(void **state)
{
    (void)state;
    uint64_t x = 5;
    for (int round = 0; round < 1500; round++) {
        const int n = 1 + round % RANKS_MAX;
        struct cecl_call calls[3];
        for (int c = 0; c < 3; c++)
            draw(&x, n, &calls[c]);
        verify_calls(calls, 3, n);
    }
}

static void reductions_of_many_ranks_are_right(void **state)
{
    (void)state;
    static const int many[] = {16, 32};
    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
        for (int op = ceclOpReduceScatter; op <= ceclOpReduce; op++) {
            struct cecl_call calls[2];
            for (int c = 0; c < 2; c++) {
                calls[c] = reduction_of((ceclOp_t)op, (uint64_t)many[i], 40, 1);
                calls[c].chunk = 1 + (uint64_t)c;
            }
            verify_calls(calls, 2, many[i]);
        }
}

/* Groups: reductions come one after the other, behind what only moves data. */
static void reductions_in_groups_are_right(void **state)
{
    (void)state;
    uint64_t x = 41;
    for (int round = 0; round < 300; round++) {
        const int n = 1 + round % 6;
        const uint32_t count = 2 + (uint32_t)next(&x) % 4;
        struct cecl_call calls[6], mine[6];
        struct cecl_plan plans[2 * 6] = {0};
        for (uint32_t i = 0; i < count; i++)
            if (next(&x) % 2)
                draw(&x, n, &calls[i]);
            else
                calls[i] = call_of(next(&x) % 2 ? ceclOpAllGather : ceclOpAlltoAll, next(&x) % 2,
                                   CECL_PUSH, 1 + next(&x) % 20);
        for (uint32_t i = 0; i < count; i++) {
            calls[i].staging_bytes = 4096;
            if (!cecl_op_reduces(calls[i].op))
                calls[i].no_sm = next(&x) % 2;
        }
        for (int p = 0; p < 2 * n; p++) { /* the group twice */
            for (uint32_t i = 0; i < count; i++) {
                mine[i] = calls[i];
                mine[i].nranks = n;
                mine[i].rank = p % n;
            }
            assert_int_equal(cecl_lower_group(mine, count, &plans[p]), ceclSuccess);
        }
        if (cecl_verify(plans, 2, n) != ceclSuccess)
            fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
        for (int p = 0; p < 2 * n; p++)
            cecl_plan_free(&plans[p]);
    }
}

static struct cecl_plan *all_reduce_in_chunks(struct cecl_call *call)
{
    *call = reduction_of(ceclOpAllReduce, 3, 60, 1);
    call->chunk = 2;
    return lower_all(call, 1, 3);
}

/* 1024 elements of 4 bytes in chunks of 1280 at most: four even ones, the last of which is halved. */
static void the_last_chunk_is_halved(void **state)
{
    (void)state;
    static const uint64_t expected[] = {1024, 1024, 1024, 512, 256, 128, 128};
    struct cecl_call call = reduction_of(ceclOpReduceScatter, 3, 1024, 4);
    call.chunk = 1280;
    call.halved = 128;
    struct cecl_plan *plans = lower_all(&call, 1, 3);
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

/* A block of a little more than two chunks' bytes goes in three that are about as large. */
static void no_chunk_is_for_a_small_rest(void **state)
{
    (void)state;
    static const uint64_t expected[] = {1536, 1536, 1028};
    struct cecl_call call = reduction_of(ceclOpReduceScatter, 3, 1025, 4);
    call.chunk = 2048;
    struct cecl_plan *plans = lower_all(&call, 1, 3);
    assert_int_equal(plans[1].nreductions, 3);
    for (int k = 0; k < 3; k++)
        assert_int_equal(plans[1].reductions[k].bytes, expected[k]);
    free_plans(plans, 3);
}

/* All but the last chunk's results go while that is reduced. */
static void an_all_reduce_sends_its_results_in_two(void **state)
{
    struct cecl_call call;
    struct cecl_plan *plans = all_reduce_in_chunks(&call); /* blocks of 20 in chunks of 2 */
    const struct cecl_plan *plan = &plans[1];
    const struct cecl_copy *results = &plan->copies[plan->ncopies - 4];
    (void)state;
    assert_int_equal(plan->ncopies, 10 * 2 + 2 * 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(results[i].src.offset, i < 2 ? 20 : 38);
        assert_int_equal(results[i].bytes, i < 2 ? 18 : 2);
    }
    free_plans(plans, 3);
}

static uint32_t find_step(const struct cecl_plan *plan, enum cecl_step_kind kind, int lane,
                          uint32_t skip)
{
    for (uint32_t s = 0; s < plan->nsteps; s++)
        if (plan->steps[s].kind == kind && plan->steps[s].lane == lane && skip-- == 0)
            return s;
    fail_msg("no such step");
    return 0;
}

/* Takes a step out of rank 0's plan, and sees the verifier object. */
static void without_step(enum cecl_step_kind kind, int lane, uint32_t skip, const char *words)
{
    struct cecl_call call;
    struct cecl_plan *plans = all_reduce_in_chunks(&call);
    struct cecl_plan *plan = &plans[0];
    const uint32_t at = find_step(plan, kind, lane, skip);
    memmove(&plan->steps[at], &plan->steps[at + 1],
            (plan->nsteps - at - 1) * sizeof(plan->steps[0]));
    plan->nsteps--;
    if (cecl_verify(plans, 1, 3) == ceclSuccess)
        fail_msg("step %u, of kind %d on lane %d, was not missed", at, (int)kind, lane);
    if (!strstr(cecl_message(), words))
        fail_msg("\"%s\" says nothing of \"%s\"", cecl_message(), words);
    free_plans(plans, 3);
}

static void faults_are_found(void **state)
{
    (void)state;
    without_step(CECL_STEP_AFTER, CECL_LANE_MAIN, 0, "race"); /* the block is sent too early, */
    without_step(CECL_STEP_AFTER, CECL_LANE_MAIN, 1, "race"); /* and its last chunk */
    without_step(CECL_STEP_WAIT, CECL_LANE_SIDE, 3, "race");  /* reduced before it has come */
    without_step(CECL_STEP_WAIT, CECL_LANE_MAIN, 6, "race");  /* a slot is not free yet */
    without_step(CECL_STEP_REDUCE, CECL_LANE_SIDE, 2, "");
}

static void a_wrong_order_of_sources_is_found(void **state)
{
    (void)state;
    struct cecl_call call;
    struct cecl_plan *plans = all_reduce_in_chunks(&call);
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    const struct cecl_place first = plans[1].sources[0];
    plans[1].sources[0] = plans[1].sources[2];
    plans[1].sources[2] = first;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "in order"));
    free_plans(plans, 3);
}

static void broken_reductions_are_refused(void **state)
{
    (void)state;
    struct cecl_call call;
    struct cecl_plan *plans = all_reduce_in_chunks(&call);
    struct cecl_plan *plan = &plans[2];
    const uint32_t at = find_step(plan, CECL_STEP_REDUCE, CECL_LANE_SIDE, 0);
    plan->steps[at].count = 1000;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    plan->steps[at].count = 1;
    plan->reductions[0].nsrc = 100000;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    plan->reductions[0].nsrc = 3;
    plan->reductions[0].dst.rank = 1;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    plan->reductions[0].dst.rank = 2;
    plan->steps[at].lane = 7;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    plan->steps[at].lane = CECL_LANE_SIDE;
    plan->side_phases++;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclInternalError);
    plan->side_phases--;
    assert_int_equal(cecl_verify(plans, 1, 3), ceclSuccess);
    free_plans(plans, 3);
}

/* Sizes around those where staging has room for one block of all senders, no multiples of anything. */
static void no_reduction_leaves_its_staging(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n++)
        for (int op = ceclOpReduceScatter; op <= ceclOpReduce; op++)
            for (uint64_t elements = 4096 / 4 / (uint64_t)n - 70;
                 elements <= 4096 / 4 / ((uint64_t)n - 1) + 2; elements++) {
                const bool scatters = op == ceclOpReduceScatter;
                struct cecl_call call = reduction_of(
                    (ceclOp_t)op, (uint64_t)n, scatters ? elements : (uint64_t)n * elements, 4);
                call.chunk = 1 << 20;
                call.staging_bytes = 4096;
                verify_calls(&call, 1, n);
            }
}

static void too_little_staging_is_named(void **state)
{
    (void)state;
    struct cecl_call call = reduction_of(ceclOpReduceScatter, 8, 100, 8);
    struct cecl_plan plan;
    call.nranks = 8;
    call.staging_bytes = 2 * 7 * 8 - 1;
    assert_int_equal(cecl_lower(&call, &plan), ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "needs 112 at least"));
    call.staging_bytes++;
    assert_int_equal(cecl_lower(&call, &plan), ceclSuccess);
    cecl_plan_free(&plan);
}

/* How a reduction whose inputs could be read at the peers is carried out. */
static struct cecl_call tuned(ceclOp_t op, uint64_t bytes, uint64_t staging,
                              ceclDirection_t direction)
{
    struct cecl_call call = reduction_of(op, 4, bytes, 1);
    call.nranks = 4;
    call.staging_bytes = staging;
    call.peers_read = true;
    tune(&call, (struct cecl_choice){CECL_SM_REDUCE_ONLY, (uint8_t)direction, 0});
    return call;
}

static void tuning_takes_the_way_that_was_measured(void **state)
{
    (void)state;
    const uint64_t large = 256 << 20, ample = 192 << 20, scant = 64 << 20;
    assert_false(tuned(ceclOpReduceScatter, large, ample, CECL_DIRECTION_AUTO).peers_read);
    assert_true(tuned(ceclOpReduceScatter, large, scant, CECL_DIRECTION_AUTO).peers_read);
    assert_true(tuned(ceclOpReduceScatter, 64 << 20, ample, CECL_DIRECTION_AUTO).peers_read);
    assert_true(tuned(ceclOpReduceScatter, large, ample, CECL_DIRECTION_PULL).peers_read);
    assert_false(tuned(ceclOpReduceScatter, 1 << 20, ample, CECL_DIRECTION_PUSH).peers_read);
    assert_true(tuned(ceclOpAllReduce, large / 4, ample, CECL_DIRECTION_AUTO).peers_read);
    assert_false(tuned(ceclOpAllReduce, large / 4, ample, CECL_DIRECTION_AUTO).sms_send);
    assert_false(tuned(ceclOpAllReduce, large, ample, CECL_DIRECTION_AUTO).peers_read);
    assert_true(tuned(ceclOpAllReduce, large, scant, CECL_DIRECTION_AUTO).peers_read);
    assert_int_equal(tuned(ceclOpAllReduce, large, ample, CECL_DIRECTION_AUTO).chunk, large / 8);
    assert_int_equal(tuned(ceclOpReduceScatter, large, ample, CECL_DIRECTION_AUTO).chunk,
                     large / 8);
    assert_int_equal(tuned(ceclOpAllReduce, large, ample, CECL_DIRECTION_AUTO).halved, 0);
    assert_int_not_equal(tuned(ceclOpReduceScatter, large, ample, CECL_DIRECTION_AUTO).halved, 0);
    assert_int_not_equal(tuned(ceclOpAllReduce, large / 4, ample, CECL_DIRECTION_AUTO).sms_end, 0);
    assert_int_equal(tuned(ceclOpAllReduce, 1 << 20, ample, CECL_DIRECTION_AUTO).sms_end, 0);
    assert_int_equal(tuned(ceclOpAllReduce, large, ample, CECL_DIRECTION_AUTO).sms_end, 0);
    assert_int_equal(tuned(ceclOpReduceScatter, 64 << 20, ample, CECL_DIRECTION_AUTO).sms_end, 0);
    assert_true(tuned(ceclOpAllReduce, 1 << 20, ample, CECL_DIRECTION_AUTO).sms_send);
    assert_false(tuned(ceclOpAllReduce, 1 << 20, ample, CECL_DIRECTION_PUSH).sms_send);
}

/* Of 192 MiB without staging copy engines send all but the end, where there are no more ranks than a kernel
 * writes to. */
static void a_large_all_reduces_end_is_written_where_it_may_be(void **state)
{
    (void)state;
    for (int n = 2; n <= CECL_REDUCE_ALSO_MAX + 2; n++) {
        struct cecl_call call = reduction_of(ceclOpAllReduce, (uint64_t)n, 48 << 20, 4);
        const bool may = n <= CECL_REDUCE_ALSO_MAX + 1;
        call.nranks = n;
        call.peers_read = true;
        tune(&call, (struct cecl_choice){0});
        assert_true(call.peers_read && call.urgent && !call.sms_send);
        assert_int_equal(call.sms_end, may ? (3 << 19) / (n - 1) : 0);
    }
}

/* The end of each block, as far as a rank has any of it; of its beginning copy engines send all. */
static void the_end_of_a_block_is_apart(void **state)
{
    (void)state;
    struct cecl_call call = reduction_of(ceclOpAllReduce, 4, 3600, 1); /* blocks of 900 */
    call.bytes = 1000;                                                 /* the last one has 600 */
    call.peers_read = true;
    call.sms_end = 300; /* all but that, down to a multiple of 256 */
    struct cecl_plan *plans = lower_all(&call, 1, 4);
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

/* One rank has no peers to share staging among. */
static void one_rank_reduces_blocks_of_any_size(void **state)
{
    (void)state;
    static const ceclOp_t ops[] = {ceclOpReduceScatter, ceclOpAllReduce, ceclOpReduce};
    for (int i = 0; i < 3; i++) {
        struct cecl_call call = reduction_of(ops[i], 1, UINT64_C(1) << 30, 4);
        struct cecl_plan plan;
        call.nranks = 1;
        call.peers_read = true;
        call.staging_bytes = 192 << 20;
        tune(&call, (struct cecl_choice){CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO, 0});
        assert_int_equal(cecl_lower(&call, &plan), ceclSuccess);
        assert_int_equal(plan.nreductions, 1);
        cecl_plan_free(&plan);
    }
}

/* Beyond, copies send what was reduced, and the plan says so. */
static void sms_send_to_no_more_ranks_than_a_kernel_takes(void **state)
{
    (void)state;
    for (int n = CECL_REDUCE_ALSO_MAX; n <= CECL_REDUCE_ALSO_MAX + 2; n++) {
        struct cecl_call call = reduction_of(ceclOpAllReduce, (uint64_t)n, 1 << 20, 4);
        call.nranks = n;
        call.peers_read = true;
        tune(&call, (struct cecl_choice){0});
        assert_int_equal(call.sms_send, n <= CECL_REDUCE_ALSO_MAX + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(reductions_of_many_ranks_are_right),
        cmocka_unit_test(reductions_in_groups_are_right),
        cmocka_unit_test(the_last_chunk_is_halved),
        cmocka_unit_test(no_chunk_is_for_a_small_rest),
        cmocka_unit_test(an_all_reduce_sends_its_results_in_two),
        cmocka_unit_test(faults_are_found),
        cmocka_unit_test(tuning_takes_the_way_that_was_measured),
        cmocka_unit_test(a_wrong_order_of_sources_is_found),
        cmocka_unit_test(broken_reductions_are_refused),
        cmocka_unit_test(no_reduction_leaves_its_staging),
        cmocka_unit_test(too_little_staging_is_named),
        cmocka_unit_test(a_large_all_reduces_end_is_written_where_it_may_be),
        cmocka_unit_test(the_end_of_a_block_is_apart),
        cmocka_unit_test(one_rank_reduces_blocks_of_any_size),
        cmocka_unit_test(sms_send_to_no_more_ranks_than_a_kernel_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
