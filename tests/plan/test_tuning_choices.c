/* What the built-in table chooses at and around each threshold, as literal values; and that any
 * table a file may hold gives plans that are right. */
#include "plans.h"

#include "plan/layout.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

static struct cecl_call moving(ceclOp_t op, bool in_place, int n, uint64_t bytes,
                               ceclSmPolicy_t policy)
{
    struct cecl_call call = call_of(op, in_place, CECL_PUSH, bytes);
    call.nranks = n;
    tune(&call, (struct cecl_choice){(uint8_t)policy, CECL_DIRECTION_AUTO, 0});
    return call;
}

/* With room for 192 MiB of staging, and inputs that SMs could read at the peers. */
static struct cecl_call reducing(ceclOp_t op, int n, uint64_t bytes, uint8_t direction)
{
    struct cecl_call call = reduction_of(op, (uint64_t)n, bytes, 1);
    call.nranks = n;
    call.peers_read = true;
    call.staging_bytes = 192 * MIB;
    tune(&call, (struct cecl_choice){CECL_SM_REDUCE_ONLY, direction, 0});
    return call;
}

/* ---- what only moves data */

static void own_blocks_are_copied_locally_where_that_was_faster(void **state)
{
    (void)state;
    const ceclSmPolicy_t allow = CECL_SM_ALLOW, never = CECL_SM_NEVER;
    assert_true(moving(ceclOpAllGather, false, 4, 4 * MIB, allow).no_sm);
    assert_false(moving(ceclOpAllGather, false, 4, 4 * MIB + 1, allow).no_sm);
    assert_true(moving(ceclOpAllGather, false, 4, 4 * MIB + 1, never).no_sm);
    assert_false(moving(ceclOpAlltoAll, false, 4, 1, allow).no_sm);
    assert_false(moving(ceclOpAlltoAll, true, 4, 1, allow).no_sm);
    assert_true(moving(ceclOpAlltoAll, true, 4, 1, CECL_SM_REDUCE_ONLY).no_sm);
}

static void a_variable_all_to_all_may_copy_locally_whatever_its_size(void **state)
{
    (void)state;
    uint64_t layout[64] = {0};
    struct cecl_call call = {.op = ceclOpAlltoAll, .nranks = 4, .layout = layout};
    tune(&call, (struct cecl_choice){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, 0});
    assert_false(call.no_sm);
}

static void local_copies_go_aside_from_256_kib_on(void **state)
{
    (void)state;
    assert_false(moving(ceclOpAlltoAll, false, 4, 256 * KIB - 1, CECL_SM_ALLOW).side_copy);
    assert_true(moving(ceclOpAlltoAll, false, 4, 256 * KIB, CECL_SM_ALLOW).side_copy);
    assert_int_equal(moving(ceclOpAlltoAll, false, 4, 1, CECL_SM_NEVER).piece_worth, 256 * KIB);
}

static bool engine_copies(ceclOp_t op, bool in_place, uint64_t bytes)
{
    struct cecl_call call = call_of(op, in_place, CECL_PUSH, bytes);
    call.nranks = 4;
    call.engine_copies_locally = true;
    tune(&call, (struct cecl_choice){CECL_SM_NEVER, CECL_DIRECTION_AUTO, 0});
    return !call.no_sm;
}

static void copy_engines_copy_own_blocks_up_to_2_mib(void **state)
{
    (void)state;
    assert_true(engine_copies(ceclOpAllGather, false, 2 * MIB));
    assert_false(engine_copies(ceclOpAllGather, false, 2 * MIB + 1));
    assert_true(engine_copies(ceclOpAlltoAll, false, 2 * MIB));
    assert_false(engine_copies(ceclOpAlltoAll, false, 2 * MIB + 1));
    assert_false(engine_copies(ceclOpAlltoAll, true, 1));
}

static uint64_t rounds_of_a_broadcast(int n, uint64_t bytes)
{
    uint64_t layout[2 * 8] = {0};
    struct cecl_call call = {.op = ceclOpAllGather, .nranks = n, .bytes = bytes, .layout = layout};
    layout[1] = bytes;
    tune(&call, (struct cecl_choice){CECL_SM_NEVER, CECL_DIRECTION_AUTO, 0});
    return call.spread;
}

static void broadcasts_spread_from_3_ranks_and_1_mib_on(void **state)
{
    (void)state;
    assert_int_equal(rounds_of_a_broadcast(2, 64 * MIB), 0);
    assert_int_equal(rounds_of_a_broadcast(3, 1 * MIB - 1), 0);
    assert_int_equal(rounds_of_a_broadcast(3, 1 * MIB), 1);
    assert_int_equal(rounds_of_a_broadcast(8, 16 * MIB - 1), 1);
    assert_int_equal(rounds_of_a_broadcast(8, 16 * MIB), 2);
    assert_int_equal(rounds_of_a_broadcast(8, 112 * MIB), 8);
    assert_int_equal(rounds_of_a_broadcast(8, 1024 * MIB), 8);
}

