/* One thread that is all ranks of a communicator, on the host device: allocations stand in a group, as
 * NCCL programs make them, and a group that was never ended is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cecl/cecl.h>

#define RANKS 3
#define COUNT 1000

static ceclComm_t comms[RANKS];

static int set_up(void **state)
{
    (void)state;
    setenv("CECL_DEVICE", "host", 1);
    return ceclCommInitAll(comms, RANKS, NULL) != ceclSuccess;
}

static int tear_down(void **state)
{
    (void)state;
    int failed = 0;
    for (int r = 0; r < RANKS; r++)
        failed += ceclCommDestroy(comms[r]) != ceclSuccess;
    return failed;
}

static void must_say(ceclResult_t result, ceclResult_t expected, const char *words)
{
    if (result != expected || !strstr(ceclGetLastError(NULL), words))
        fail_msg("%d, said: %s", (int)result, ceclGetLastError(NULL));
}

/* Allocates on all ranks, in one group. */
static void allocate(int *buffers[RANKS], size_t bytes)
{
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < RANKS; r++) {
        buffers[r] = NULL;
        assert_int_equal(ceclMemAlloc(comms[r], (void **)&buffers[r], bytes), ceclSuccess);
        assert_null(buffers[r]); /* until the end */
    }
    assert_int_equal(ceclGroupEnd(), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        assert_non_null(buffers[r]);
}

static void one_thread_allocates_for_all_ranks_in_a_group_and_gathers(void **state)
{
    (void)state;
    int *buffers[RANKS], *more[RANKS];
    allocate(buffers, RANKS * COUNT * sizeof(int));
    allocate(more, 8 << 20); /* larger than the first segment: the pool grows */
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            buffers[r][r * COUNT + i] = 10000 * r + i;
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(
            ceclAllGather(buffers[r] + r * COUNT, buffers[r], COUNT, ceclInt, comms[r], NULL),
            ceclSuccess);
    assert_int_equal(ceclGroupEnd(), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ceclStreamSynchronize(comms[r], NULL), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < RANKS * COUNT; i++)
            assert_int_equal(buffers[r][i], 10000 * (i / COUNT) + i % COUNT);
}

static void an_allocation_that_is_too_large_leaves_nothing_of_its_group(void **state)
{
    (void)state;
    ceclPoolStats_t before, after;
    void *small[RANKS] = {NULL}, *large[RANKS] = {NULL};
    assert_int_equal(ceclPoolStats(comms[0], &before), ceclSuccess);
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ceclMemAlloc(comms[r], &small[r], 4096), ceclSuccess);
        assert_int_equal(ceclMemAlloc(comms[r], &large[r], SIZE_MAX / 4), ceclSuccess);
    }
    assert_int_equal(ceclGroupEnd(), ceclOutOfMemory);
    for (int r = 0; r < RANKS; r++)
        assert_true(!small[r] && !large[r]);
    assert_int_equal(ceclPoolStats(comms[0], &after), ceclSuccess);
    assert_int_equal(after.allocations, before.allocations);
}

static void another_communicators_allocations_stay_where_one_fails(void **state)
{
    (void)state;
    ceclComm_t one;
    void *good = NULL, *bad = NULL;
    assert_int_equal(ceclCommInitAll(&one, 1, NULL), ceclSuccess);
    void *others[RANKS] = {NULL};
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ceclMemAlloc(comms[r], &others[r], 4096), ceclSuccess);
    assert_int_equal(ceclMemAlloc(one, &good, 4096), ceclSuccess);
    assert_int_equal(ceclMemAlloc(one, &bad, SIZE_MAX / 4), ceclSuccess);
    assert_int_equal(ceclGroupEnd(), ceclOutOfMemory);
    assert_true(!good && !bad);
    for (int r = 0; r < RANKS; r++) {
        assert_non_null(others[r]);
        assert_int_equal(ceclMemFree(comms[r], others[r]), ceclSuccess);
    }
    assert_int_equal(ceclCommDestroy(one), ceclSuccess);
}

static void without_a_group_the_message_names_the_cure(void **state)
{
    (void)state;
    ceclComm_t two[2];
    void *ptr = NULL;
    setenv("CECL_TIMEOUT_MS", "300", 1);
    assert_int_equal(ceclCommInitAll(two, 2, NULL), ceclSuccess);
    unsetenv("CECL_TIMEOUT_MS");
    must_say(ceclMemAlloc(two[0], &ptr, 64 << 20), ceclTimeout,
             "between ceclGroupStart and ceclGroupEnd");
    for (int r = 0; r < 2; r++)
        (void)!ceclCommAbort(two[r]);
}

static void a_null_pointer_refuses_the_group(void **state)
{
    (void)state;
    void *ptr = NULL;
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    assert_int_equal(ceclMemAlloc(comms[0], &ptr, 4096), ceclSuccess);
    must_say(ceclMemAlloc(comms[1], NULL, 4096), ceclInvalidArgument, "ptr: NULL");
    must_say(ceclGroupEnd(), ceclInvalidArgument, "ptr: NULL");
    assert_null(ptr);
}

static void synchronize_tells_of_a_group_that_was_not_ended(void **state)
{
    (void)state;
    int *buffers[RANKS];
    allocate(buffers, RANKS * COUNT * sizeof(int));
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(
            ceclAllGather(buffers[r] + r * COUNT, buffers[r], COUNT, ceclInt, comms[r], NULL),
            ceclSuccess);
    must_say(ceclStreamSynchronize(comms[0], NULL), ceclInvalidUsage,
             "1 calls on this communicator wait for ceclGroupEnd");
    must_say(ceclCommFinalize(comms[0]), ceclInvalidUsage, "wait for ceclGroupEnd");
    assert_int_equal(ceclGroupEnd(), ceclSuccess); /* nothing was lost */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(ceclStreamSynchronize(comms[r], NULL), ceclSuccess);
}

static void destroy_tells_of_a_group_that_was_not_ended(void **state)
{
    (void)state;
    ceclComm_t one;
    void *ptr = NULL;
    assert_int_equal(ceclCommInitAll(&one, 1, NULL), ceclSuccess);
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    assert_int_equal(ceclMemAlloc(one, &ptr, 4096), ceclSuccess);
    must_say(ceclCommDestroy(one), ceclInvalidUsage, "wait for ceclGroupEnd");
    must_say(ceclGroupEnd(), ceclInvalidUsage, "a communicator ended while calls of the group");
    assert_null(ptr);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_thread_allocates_for_all_ranks_in_a_group_and_gathers),
        TEST(an_allocation_that_is_too_large_leaves_nothing_of_its_group),
        TEST(another_communicators_allocations_stay_where_one_fails),
        TEST(without_a_group_the_message_names_the_cure),
        TEST(a_null_pointer_refuses_the_group),
        TEST(synchronize_tells_of_a_group_that_was_not_ended),
        TEST(destroy_tells_of_a_group_that_was_not_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
