/* Own blocks on a device whose copy engine runs local copies: which method is chosen, the resulting plans,
 * and their descriptions. */
#include "plans.h"

#include <stdio.h>

#define MOST (2u << 20) /* bytes of the largest block that is copied locally */

static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL};

static struct cecl_part tuned(enum cecl_op_index op, bool in_place, uint64_t bytes, int nranks,
                              ceclSmPolicy_t policy, ceclDirection_t direction)
{
    struct cecl_part part = {
        .call = {.op = &cecl_ops[op],
                 .in_place = in_place,
                 .nranks = nranks,
                 .bytes = bytes,
                 .options = {.sm_policy = (uint8_t)policy, .direction = (uint8_t)direction}},
        .means = {.staging_bytes = 64 << 20, .engine_copies_locally = true}};
    choose(&part);
    return part;
}

static const ceclSmPolicy_t policies[] = {CECL_SM_NEVER, CECL_SM_REDUCE_ONLY, CECL_SM_ALLOW};

static void small_own_blocks_are_copied_locally_under_any_policy(void **state)
{
    for (int p = 0; p < 3; p++)
        for (int o = 0; o < 2; o++)
            for (int n = 2; n <= 16; n++) {
                assert_false(
                    tuned(ops[o], false, 1, n, policies[p], CECL_DIRECTION_AUTO).way.move.no_sm);
                assert_false(
                    tuned(ops[o], false, MOST, n, policies[p], CECL_DIRECTION_AUTO).way.move.no_sm);
            }
}

static void larger_ones_go_as_without_an_engine(void **state)
{
    for (int p = 0; p < 3; p++)
        for (int o = 0; o < 2; o++)
            for (uint64_t bytes = MOST + 1; bytes < (uint64_t)1 << 40; bytes *= 8) {
                struct cecl_part with =
                    tuned(ops[o], false, bytes, 4, policies[p], CECL_DIRECTION_AUTO);
                struct cecl_part without = with;
                without.means.engine_copies_locally = false;
                choose(&without);
                assert_int_equal(with.way.move.no_sm, without.way.move.no_sm);
                assert_int_equal(with.way.move.beside, without.way.move.beside);
                assert_int_equal(with.way.move.direction, without.way.move.direction);
            }
}

/* Otherwise a sendbuff would have to be symmetric for small blocks but not for large ones. */
static void where_peers_would_return_blocks_small_ones_are_pushed_too(void **state)
{
    for (int o = 0; o < 2; o++)
        for (uint64_t bytes = 1; bytes <= 4 * MOST; bytes *= 4)
            assert_int_equal(tuned(ops[o], false, bytes, 4, CECL_SM_NEVER, CECL_DIRECTION_PULL)
                                 .way.move.direction,
                             CECL_PUSH);
}

static void blocks_that_are_worth_it_go_beside_the_pushes(void **state)
{
    for (int o = 0; o < 2; o++) {
        assert_false(
            tuned(ops[o], false, 4096, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO).way.move.beside);
        assert_true(
            tuned(ops[o], false, 1 << 20, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO).way.move.beside);
    }
}

static void an_all_to_all_in_place_stays_with_its_peers_staging(void **state)
{
    assert_true(tuned(CECL_OP_ALL_TO_ALL, true, 4096, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO)
                    .way.move.no_sm);
}

