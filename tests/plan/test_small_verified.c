/* Small calls: one exchange a call, none before it, and slots that take turns from call to call. Enough
 * for sequences of small calls and others on the same buffers, where slots that take no turns are not. */
#include "plans.h"

#define SLOT 512
#define CALLS 6
#define RANKS_MAX 16

/* A small call, or another one; `turn` is the number of small calls so far. */
static struct cecl_call draw(uint64_t *x, uint64_t n, bool small, uint8_t turn)
{
    static const ceclOp_t ops[] = {ceclOpAllReduce, ceclOpReduceScatter, ceclOpAllGather,
                                   ceclOpAlltoAll};
    const ceclOp_t op = ops[next(x) % 4];
    const bool in_place = next(x) % 2;
    const uint64_t bytes = 1 + next(x) % (SLOT / 8);
    struct cecl_call call =
        cecl_op_reduces(op) ? reduction_of(op, n, bytes, 1) : call_of(op, false, CECL_PUSH, bytes);
    call.in_place = in_place;
    call.staging_bytes = 8192;
    call.slots_offset = 8192;
    call.slot_bytes = SLOT;
    call.small = small;
    call.turn = turn;
    if (!small) {
        call.no_sm = next(x) % 2;
        call.peers_read = cecl_op_reduces(op) && next(x) % 2;
        call.one_shot = next(x) % 2 ? SLOT : 0;
    }
    return call;
}

/* Calls of one sequence. Small ones take turns, or they do not. */
static void draw_all(uint64_t seed, uint64_t n, unsigned others, bool turns,
                     struct cecl_call calls[CALLS])
{
    uint8_t turn = 0;
    for (int c = 0; c < CALLS; c++) {
        const bool small = others == 0 || next(&seed) % others != 0;
        calls[c] = draw(&seed, n, small, turn);
        if (small && turns)
            turn ^= 1;
    }
}

static void small_calls_follow_each_other(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 150; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_call calls[CALLS];
        draw_all(seed, (uint64_t)n, 0, true, calls);
        verify_calls(calls, CALLS, n);
    }
}

static void small_calls_and_others_follow_each_other(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        const int n = 2 + (int)(seed % 6);
        struct cecl_call calls[CALLS];
        draw_all(seed, (uint64_t)n, 2, true, calls);
        verify_calls(calls, CALLS, n);
    }
}

static void small_calls_of_many_ranks_are_right(void **state)
{
    (void)state;
    for (int n = 9; n <= RANKS_MAX; n++) {
        struct cecl_call calls[CALLS];
        draw_all((uint64_t)n, (uint64_t)n, 3, true, calls);
        verify_calls(calls, CALLS, n);
    }
}

static void slots_without_turns_are_a_race(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 50; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_call calls[CALLS];
        draw_all(seed, (uint64_t)n, 0, false, calls);
        struct cecl_plan *plans = lower_all(calls, CALLS, n);
        assert_int_equal(cecl_verify(plans, CALLS, n), ceclInternalError);
        assert_non_null(strstr(cecl_message(), "race"));
        free_plans(plans, CALLS * n);
    }
}

static uint64_t small_most(int n)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, n);
    return cecl_tuning_largest_small(&tuning);
}

/* What is small is told by the call, the ranks and the choice alone. */
static bool goes_small(ceclOp_t op, int n, uint64_t bytes, ceclSmPolicy_t policy,
                       ceclDirection_t direction)
{
    struct cecl_call call = cecl_op_reduces(op) ? reduction_of(op, (uint64_t)n, bytes, 1)
                                                : call_of(op, false, CECL_PUSH, bytes);
    call.nranks = n;
    call.slot_bytes = small_most(n);
    tune(&call, (struct cecl_choice){(uint8_t)policy, (uint8_t)direction, 0});
    return call.small;
}

static void tuning_knows_what_is_small(void **state)
{
    (void)state;
    assert_true(goes_small(ceclOpAllReduce, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_true(goes_small(ceclOpReduceScatter, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(ceclOpAllGather, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(ceclOpAlltoAll, 16, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    /* zero SM is a promise */
    assert_false(goes_small(ceclOpAllGather, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAlltoAll, 4, 4096, CECL_SM_NEVER, CECL_DIRECTION_AUTO));
    /* who names a direction means copies or reads */
    assert_false(goes_small(ceclOpAllReduce, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PUSH));
    assert_false(goes_small(ceclOpAllGather, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PULL));
    assert_false(goes_small(ceclOpAllReduce, 1, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAllReduce, 17, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(ceclOpAllReduce, 4, 256 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAllReduce, 4, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAllReduce, 3, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(ceclOpAllReduce, 2, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAllReduce, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_int_equal(small_most(2), 1 << 20);
    assert_int_equal(small_most(3), 256 << 10);
    assert_true(goes_small(ceclOpAlltoAll, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpAllGather, 2, (1 << 20) + 4, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(ceclOpReduce, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_calls_follow_each_other),
        cmocka_unit_test(small_calls_and_others_follow_each_other),
        cmocka_unit_test(small_calls_of_many_ranks_are_right),
        cmocka_unit_test(slots_without_turns_are_a_race),
        cmocka_unit_test(tuning_knows_what_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
