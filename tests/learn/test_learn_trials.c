/* Seeded programs with trials of steps: which arms are kept, that ranks agree, and which communicator has a trial. */
#include <math.h>

#include "../share.h"
#include "../with_cmocka.h"
#include "nccl/trial_reservation.h"
#include "world.h"

static uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    const uint64_t number = text ? strtoull(text, NULL, 0) : otherwise;
    print_message("%s=%llu\n", variable, (unsigned long long)number);
    return number;
}

static struct program any_program(uint64_t seed)
{
    struct program program = {.seed = seed, .ncomms = 1, .step_ns = 1e6, .steps = 400};
    program.nranks = 2 + (int)below(&program.seed, 3);
    program.length[0] = 1 + (uint32_t)below(&program.seed, 200);
    if (program.length[0] < 22) /* a period counts as found only after 64 calls */
        program.steps += 64 / program.length[0];
    program.noise = uniform(&program.seed, 0.002, 0.05);
    program.drift = uniform(&program.seed, -0.1, 0.1);
    program.odd = below(&program.seed, 2) ? 0.02 : 0;
    program.lag = (uint32_t)below(&program.seed, 4);
    program.ahead = (uint32_t)below(&program.seed, 3);
    for (int arm = 1; arm < CECL_VERDICT_ARMS; arm++)
        program.gain[0][arm] =
            uniform(&program.seed, 0.02, 0.2) * (below(&program.seed, 2) ? 1 : -1);
    return program;
}

/* Short periods: loops of a few calls. One host may be ahead of another by as many launches as a GPU's queue holds, and
 * a GPU behind its host by as many. */
static struct program any_loop(uint64_t seed)
{
    struct program program = any_program(seed);
    const uint32_t queue = 1024;
    program.length[0] = 1 + (uint32_t)below(&program.seed, 4);
    program.step_ns = exp(uniform(&program.seed, log(2e3), log(5e5)));
    program.odd = below(&program.seed, 2) ? 0.0005 : 0;
    program.lag = (uint32_t)below(&program.seed, queue) / program.length[0];
    program.ahead = (uint32_t)below(&program.seed, queue) / program.length[0];
    program.is_apart = below(&program.seed, 2);
    /* `drift` is over 60 steps; but 60 short steps are only a few periods of a trial, in which times change less */
    program.drift /= 100;
    program.steps = 20000;
    return program;
}

struct tally {
    int slower, missed, gaining, late, disagree, none;
};

static void run_one(struct tally *tally, const struct program *program, uint32_t most_periods)
{
    const struct outcome outcome = run_program(program);
    double most = 0;
    for (int arm = 1; arm < CECL_VERDICT_ARMS; arm++)
        most = program->gain[0][arm] > most ? program->gain[0][arm] : most;
    tally->disagree += outcome.disagree;
    tally->none += !outcome.has_verdict[0];
    tally->late += outcome.periods[0] > most_periods;
    tally->slower += program->gain[0][outcome.arm[0]] < -0.01;
    if (outcome.has_verdict[0] && most > 4 * program->noise * sqrt(2.0 / outcome.counted[0][0])) {
        tally->gaining++;
        tally->missed += outcome.arm[0] == 0;
    }
}

/* Goals of the design: a slower arm is kept at most once in 1,000 times; a gain of more than four standard errors is kept
 * at least 99 times in 100; ranks never differ. */
static void expect_goals(struct program (*any)(uint64_t), bool are_timely)
{
    const uint64_t seed = number("CECL_TEST_SEED", 1);
    const uint64_t programs = number("CECL_TEST_PROGRAMS", (uint64_t)test_share(1000));
    struct tally tally = {0};
    for (uint64_t i = 0; i < programs; i++) {
        const struct program program = any(seed * 100003 + i);
        /* 60 periods, and more if there are evaluation steps, or if ranks are late */
        const uint32_t most = 60 + 2 + program.lag + program.ahead + (program.odd > 0 ? 16 : 0);
        run_one(&tally, &program, are_timely ? most : UINT32_MAX);
    }
    print_message("%d slower kept, %d of %d gains missed, %d without a verdict, %d late\n",
                  tally.slower, tally.missed, tally.gaining, tally.none, tally.late);
    assert_int_equal(tally.disagree, 0);
    assert_true(tally.slower * 1000 <= (int)programs);
    assert_true(tally.gaining > (int)programs / 2);
    assert_true(tally.missed * 100 <= tally.gaining);
    assert_true(tally.none * 100 <= (int)programs);
    assert_int_equal(tally.late, 0);
}

