/* For tests in which peers do not do their part. Ranks belong to this process, on the host device. Each test makes its
 * own communicators, and gives their time limit. */
#ifndef CECL_TESTS_UNIT_LATE_PEERS_H
#define CECL_TESTS_UNIT_LATE_PEERS_H

#include "../with_cmocka.h"
#include <time.h>

#include "comm/comm.h"
#include "util/clock.h"

#define RANKS 3
#include "comms.h"

/* Time limits: SOON for tests that wait for the timeout, NEVER for tests in which no timeout may come. A test that must
 * act before the timeout is repeated with the next of `limits`: on a busy machine it may act too late. */
#define SOON_MS 1000
#define SOON "1000"
#define NEVER "60000"
static const char *const limits[] = {"3000", "9000", "27000"};
#define SLACK_MS 60000 /* the error may be this late on a busy machine */

/* A test's state is its time limit. */
static int setup(void **state)
{
    setenv("CECL_TIMEOUT_MS", *state, 1);
    return open_all(state);
}

/* A rank that left has no handle any more. Errors are ignored: in most tests the other communicators have failed. */
static int teardown(void **state)
{
    for (int r = 0; r < RANKS; r++) {
        if (comms[r])
            (void)!ceclCommDestroy(comms[r]);
        comms[r] = NULL;
    }
    return 0;
}

/* Defines and registers a test with three ranks and this time limit. */
#define TEST_WITHIN(limit, name) \
    static void name(void **state); \
    __attribute__((constructor)) static void name##_is_registered(void) \
    { \
        tests_add((struct CMUnitTest){#name, name, setup, teardown, (void *)(uintptr_t)(limit)}); \
    } \
    static void name(void **state)

static void pause_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static bool has_error(int rank, ceclResult_t wanted, const char *words)
{
    const int64_t start = cecl_now_ms();
    ceclResult_t async = ceclSuccess;
    while (async == ceclSuccess && cecl_now_ms() - start < SLACK_MS) {
        OK(ceclCommGetAsyncError(comms[rank], &async));
        pause_ms(5);
    }
    if (async == wanted && strstr(ceclGetLastError(comms[rank]), words))
        return true;
    print_error("rank %d: %s: %s\n", rank, ceclGetErrorString(async),
                ceclGetLastError(comms[rank]));
    return false;
}

static void expect_error(int rank, ceclResult_t wanted, const char *words)
{
    assert_true(has_error(rank, wanted, words));
}

static void holds_within_a_limit(bool (*holds)(int limit_ms))
{
    bool held = false;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]) && !held; i++) {
        void *limit = (void *)(uintptr_t)limits[i];
        assert_int_equal(setup(&limit), 0);
        held = holds(atoi(limits[i]));
        assert_int_equal(teardown(&limit), 0);
    }
    assert_true(held);
}

/* Defines a test that passes if its body returns true under one of `limits`. */
#define TEST_OF_A_LIMIT(name) \
    static bool name##_holds(int limit_ms); \
    TEST(name) \
    { \
        holds_within_a_limit(name##_holds); \
    } \
    static bool name##_holds(int limit_ms)

static void leave(int rank)
{
    OK(ceclCommDestroy(comms[rank]));
    comms[rank] = NULL;
}

#endif