/* ---- reductions */

static void all_reduces_are_written_by_sms_up_to_32_mib(void **state)
{
    (void)state;
    const struct cecl_call at = reducing(ceclOpAllReduce, 4, 32 * MIB, 0),
                           above = reducing(ceclOpAllReduce, 4, 32 * MIB + 1, 0);
    assert_true(at.sms_send);
    assert_int_equal(at.sms_end, 0);
    assert_int_equal(at.max_sms, 16);
    assert_false(above.sms_send);
    assert_int_equal(above.sms_end, 512 * KIB);
    assert_int_equal(above.max_sms, 8);
    assert_int_equal(above.one_shot, 256 * KIB);
    assert_int_equal(above.bulk_min, 1 * MIB);
}

static void all_reduces_go_by_staging_from_blocks_of_32_mib_on(void **state)
{
    (void)state;
    const struct cecl_call below = reducing(ceclOpAllReduce, 4, 128 * MIB - 4, 0),
                           at = reducing(ceclOpAllReduce, 4, 128 * MIB, 0);
    assert_true(below.peers_read);
    assert_false(at.peers_read);
    assert_int_equal(at.max_sms, 16);
    assert_int_equal(at.chunk, 16 * MIB);
    assert_int_equal(at.halved, 0);
}

static void reduce_scatters_go_by_staging_from_192_mib_on(void **state)
{
    (void)state;
    const struct cecl_call below = reducing(ceclOpReduceScatter, 4, 192 * MIB - 1, 0),
                           at = reducing(ceclOpReduceScatter, 4, 192 * MIB, 0);
    assert_true(below.peers_read);
    assert_int_equal(below.max_sms, 8);
    assert_false(at.peers_read);
    assert_int_equal(at.chunk, 24 * MIB);
    assert_int_equal(at.halved, 8 * MIB);
}

static bool reads_with_staging_of(ceclOp_t op, uint64_t bytes, uint64_t staging)
{
    struct cecl_call call = reduction_of(op, 4, bytes, 1);
    call.nranks = 4;
    call.peers_read = true;
    call.staging_bytes = staging;
    tune(&call, (struct cecl_choice){CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO, 0});
    return call.peers_read;
}

/* Two chunks of three peers. */
static void staging_is_worth_it_where_chunks_are_large(void **state)
{
    (void)state;
    assert_true(reads_with_staging_of(ceclOpReduceScatter, 256 * MIB, 144 * MIB - 1));
    assert_false(reads_with_staging_of(ceclOpReduceScatter, 256 * MIB, 144 * MIB));
    assert_true(reads_with_staging_of(ceclOpAllReduce, 256 * MIB, 96 * MIB - 1));
    assert_false(reads_with_staging_of(ceclOpAllReduce, 256 * MIB, 96 * MIB));
}

static void chunks_have_1_to_64_mib(void **state)
{
    (void)state;
    const uint8_t push = CECL_DIRECTION_PUSH;
    assert_int_equal(reducing(ceclOpReduceScatter, 4, 8 * MIB - 2048, push).chunk, 1 * MIB);
    assert_int_equal(reducing(ceclOpReduceScatter, 4, 8 * MIB + 1, push).chunk, 1 * MIB + 0);
    assert_int_equal(reducing(ceclOpReduceScatter, 4, 8 * MIB + 2048, push).chunk, 1 * MIB + 256);
    assert_int_equal(reducing(ceclOpReduceScatter, 4, 512 * MIB, push).chunk, 64 * MIB);
    assert_int_equal(reducing(ceclOpReduceScatter, 4, 1024 * MIB, push).chunk, 64 * MIB);
    assert_int_equal(reducing(ceclOpAllReduce, 4, 64 * MIB, push).chunk, 8 * MIB);
}

static void reductions_are_urgent_from_blocks_of_2_mib_on(void **state)
{
    (void)state;
    assert_false(reducing(ceclOpReduceScatter, 4, 2 * MIB - 1, 0).urgent);
    assert_true(reducing(ceclOpReduceScatter, 4, 2 * MIB, 0).urgent);
}

/* ---- small calls */

static bool is_small(ceclOp_t op, int n, uint64_t bytes)
{
    struct cecl_call call = cecl_op_reduces(op) ? reduction_of(op, (uint64_t)n, bytes, 1)
                                                : call_of(op, false, CECL_PUSH, bytes);
    call.nranks = n;
    call.slot_bytes = 64 * MIB;
    tune(&call, (struct cecl_choice){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, 0});
    return call.small;
}

