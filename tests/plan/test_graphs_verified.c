/* Plans of captured calls: which of them tell their host when they run, and faults that the verifier must find.
 * tests/fuzz/fuzz_plan.c shows that such plans are right when they are repeated and mixed with others. */
#include "plans.h"

#include "ce/capture.h"
#include "flags/turns.h"

#define TIMES 3

/* A captured plan of `count` barriers of two ranks, between `first` and `last` steps of another kind. */
static struct cecl_plan barriers_between(int rank, int first, int count, int last)
{
    const struct cecl_step step = {.kind = CECL_STEP_REDUCE}; /* any step that is no flag */
    struct cecl_part part = part_of(CECL_OP_BARRIER, false, CECL_PUSH, 0);
    struct cecl_plan plan;
    part.call.rank = rank;
    part.call.nranks = 2;
    cecl_plan_init(&plan, &part);
    for (int i = 0; i < first; i++)
        cecl_plan_repeat(&plan, &step);
    for (int i = 0; i < count; i++) {
        cecl_plan_barrier(&plan);
        if (i + 1 < count) /* keeps the waits of two barriers apart */
            cecl_plan_repeat(&plan, &step);
    }
    for (int i = 0; i < last; i++)
        cecl_plan_repeat(&plan, &step);
    assert_int_equal(cecl_plan_finish(&plan), ceclSuccess);
    assert_int_equal(cecl_plan_capture(&plan, false, 1), ceclSuccess);
    return plan;
}

/* As barriers_between, without the steps of another kind, which are no valid reductions. */
static struct cecl_plan barriers(int rank, int count)
{
    struct cecl_plan plan = barriers_between(rank, 0, count, 0);
    for (uint32_t s = plan.nsteps; s-- > 0;)
        if (plan.steps[s].kind == CECL_STEP_REDUCE)
            memmove(&plan.steps[s], &plan.steps[s + 1],
                    (--plan.nsteps - s) * sizeof(plan.steps[0]));
    return plan;
}

/* By flags alone, a call would seem ended while its last copies run, and not begun while its first ones run. */
TEST(a_call_that_does_not_begin_and_end_with_a_phase_tells_its_host)
{
    for (int kind = 1; kind < 12; kind++) { /* 0 would be an empty call */
        const int first = kind & 1, last = kind >> 1 & 1, count = kind >> 2;
        struct cecl_plan plan = barriers_between(0, first, count, last);
        const struct cecl_step *begin = &plan.steps[0], *end = begin + plan.nsteps - 1;
        const bool shown = count > 0 && first == 0; /* the last phase comes after all steps */
        if (!shown) {
            assert_int_equal(begin->counter, CECL_COUNTER_REPLAY);
            assert_int_equal(begin->phase, CECL_REPLAY_BEGUN);
            assert_int_equal(end->counter, CECL_COUNTER_REPLAY);
            assert_int_equal(end->phase, CECL_REPLAY_ENDED);
        }
        for (uint32_t s = 0; s < plan.nsteps && shown; s++)
            assert_int_not_equal(plan.steps[s].counter, CECL_COUNTER_REPLAY);
        cecl_plan_free(&plan);
    }
}

/* Spoils step `step` of the barriers, on all ranks. MOVED: exchanges it with the step before. */
enum spoil { LEFT_OUT, ONE_BIT, OTHER_BIT, MOVED };
static void expect_wrong(int count, int step, enum spoil how, const char *fault)
{
    static const struct cecl_verify_launch launches[TIMES] = {
        {.call = 0}, {.call = 1}, {.call = 2}};
    struct cecl_plan plans[TIMES * 2];
    const struct cecl_verify_program program = {.nranks = 2,
                                                .plans = plans,
                                                .ncalls = TIMES,
                                                .launches = {launches, launches},
                                                .nlaunches = {TIMES, TIMES}};
    for (int p = 0; p < TIMES * 2; p++) {
        plans[p] = barriers(p % 2, count);
        struct cecl_step *at = &plans[p].steps[step];
        if (how == LEFT_OUT)
            memmove(at, at + 1, (--plans[p].nsteps - (uint32_t)step) * sizeof(*at));
        else if (how == ONE_BIT)
            at->phase &= ~1u;
        else if (how == MOVED) {
            const struct cecl_step moved = *at;
            *at = at[-1];
            at[-1] = moved;
        } else
            at->phase = 1;
    }
    assert_int_equal(cecl_verify_program(&program), ceclInternalError);
    if (!strstr(cecl_message(), fault))
        fail_msg("%s", cecl_message());
    for (int p = 0; p < TIMES * 2; p++)
        cecl_plan_free(&plans[p]);
}

TEST(a_wait_that_may_end_early_is_found)
{
    expect_wrong(2, 5, OTHER_BIT, "early"); /* finds phase 0's bit, which the peer still shows */
    expect_wrong(2, 2, MOVED, "early");     /* the number comes before phase 1's word */
}

TEST(a_bit_that_a_peer_may_miss_is_found)
{
    expect_wrong(2, 1, ONE_BIT, "may still wait"); /* phase 1's word lacks phase 0's bit */
    static const int waits[] = {0, 3, 5};
    for (int i = 0; i < 3; i++)
        expect_wrong(2, waits[i], LEFT_OUT, "may still wait");
    expect_wrong(2, 6, LEFT_OUT, "early"); /* the previous call's number is still there */
}

TEST(a_call_without_its_last_signal_is_found)
{
    expect_wrong(2, 7, LEFT_OUT, "does not look late");
}