TEST(arms_that_gain_are_kept_and_slower_ones_are_not)
{
    expect_goals(any_program, true);
}

TEST(so_are_those_of_loops_whose_ranks_are_far_apart)
{
    expect_goals(any_loop, false);
}

/* In each of `seeds` programs all communicators get a verdict; only the first communicator gains. */
static void each_gets_its_verdict(struct program program, uint64_t seeds)
{
    for (int arm = 1; arm < CECL_VERDICT_ARMS; arm++) {
        program.gain[0][arm] = 0.06;
        program.gain[1][arm] = -0.06;
    }
    for (program.seed = 1; program.seed <= seeds; program.seed++) {
        struct program seeded = program;
        seeded.is_apart = program.is_apart && program.seed % 2;
        const struct outcome outcome = run_program(&seeded);
        assert_false(outcome.disagree);
        for (int c = 0; c < program.ncomms; c++) {
            assert_true(outcome.has_verdict[c]);
            assert_int_equal(outcome.arm[c] != 0, c == 0);
        }
    }
}

TEST(communicators_that_share_a_step_each_get_their_verdict)
{
    const struct program program = {.nranks = 4,
                                    .ncomms = 4,
                                    .length = {39, 12, 7, 24},
                                    .noise = 0.005,
                                    .step_ns = 1e6,
                                    .lag = 2,
                                    .ahead = 2,
                                    .steps = 1200};
    each_gets_its_verdict(program, 50);
}

/* Short steps, with ranks far apart: one communicator's offer is valid for long, and blocks the others. */
TEST(communicators_of_a_loop_each_get_their_verdict)
{
    const struct program program = {.nranks = 3,
                                    .ncomms = 3,
                                    .length = {1, 2, 1},
                                    .noise = 0.02,
                                    .step_ns = 2e4,
                                    .lag = 300,
                                    .ahead = 300,
                                    .is_apart = true,
                                    .steps = 60000};
    each_gets_its_verdict(program, 20);
}

static struct program training(uint64_t seed)
{
    return (struct program){.seed = seed,
                            .nranks = 2,
                            .ncomms = 1,
                            .length = {39},
                            .noise = 0.005,
                            .step_ns = 1e6,
                            .steps = 170};
}

/* An arm that takes at least 1.25 times as long gets a single turn. */
TEST(a_bad_arm_has_one_turn)
{
    struct program program = training(7);
    for (int arm = 1; arm < CECL_VERDICT_ARMS; arm++)
        program.gain[0][arm] = -0.5;
    const struct outcome outcome = run_program(&program);
    assert_true(outcome.has_verdict[0]);
    assert_int_equal(outcome.arm[0], 0);
    assert_true(outcome.periods[0] <= 3 * (1 + 3) + 3 + 3);
}

/* The bad arm, one of arms 1 to 3, is timed twice. After three rounds only arm 0 and the best other arm get turns. */
TEST(only_the_bad_arm_is_dropped)
{
    struct program program = training(7);
    program.gain[0][1] = 0.05;
    program.gain[0][2] = -0.5;
    const struct outcome outcome = run_program(&program);
    assert_int_equal(outcome.arm[0], 1);
    assert_int_equal(outcome.counted[0][2], 2);
    assert_int_equal(outcome.counted[0][3], 3 * 2);
    assert_int_equal(outcome.counted[0][0], outcome.counted[0][1]);
    assert_true(outcome.counted[0][0] > 12);
    assert_true(outcome.periods[0] <= 60 + 2);
}

