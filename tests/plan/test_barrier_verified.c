/* A barrier's plan: each rank signals to all other ranks and waits for all of them, alone, among
 * other calls and in groups. */
#include "plans.h"

static struct cecl_part a_barrier(void)
{
    return part_of(CECL_OP_BARRIER, false, CECL_PUSH, 0);
}

TEST(a_barrier_is_a_signal_to_each_and_a_wait_for_each)
{
    for (int n = 1; n <= 16; n++) {
        const struct cecl_part part = a_barrier();
        struct cecl_plan *plans = lower_all(&part, 1, n);
        for (int r = 0; r < n; r++) {
            assert_int_equal(plans[r].nsteps, 2 * (n - 1));
            assert_int_equal(plans[r].ncopies + plans[r].nreductions, 0);
            for (int i = 0; i < n - 1; i++) {
                assert_int_equal(plans[r].steps[i].kind, CECL_STEP_SIGNAL);
                assert_int_equal(plans[r].steps[i].peer, (r + 1 + i) % n);
                assert_int_equal(plans[r].steps[n - 1 + i].kind, CECL_STEP_WAIT);
                assert_int_equal(plans[r].steps[n - 1 + i].peer, (r + 1 + i) % n);
            }
        }
        assert_int_equal(cecl_verify(plans, 1, n), ceclSuccess);
        free_plans(plans, n);
    }
}

TEST(barriers_among_other_calls_are_right)
{
    for (int n = 2; n <= 9; n++) {
        struct cecl_part parts[5] = {
            a_barrier(), part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 12), a_barrier(),
            reduction_of(CECL_OP_ALL_REDUCE, (uint64_t)n, 9, 4), a_barrier()};
        parts[1].way.move.no_sm = true;
        verify_calls(parts, 5, n);
    }
}

TEST(a_barrier_of_a_group_is_right)
{
    for (int n = 2; n <= 6; n++) {
        struct cecl_plan plans[6];
        for (int r = 0; r < n; r++) {
            struct cecl_part parts[3] = {part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 7),
                                         a_barrier(),
                                         part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 5)};
            for (int i = 0; i < 3; i++) {
                parts[i].call.nranks = n;
                parts[i].call.rank = r;
            }
            assert_int_equal(cecl_lower_group(parts, 3, &plans[r]), ceclSuccess);
        }
        assert_int_equal(cecl_verify(plans, 1, n), ceclSuccess);
        for (int r = 0; r < n; r++)
            cecl_plan_free(&plans[r]);
    }
}