static void small_calls_end_where_they_were_measured(void **state)
{
    (void)state;
    static const struct {
        ceclOp_t op;
        uint64_t of_two, of_more;
    } cases[] = {{ceclOpAllReduce, 512 * KIB, 256 * KIB},
                 {ceclOpReduceScatter, 512 * KIB, 256 * KIB},
                 {ceclOpAllGather, 1 * MIB, 256 * KIB},
                 {ceclOpAlltoAll, 1 * MIB, 256 * KIB}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int n = 2; n <= 16; n++) {
            const uint64_t most = n == 2 ? cases[i].of_two : cases[i].of_more;
            assert_true(is_small(cases[i].op, n, most));
            assert_false(is_small(cases[i].op, n, most + 1));
        }
}

static uint32_t sms_of_a_small_call(ceclOp_t op, uint16_t max_sms)
{
    struct cecl_call call =
        cecl_op_reduces(op) ? reduction_of(op, 4, 4096, 1) : call_of(op, false, CECL_PUSH, 4096);
    call.nranks = 4;
    call.slot_bytes = 256 * KIB;
    tune(&call, (struct cecl_choice){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, max_sms});
    assert_true(call.small);
    return call.max_sms;
}

static void small_calls_take_32_sms_or_fewer(void **state)
{
    (void)state;
    for (int op = ceclOpAllGather; op <= ceclOpAllReduce; op++) {
        assert_int_equal(sms_of_a_small_call((ceclOp_t)op, 0), 32);
        assert_int_equal(sms_of_a_small_call((ceclOp_t)op, 7), 7);
        assert_int_equal(sms_of_a_small_call((ceclOp_t)op, 64), 32);
    }
}

/* ---- any table */

static struct cecl_tuning draw_tuning(uint64_t *x)
{
    struct cecl_tuning tuning;
    for (int t = 0; t < CECL_TUNE_COUNT; t++) {
        const struct cecl_threshold_info *info = &cecl_thresholds[t];
        const uint64_t wide = UINT64_C(1) << next(x) % 24, value = wide + next(x) % wide;
        const uint64_t some = next(x) % 8 == 0 ? info->most : value;
        tuning.value[t] = some < info->least ? info->least : some > info->most ? info->most : some;
    }
    return tuning;
}

static struct cecl_call draw_call(uint64_t *x, int n)
{
    const ceclOp_t op = (ceclOp_t)(next(x) % CECL_NUM_OPS);
    const uint64_t elements = 1 + next(x) % 4000;
    struct cecl_call call = cecl_op_reduces(op) ? reduction_of(op, (uint64_t)n, elements, 4)
                                                : call_of(op, next(x) % 2, CECL_PUSH, 4 * elements);
    call.nranks = n;
    call.staging_bytes = 4 * KIB << next(x) % 4;
    call.slots_offset = call.staging_bytes;
    call.slot_bytes = 4 * KIB;
    call.peers_read = cecl_op_reduces(op) && next(x) % 2;
    call.engine_copies_locally = next(x) % 2;
    return call;
}

static void any_allowed_table_gives_right_plans(void **state)
{
    (void)state;
    uint64_t x = 14;
    int ways[4] = {0};
    for (int i = 0; i < 3000; i++) {
        const int n = 2 + (int)(next(&x) % 5);
        const struct cecl_tuning tuning = draw_tuning(&x);
        const struct cecl_choice choice = {(uint8_t)(1 + next(&x) % 2), CECL_DIRECTION_AUTO, 0};
        struct cecl_call call = draw_call(&x, n);
        uint64_t layout[2 * 6] = {0};
        if (call.op == ceclOpAllGather && next(&x) % 2) { /* a broadcast */
            layout[1] = call.bytes;
            call.layout = layout;
        }
        cecl_tune(&call, choice, &tuning);
        ways[0] += call.small;
        ways[1] += call.spread > 0;
        ways[2] += call.sms_end > 0;
        ways[3] += call.no_sm;
        verify_calls(&call, 1, n);
    }
    for (int w = 0; w < 4; w++)
        assert_true(ways[w] > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_blocks_are_copied_locally_where_that_was_faster),
        cmocka_unit_test(a_variable_all_to_all_may_copy_locally_whatever_its_size),
        cmocka_unit_test(local_copies_go_aside_from_256_kib_on),
        cmocka_unit_test(copy_engines_copy_own_blocks_up_to_2_mib),
        cmocka_unit_test(broadcasts_spread_from_3_ranks_and_1_mib_on),
        cmocka_unit_test(all_reduces_are_written_by_sms_up_to_32_mib),
        cmocka_unit_test(all_reduces_go_by_staging_from_blocks_of_32_mib_on),
        cmocka_unit_test(reduce_scatters_go_by_staging_from_192_mib_on),
        cmocka_unit_test(staging_is_worth_it_where_chunks_are_large),
        cmocka_unit_test(chunks_have_1_to_64_mib),
        cmocka_unit_test(reductions_are_urgent_from_blocks_of_2_mib_on),
        cmocka_unit_test(small_calls_end_where_they_were_measured),
        cmocka_unit_test(small_calls_take_32_sms_or_fewer),
        cmocka_unit_test(any_allowed_table_gives_right_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