/* How many of 400 programs keep an arm whose gain is small compared with the scatter of times. */
static int kept(double gain, double noise)
{
    int kept = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct program program = training(seed * 31);
        program.noise = noise;
        program.gain[0][1] = gain / 4;
        program.gain[0][2] = gain;
        program.gain[0][3] = -0.05;
        const struct outcome outcome = run_program(&program);
        assert_true(outcome.has_verdict[0]);
        assert_true(outcome.periods[0] <= 60 + 2);
        assert_int_not_equal(outcome.arm[0], 3);
        kept += outcome.arm[0] == 2;
    }
    return kept;
}

TEST(small_gains_are_kept_more_often_than_not)
{
    const int gaining = kept(0.025, 0.025), equal = kept(0, 0.025);
    print_message("of 400 programs %d with a gain kept, %d without one\n", gaining, equal);
    assert_true(gaining >= 200);
    assert_true(equal <= 16);
}

/* Steps of 20 us: several steps are timed as one period. */
TEST(short_steps_are_tried_together)
{
    struct program program = training(8);
    program.step_ns = 2e4;
    program.steps = 62 * 16 + 100;
    program.gain[0][3] = 0.05;
    const struct outcome outcome = run_program(&program);
    assert_int_equal(outcome.trials[0], 1);
    assert_int_equal(outcome.arm[0], 3);
    assert_true(outcome.periods[0] > 60 * 8 && outcome.periods[0] <= 61 * 16);
}

TEST(a_changed_period_is_tried_anew_and_a_learned_one_is_not)
{
    struct program program = training(9);
    program.gain[0][1] = 0.05;
    program.changes = 400;
    program.steps = 400;
    assert_int_equal(run_program(&program).trials[0], 1);
    program.steps = 800;
    assert_int_equal(run_program(&program).trials[0], 2);
    program.steps = 8000;
    const struct outcome outcome = run_program(&program);
    assert_int_equal(outcome.trials[0], 2);
    assert_true(outcome.has_verdict[0]);
    assert_int_equal(outcome.arm[0], 1);
}

/* Trials repeat after 10,000 periods. */
TEST(a_verdict_wears_out)
{
    struct program program = training(10);
    program.gain[0][1] = 0.05;
    program.length[0] = 3;
    program.steps = 10000;
    assert_int_equal(run_program(&program).trials[0], 1);
    program.steps = 10300;
    assert_int_equal(run_program(&program).trials[0], 2);
    /* with short steps, a period is 16 or more of them */
    program.step_ns = 1e4;
    program.steps = 100000;
    assert_int_equal(run_program(&program).trials[0], 1);
}

enum { A = 1, B = 3 };
#define IDLE CECL_RESERVATION_IDLE_NS

TEST(only_one_communicator_has_it)
{
    struct cecl_reservation its = {0};
    assert_true(cecl_reservation_take(&its, A, 100));
    assert_true(cecl_reservation_take(&its, A, 100)); /* by another rank of this process */
    assert_false(cecl_reservation_take(&its, B, 101));
    cecl_reservation_leave(&its, A);
    assert_false(cecl_reservation_take(&its, B, 102));
    cecl_reservation_leave(&its, A);
    assert_true(cecl_reservation_take(&its, B, 103));
    assert_false(cecl_reservation_take(&its, A, 104));
}

TEST(one_that_makes_no_more_calls_loses_it)
{
    struct cecl_reservation its = {0};
    assert_true(cecl_reservation_take(&its, A, 100));
    cecl_reservation_use(&its, A, 200);
    assert_false(cecl_reservation_take(&its, B, 199 + IDLE));
    assert_true(cecl_reservation_take(&its, B, 200 + IDLE));
    cecl_reservation_use(&its, A, 300 + IDLE); /* A goes on */
    cecl_reservation_leave(&its, A);
    assert_false(cecl_reservation_take(&its, A, 301 + IDLE));
    cecl_reservation_leave(&its, B);
    assert_true(cecl_reservation_take(&its, A, 302 + IDLE));
}
