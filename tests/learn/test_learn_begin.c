/* How a trial begins, boundary by boundary, with two ranks, the first of which is always ahead. */
#include <stdlib.h>

#include "../with_cmocka.h"

#include "nccl/trial.h"

enum { RANKS = 2, OFTEN = 10000 };

/* A rank's process. */
struct process {
    bool is_busy; /* the process tries another communicator */
    int held, asked;
};

static void *shared;
static struct process processes[RANKS];
static struct cecl_trial trials[RANKS];

static bool reserve(void *context, uint64_t id)
{
    struct process *process = context;
    (void)id;
    process->asked++;
    process->held += !process->is_busy;
    return !process->is_busy;
}
static void release(void *context, uint64_t id)
{
    struct process *process = context;
    (void)id;
    process->held--;
}
static int start(void **state)
{
    shared = calloc(1, cecl_trial_bytes(RANKS));
    for (int r = 0; r < RANKS; r++) {
        processes[r] = (struct process){0};
        const struct cecl_trial_host host = {&processes[r], reserve, release};
        cecl_trial_open(&trials[r], shared, r, RANKS, 17, &host);
    }
    return shared ? 0 : -1;
}
static int stop(void **state)
{
    free(shared);
    return 0;
}

static void want(uint64_t subject)
{
    for (int r = 0; r < RANKS; r++)
        cecl_trial_want(&trials[r], subject, 3);
}

static void pass_boundary_after(uint64_t ns)
{
    for (int r = 0; r < RANKS; r++)
        cecl_trial_boundary(&trials[r], true, ns);
    assert_int_equal(trials[0].state, trials[1].state);
}

static void pass_boundary(void)
{
    pass_boundary_after(1000000);
}

/* Makes boundaries, which are `ns` apart, until the trial runs, or is given up. Returns how many. */
static int boundaries_until_it_begins(uint64_t ns)
{
    int count = 0;
    do {
        pass_boundary_after(ns);
        count++;
    } while (count < OFTEN && trials[0].state != CECL_TRIAL_RUNNING &&
             trials[0].state != CECL_TRIAL_IDLE);
    return count;
}

static bool begins(void)
{
    (void)boundaries_until_it_begins(1000000);
    return trials[0].state == CECL_TRIAL_RUNNING;
}

TEST_BETWEEN(it_begins_when_all_are_ready, start, stop)
{
    want(1);
    assert_true(begins());
    assert_int_equal(processes[0].held, 1);
    assert_int_equal(processes[1].held, 1);
}

TEST_BETWEEN(a_busy_rank_puts_it_off_eight_times, start, stop)
{
    processes[1].is_busy = true;
    want(1);
    assert_false(begins());
    assert_int_equal(trials[0].state, CECL_TRIAL_IDLE);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(processes[r].asked, CECL_TRIAL_ATTEMPTS);
        assert_int_equal(processes[r].held, 0);
    }
}

/* A benchmark that makes a call of 6 us some hundred times has no trial of it. 64 such calls are a period. */
TEST_BETWEEN(a_short_subject_must_have_come_for_eight_periods, start, stop)
{
    want(1);
    assert_int_equal(boundaries_until_it_begins(200000), 5);
    want(2);
    assert_in_range(boundaries_until_it_begins(6000), 8 * 64, 8 * 64 + 8);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(trials[r].state, CECL_TRIAL_RUNNING);
        assert_int_equal(trials[r].merged, 64);
        assert_int_equal(processes[r].held, 1);
    }
}

/* 512 periods later. */
TEST_BETWEEN(a_trial_that_was_left_begins_later, start, stop)
{
    processes[1].is_busy = true;
    want(1);
    assert_false(begins());
    assert_true(trials[0].is_busy);
    processes[1].is_busy = false;
    for (int i = 0; i < 511; i++)
        pass_boundary();
    assert_int_equal(trials[0].state, CECL_TRIAL_IDLE);
    assert_true(begins());
}

/* One rank's host is this many boundaries behind. Fails if there were attempts before. */
static bool begins_apart(int boundaries)
{
    want(1);
    for (int i = 0; i < boundaries; i++)
        cecl_trial_boundary(&trials[0], true, 5000);
    for (int i = 0; i < OFTEN && trials[0].state != CECL_TRIAL_IDLE; i++)
        for (int r = 0; r < RANKS; r++)
            if (trials[r].state != CECL_TRIAL_RUNNING)
                cecl_trial_boundary(&trials[r], true, 5000);
    return trials[0].trials == 1 && trials[1].trials == 1;
}

/* No process is busy with another trial. Once ranks know how short a repetition is, offers are
 * valid for 4 periods of 64, and then longer. */
TEST_BETWEEN(a_rank_that_is_far_behind_has_time_to_offer, start, stop)
{
    assert_true(begins_apart(1500));
    assert_true(trials[0].attempt > 0 && trials[0].attempt < 4);
    assert_false(trials[0].is_busy);
    assert_int_equal(trials[0].merged, trials[1].merged);
    assert_int_equal(trials[0].merged, 64);
}

/* The late rank sees that all have offered, but the first rank passed the boundary before that. */
TEST_BETWEEN(a_rank_that_is_ahead_decides, start, stop)
{
    want(1);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 5; i++) /* to the first decision */
            cecl_trial_boundary(&trials[r], true, 1000000);
    assert_int_equal(trials[0].state, CECL_TRIAL_WAITING);
    assert_int_equal(trials[1].state, CECL_TRIAL_WAITING);
    assert_int_equal(processes[0].held + processes[1].held, 0);
}

/* The rank offered, then the period changed, and then its process began to try another
 * communicator. */
TEST_BETWEEN(an_offer_of_an_earlier_subject_does_not_count, start, stop)
{
    want(1);
    pass_boundary();
    assert_int_equal(trials[1].state, CECL_TRIAL_OFFERED);
    want(2);
    assert_int_equal(processes[1].held, 0);
    processes[1].is_busy = true;
    assert_false(begins());
    processes[1].is_busy = false;
    want(3);
    assert_true(begins());
}

/* The GPU never reaches a period's end. */
TEST_BETWEEN(a_trial_ends_without_times, start, stop)
{
    want(1);
    assert_true(begins());
    for (int i = 0; i < OFTEN && trials[0].state == CECL_TRIAL_RUNNING; i++)
        pass_boundary();
    assert_true(trials[0].has_verdict);
    assert_int_equal(trials[0].arm, 0);
    assert_int_equal(trials[0].put_off, 14);
    assert_int_equal(processes[0].held + processes[1].held, 0);
}
