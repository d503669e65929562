/* Captured calls: their plans are right however often they run, one after the other and between calls that
 * no graph captured. Also: which bits phases have, and faults that the verifier must find. */
#include "plans.h"

#include "ce/capture.h"
#include "flags/turns.h"

#define TEMPLATES 5
#define TIMES 7
#define RANKS_MAX 8

static struct cecl_part draw_reduction(uint64_t *x, int n)
{
    static const enum cecl_op_index ops[] = {CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE,
                                             CECL_OP_REDUCE};
    const enum cecl_op_index op = ops[next(x) % 3];
    struct cecl_part part = reduction_of(op, (uint64_t)n, 1 + next(x) % 40, 1);
    part.call.in_place = next(x) % 2;
    part.way.reduce.read_at_peers = op != CECL_OP_REDUCE && next(x) % 2;
    part.way.reduce.sms_end = op == CECL_OP_ALL_REDUCE && next(x) % 2 ? next(x) % 12 : 0;
    part.way.reduce.one_shot = next(x) % 3 == 0 ? 64 : 0;
    part.way.reduce.chunk = 1 + next(x) % 6;
    part.way.reduce.halved = next(x) % 2 ? 0 : 1 + next(x) % 3;
    part.call.root = (int)(next(x) % (uint64_t)n);
    return part;
}

static struct cecl_part draw_moving(uint64_t *x, int n)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_BROADCAST, CECL_OP_BARRIER};
    struct cecl_part part = part_of(ops[next(x) % 4], next(x) % 2,
                                    next(x) % 2 ? CECL_PUSH : CECL_PULL, 1 + next(x) % 12);
    part.way.move.no_sm = next(x) % 2;
    part.way.move.beside = next(x) % 2;
    part.way.move.piece_worth = 1 + next(x) % 9;
    if (part.call.op->rooted) {
        part.call.root = (int)(next(x) % (uint64_t)n);
        part.way.move.direction = CECL_PUSH;
        part.way.move.spread = next(x) % 4;
    }
    return part;
}

static struct cecl_part draw(uint64_t *x, int n)
{
    struct cecl_part part = next(x) % 2 ? draw_reduction(x, n) : draw_moving(x, n);
    if (part.call.op->family == CECL_FAMILY_BARRIER)
        part.call.bytes = part.call.element = 0;
    part.means.staging_bytes = 4096;
    return part;
}

/* Returns the plans of all ranks for calls in the order `sequence`, in which a call may repeat. */
static struct cecl_plan *lower_sequence(const struct cecl_part *parts, const int *sequence, int n)
{
    struct cecl_part all[TIMES];
    for (int i = 0; i < TIMES; i++)
        all[i] = parts[sequence[i]];
    struct cecl_plan *plans = lower_all(all, TIMES, n);
    for (int i = 0; i < TIMES * n; i++)
        if (plans[i].part.call.captured)
            assert_int_equal(cecl_plan_capture(&plans[i], false, 1 + (uint32_t)sequence[i / n]),
                             ceclSuccess);
    return plans;
}

static ceclResult_t verify_times(const struct cecl_plan *plans, int times, int n, uint64_t order)
{
    struct cecl_verify_launch launches[TIMES];
    struct cecl_verify_program program = {
        .nranks = n, .plans = plans, .ncalls = times, .order = order};
    for (int i = 0; i < times; i++)
        launches[i] = (struct cecl_verify_launch){.call = i};
    for (int r = 0; r < n; r++) {
        program.launches[r] = launches;
        program.nlaunches[r] = times;
    }
    return cecl_verify_program(&program);
}

TEST(replays_of_several_calls_between_eager_ones_are_right)
{
    uint64_t x = 20261125;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < test_share(800); round++) {
        const int n = 2 + round % (RANKS_MAX - 1);
        struct cecl_part parts[TEMPLATES];
        int sequence[TIMES];
        for (int t = 0; t < TEMPLATES; t++) {
            parts[t] = draw(&x, n);
            parts[t].call.captured = t > 0; /* most calls are captured */
        }
        for (int i = 0; i < TIMES; i++)
            sequence[i] = (int)(next(&x) % TEMPLATES);
        struct cecl_plan *plans = lower_sequence(parts, sequence, n);
        if (verify_times(plans, TIMES, n, round % 2 ? next(&x) | 1 : 0) != ceclSuccess)
            fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
        free_plans(plans, TIMES * n);
    }
}

TEST(each_call_is_right_when_it_runs_again_and_again)
{
    static const int same[TIMES];
    uint64_t x = 7;
    for (int round = 0; round < test_share(600); round++) {
        const int n = 2 + round % (RANKS_MAX - 1);
        struct cecl_part part = draw(&x, n);
        part.call.captured = 1;
        struct cecl_plan *plans = lower_sequence(&part, same, n);
        if (verify_times(plans, TIMES, n, next(&x) | 1) != ceclSuccess)
            fail_msg("round %d, %d ranks, %s: %s", round, n, part.call.op->name, cecl_message());
        free_plans(plans, TIMES * n);
    }
}

