/* The order that the verifier derives from flags: also through third ranks, and no more order than the
 * flags guarantee. */
#include "plans.h"

#define RANKS 4

/* A barrier in which all ranks signal rank 0 and rank 0 signals all: the other ranks are ordered
 * indirectly. */
static void barrier_through_rank_0(struct cecl_plan *plan)
{
    plan->phases[CECL_LANE_MAIN]++;
    for (int i = 1; i < RANKS && plan->part.call.rank == 0; i++)
        cecl_plan_await(plan, i, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    for (int i = 1; i < RANKS && plan->part.call.rank == 0; i++)
        cecl_plan_raise(plan, i, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    if (plan->part.call.rank > 0) {
        cecl_plan_raise(plan, 0, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
        cecl_plan_await(plan, 0, CECL_LANE_MAIN, plan->phases[CECL_LANE_MAIN]);
    }
}

/* An in-place all-gather by push between two such barriers, twice. Returns plans[c * RANKS + r]. */
static struct cecl_plan *gathers_through_rank_0(void)
{
    struct cecl_plan *plans = calloc(2 * RANKS, sizeof(*plans));
    assert_non_null(plans);
    for (int at = 0; at < 2 * RANKS; at++) {
        struct cecl_part part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 5);
        part.call.nranks = RANKS;
        part.call.rank = at % RANKS;
        struct cecl_place own = {.area = CECL_AREA_RECV,
                                 .rank = (uint16_t)part.call.rank,
                                 .offset = (uint64_t)part.call.rank * part.call.bytes};
        cecl_plan_init(&plans[at], &part);
        barrier_through_rank_0(&plans[at]);
        for (int i = 1; i < RANKS; i++) {
            struct cecl_place there = own;
            there.rank = (uint16_t)((part.call.rank + i) % RANKS);
            cecl_plan_copy(&plans[at], there, own, part.call.bytes);
        }
        barrier_through_rank_0(&plans[at]);
        assert_int_equal(cecl_plan_finish(&plans[at]), ceclSuccess);
    }
    return plans;
}

TEST(order_through_a_third_rank_counts)
{
    struct cecl_plan *plans = gathers_through_rank_0();
    if (cecl_verify(plans, 2, RANKS) != ceclSuccess)
        fail_msg("%s", cecl_message());
    free_plans(plans, 2 * RANKS);
}

TEST(order_through_a_third_rank_that_did_not_wait_is_none)
{
    struct cecl_plan *plans = gathers_through_rank_0();
    assert_int_equal(plans[0].steps[RANKS - 2].kind,
                     CECL_STEP_WAIT); /* the wait for the last rank */
    plans[0].steps[RANKS - 2].peer = 1;
    assert_int_equal(cecl_verify(plans, 2, RANKS), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "race"));
    free_plans(plans, 2 * RANKS);
}

/* Flags only grow: any later signal also ends a wait, and its sender has come further. */
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