static void a_variable_all_to_all_stays_with_the_next_rank(void **state)
{
    uint64_t layout[5 * 4] = {0};
    static const enum cecl_op_index variable[] = {CECL_OP_ALL_TO_ALLV, CECL_OP_ALL_TO_ALLV_AT,
                                                  CECL_OP_GATHER, CECL_OP_SCATTER};
    for (int o = 0; o < 4; o++) {
        struct cecl_part part = tuned(variable[o], false, 1, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
        if (!part.call.op->rooted)
            set_layout(&part, layout, 4);
        choose(&part);
        assert_true(part.way.move.no_sm);
    }
}

/* A broadcast, or an all-gather by a layout in which only one rank contributes. */
static void a_broadcast_that_peers_pass_on_brings_the_root_its_block_too(void **state)
{
    for (int variable = 0; variable < 2; variable++) {
        uint64_t layout[2 * 4] = {MOST};
        struct cecl_part part = tuned(variable ? CECL_OP_ALL_GATHERV : CECL_OP_BROADCAST, false,
                                      MOST, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
        if (variable)
            set_layout(&part, layout, 4);
        choose(&part);
        assert_true(part.way.move.spread > 0);
        assert_true(part.way.move.no_sm);
        layout[0] = part.call.bytes = 4096;
        choose(&part);
        assert_int_equal(part.way.move.spread, 0);
        assert_false(part.way.move.no_sm);
    }
}

/* ---- plans */

static void a_local_copy_saves_an_exchange_and_needs_no_sm(void **state)
{
    for (int o = 0; o < 2; o++)
        for (uint64_t bytes = 4096; bytes <= MOST; bytes *= 512) {
            struct cecl_part part =
                tuned(ops[o], false, bytes, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
            struct cecl_plan plan;
            assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
            assert_int_equal(plan.phases[CECL_LANE_MAIN], 2);
            assert_int_equal(plan.ncopies, 4);
            assert_int_equal(cecl_plan_local_copies(&plan), 1);
            assert_int_equal(cecl_plan_sm_copies(&plan), 0);
            assert_string_equal(plan.path, "push, own block: local copy by a copy engine (probed)");
            assert_memory_equal(plan.reason, "zero SM: ", 9);
            cecl_plan_free(&plan);
        }
}

static void one_rank_needs_no_sm_either(void **state)
{
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes *= 512) {
        struct cecl_part part =
            tuned(CECL_OP_ALL_GATHER, false, bytes, 1, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
        struct cecl_plan plan;
        assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
        assert_int_equal(cecl_plan_local_copies(&plan), 1);
        assert_int_equal(cecl_plan_sm_copies(&plan), 0);
        assert_string_equal(plan.path, "local copy by a copy engine (probed)");
        cecl_plan_free(&plan);
    }
}

static void copies_from_staging_are_an_engines_too(void **state)
{
    struct cecl_part part =
        tuned(CECL_OP_ALL_TO_ALL, true, 4096, 4, CECL_SM_ALLOW, CECL_DIRECTION_AUTO);
    struct cecl_plan plan;
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    assert_int_equal(cecl_plan_local_copies(&plan), 3);
    assert_int_equal(cecl_plan_sm_copies(&plan), 0);
    assert_memory_equal(plan.reason, "zero SM: ", 9);
    cecl_plan_free(&plan);
}

static void a_plan_without_a_local_copy_says_nothing_of_one(void **state)
{
    struct cecl_part part =
        tuned(CECL_OP_ALL_GATHER, true, 4096, 4, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
    struct cecl_plan plan;
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    assert_string_equal(plan.path, "push, one batch");
    assert_string_equal(plan.reason,
                        "zero SM: every copy crosses between GPUs and flags are stream operations");
    cecl_plan_free(&plan);
}

static void the_way_is_printed(void **state)
{
    struct cecl_part part =
        tuned(CECL_OP_ALL_GATHER, false, 4096, 2, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
    struct cecl_plan plan;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    cecl_plan_print(&plan, out);
    fclose(out);
    assert_non_null(strstr(text, "own block: local copy by a copy engine (probed)\n"));
    assert_non_null(strstr(text, "recv[0]+0  4096 bytes (local: by a copy engine)\n"));
    assert_null(strstr(text, "needs an SM"));
    free(text);
    cecl_plan_free(&plan);
}

/* With `mixed`, the engine does not run the second call's copies. */
static void in_a_group_each_call_counts_for_itself(void **state)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        struct cecl_part parts[2];
        struct cecl_plan plan;
        for (int c = 0; c < 2; c++) {
            parts[c] =
                tuned(CECL_OP_ALL_TO_ALL, false, 4096, 4, CECL_SM_ALLOW, CECL_DIRECTION_AUTO);
            parts[c].means.engine_copies_locally = c == 0 || !mixed;
        }
        assert_int_equal(cecl_lower_group(parts, 2, &plan), ceclSuccess);
        assert_int_equal(cecl_plan_local_copies(&plan), 2);
        assert_int_equal(cecl_plan_sm_copies(&plan), mixed);
        assert_non_null(strstr(plan.reason, mixed ? "1 copies stay" : "zero SM: a copy engine"));
        cecl_plan_free(&plan);
    }
}

/* ---- verified for every number of ranks, among calls whose blocks peers return */

static void verify_among_others(enum cecl_op_index op, int nranks, uint64_t bytes, bool side)
{
    struct cecl_part parts[4];
    for (int c = 0; c < 4; c++) {
        parts[c] = tuned(op, false, bytes, nranks, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
        parts[c].means.staging_bytes = 1 << 10;
        if (c == 1)
            parts[c].way.move.no_sm = true;
        else if (nranks > 1)
            parts[c].way.move.beside = side;
    }
    verify_calls(parts, 4, nranks);
}

static void the_lowering_is_right_for_1_to_16_ranks(void **state)
{
    for (int n = 1; n <= 16; n++)
        for (int o = 0; o < 2; o++)
            for (uint64_t bytes = 1; bytes <= 25; bytes += 8)
                for (int side = 0; side < 2; side++)
                    verify_among_others(ops[o], n, bytes, side);
}

static void rows_are_right_too(void **state)
{
    static const enum cecl_op_index strided[] = {CECL_OP_ALL_GATHER_STRIDED,
                                                 CECL_OP_ALL_TO_ALL_STRIDED};
    for (int n = 2; n <= 9; n++)
        for (int o = 0; o < 2; o++) {
            struct cecl_part part =
                tuned(strided[o], false, 12, n, CECL_SM_NEVER, CECL_DIRECTION_AUTO);
            part.means.staging_bytes = 1 << 10;
            part.call.view.shape = (struct cecl_shape){.width = 4,
                                                       .rows = 3,
                                                       .send_pitch = o == 0 ? 4 : 4 * (uint64_t)n,
                                                       .send_stride = 4,
                                                       .recv_pitch = 4 * (uint64_t)n,
                                                       .recv_stride = 4};
            choose(&part);
            assert_false(part.way.move.no_sm);
            const struct cecl_part parts[2] = {part, part};
            verify_calls(parts, 2, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_own_blocks_are_copied_locally_under_any_policy),
        cmocka_unit_test(larger_ones_go_as_without_an_engine),
        cmocka_unit_test(where_peers_would_return_blocks_small_ones_are_pushed_too),
        cmocka_unit_test(blocks_that_are_worth_it_go_beside_the_pushes),
        cmocka_unit_test(an_all_to_all_in_place_stays_with_its_peers_staging),
        cmocka_unit_test(a_variable_all_to_all_stays_with_the_next_rank),
        cmocka_unit_test(a_broadcast_that_peers_pass_on_brings_the_root_its_block_too),
        cmocka_unit_test(a_local_copy_saves_an_exchange_and_needs_no_sm),
        cmocka_unit_test(one_rank_needs_no_sm_either),
        cmocka_unit_test(copies_from_staging_are_an_engines_too),
        cmocka_unit_test(a_plan_without_a_local_copy_says_nothing_of_one),
        cmocka_unit_test(the_way_is_printed),
        cmocka_unit_test(in_a_group_each_call_counts_for_itself),
        cmocka_unit_test(the_lowering_is_right_for_1_to_16_ranks),
        cmocka_unit_test(rows_are_right_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