/* A group is captured as a whole. */
TEST(groups_are_right_when_they_run_again)
{
    uint64_t x = 99;
    for (int round = 0; round < test_share(200); round++) {
        const int n = 2 + round % 4;
        struct cecl_part parts[3], mine[3];
        struct cecl_plan plans[2 * 5] = {0};
        for (int i = 0; i < 3; i++) {
            parts[i] = i == 0 || next(&x) % 2
                           ? draw_reduction(&x, n)
                           : part_of(next(&x) % 2 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL,
                                     next(&x) % 2, CECL_PUSH, 1 + next(&x) % 12);
            parts[i].means.staging_bytes = round % 3 ? 4096 : 400; /* one bundle, or several */
            if (round % 2)
                parts[i].way.reduce.chunk = 4096;
        }
        for (int p = 0; p < 2 * n; p++) {
            for (int i = 0; i < 3; i++) {
                mine[i] = parts[i];
                mine[i].call.nranks = n;
                mine[i].call.rank = p % n;
                mine[i].call.captured = 1;
            }
            assert_int_equal(cecl_lower_group(mine, 3, &plans[p]), ceclSuccess);
        }
        for (int p = 0; p < 2 * n; p++)
            assert_int_equal(cecl_plan_capture(&plans[p], false, 1 + (uint32_t)(p / n)),
                             ceclSuccess);
        if (verify_times(plans, 2, n, 0) != ceclSuccess)
            fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
        for (int p = 0; p < 2 * n; p++)
            cecl_plan_free(&plans[p]);
    }
}

/* ---- the words */

/* A captured plan of `count` barriers of two ranks, between `first` and `last` steps of another kind. */
static struct cecl_plan barriers_between(int rank, int first, int count, int last)
{
    const struct cecl_step step = {.kind = CECL_STEP_REDUCE}; /* any step */
    struct cecl_part part = part_of(CECL_OP_BARRIER, false, CECL_PUSH, 0);
    struct cecl_plan plan;
    part.call.rank = rank;
    part.call.nranks = 2;
    cecl_plan_init(&plan, &part);
    for (int i = 0; i < first; i++)
        cecl_plan_repeat(&plan, &step);
    for (int i = 0; i < count; i++) {
        cecl_plan_barrier(&plan);
        if (i + 1 < count) /* keeps the waits apart */
            cecl_plan_repeat(&plan, &step);
    }
    for (int i = 0; i < last; i++)
        cecl_plan_repeat(&plan, &step);
    assert_int_equal(cecl_plan_finish(&plan), ceclSuccess);
    assert_int_equal(cecl_plan_capture(&plan, false, 1), ceclSuccess);
    return plan;
}

/* The same without the steps of another kind, which are no valid reductions. */
static struct cecl_plan barriers(int rank, int count)
{
    struct cecl_plan plan = barriers_between(rank, 0, count, 0);
    for (uint32_t s = plan.nsteps; s-- > 0;)
        if (plan.steps[s].kind == CECL_STEP_REDUCE)
            memmove(&plan.steps[s], &plan.steps[s + 1],
                    (--plan.nsteps - s) * sizeof(plan.steps[0]));
    return plan;
}

/* Each barrier is its signal's bits, and the bit that is waited for; bit 0 is A. */
TEST(every_call_ends_alike_and_has_three_phases_at_least)
{
    static const char *const expected[] = {"",
                                           "+A A(+( C+C) AC",
                                           "+A A(+( C+C) AC",
                                           "+A A(+( C+C CD+D) AD",
                                           "+A A(+( C+C CD+D DE+E) AE",
                                           "+A A(+( C+C CD+D DE+E CE+C) AC"};
    for (int count = 1; count <= 5; count++) {
        struct cecl_plan plan = barriers(0, count);
        char text[64] = "", *at = text;
        for (uint32_t s = 0; s < plan.nsteps; s++) {
            const struct cecl_step *step = &plan.steps[s];
            assert_int_equal(step->peer, step->kind == CECL_STEP_WAIT);
            if (step->counter == CECL_COUNTER_CALL) { /* the number of the call, or its end */
                assert_true(step->phase <= 1);
                at += sprintf(at, "%s",
                              step->kind == CECL_STEP_WAIT ? "+("
                              : step->phase                ? "("
                                                           : ")");
                continue;
            }
            assert_int_equal(step->counter, CECL_COUNTER_TURN);
            *at++ = step->kind == CECL_STEP_WAIT ? '+' : ' ';
            for (int b = 0; b < CECL_TURNS_SHIFT; b++)
                if (step->phase >> b & 1)
                    *at++ = (char)('A' + b);
        }
        assert_string_equal(text, expected[count]);
        cecl_plan_free(&plan);
    }
}

/* The host must not take a call for ended whose last copies still run, nor for not begun whose first ones do. */
TEST(a_call_that_does_not_begin_and_end_with_a_phase_tells_its_host)
{
    for (int kind = 1; kind < 12; kind++) { /* 0 would be an empty call */
        const int first = kind & 1, last = kind >> 1 & 1, count = kind >> 2;
        struct cecl_plan plan = barriers_between(0, first, count, last);
        const struct cecl_step *begin = &plan.steps[0], *end = begin + plan.nsteps - 1;
        const bool shown = count > 0 && first == 0; /* steps behind come before the last phase */
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

/* Spoils step `step` of barriers on all ranks. MOVED: exchanges it with the step before. */
enum spoil { LEFT_OUT, ONE_BIT, OTHER_BIT, MOVED };
static void expect_wrong(int count, int step, enum spoil how, const char *fault)
{
    struct cecl_plan plans[3 * 2];
    for (int p = 0; p < 3 * 2; p++) {
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
    assert_int_equal(verify_times(plans, 3, 2, 0), ceclInternalError);
    if (!strstr(cecl_message(), fault))
        fail_msg("%s", cecl_message());
    for (int p = 0; p < 3 * 2; p++)
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
    expect_wrong(2, 6, LEFT_OUT, "early"); /* the number of the call before is still there */
}

TEST(a_call_without_its_last_signal_is_found)
{
    expect_wrong(2, 7, LEFT_OUT, "does not look late");
}
