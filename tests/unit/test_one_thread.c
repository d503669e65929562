/* One thread with all ranks of a communicator, on the host device. It joins and allocates in a group, as NCCL programs
 * do, and gets told of a group that was never ended. (tests/multi/test_many_ranks.c compares what arrives.) */
#include <pthread.h>

#include "../with_cmocka.h"

#include "../open_descriptors.h"
#include "../threads_alive.h"

#define RANKS 3
#define COUNT 1000

#include "comms.h"

TEST_BETWEEN(an_allocation_that_is_too_large_leaves_nothing_of_its_group, open_all, close_all)
{
    ceclPoolStats_t before, after;
    void *small[RANKS] = {NULL}, *large[RANKS] = {NULL};
    OK(ceclPoolStats(comms[0], &before));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        OK(ceclMemAlloc(comms[r], &small[r], 4096));
        OK(ceclMemAlloc(comms[r], &large[r], SIZE_MAX / 4));
    }
    assert_int_equal(ceclGroupEnd(), ceclOutOfMemory);
    for (int r = 0; r < RANKS; r++)
        assert_true(!small[r] && !large[r]);
    OK(ceclPoolStats(comms[0], &after));
    assert_int_equal(after.allocations, before.allocations);
}

TEST_BETWEEN(another_communicators_allocations_stay_where_one_fails, open_all, close_all)
{
    ceclComm_t one;
    void *good = NULL, *bad = NULL;
    OK(ceclCommInitAll(&one, 1, NULL));
    void *others[RANKS] = {NULL};
    OK(ceclGroupStart());
    OK_EACH(ceclMemAlloc(comms[r], &others[r], 4096));
    OK(ceclMemAlloc(one, &good, 4096));
    OK(ceclMemAlloc(one, &bad, SIZE_MAX / 4));
    assert_int_equal(ceclGroupEnd(), ceclOutOfMemory);
    assert_true(!good && !bad);
    for (int r = 0; r < RANKS; r++) {
        assert_non_null(others[r]);
        OK(ceclMemFree(comms[r], others[r]));
    }
    OK(ceclCommDestroy(one));
}

TEST(ended_communicators_leave_no_descriptor)
{
    open_all(state);
    close_all(state); /* one-time setup is complete */
    const int before = open_descriptors();
    open_all(state);
    close_all(state);
    assert_int_equal(open_descriptors(), before);
}

TEST_BETWEEN(without_a_group_the_message_names_the_cure, open_all, close_all)
{
    ceclComm_t two[2];
    void *ptr = NULL;
    setenv("CECL_TIMEOUT_MS", "300", 1);
    OK(ceclCommInitAll(two, 2, NULL));
    unsetenv("CECL_TIMEOUT_MS");
    must_say(ceclMemAlloc(two[0], &ptr, 64 << 20), ceclTimeout, "ceclMemAlloc: rank 1 did not");
    assert_non_null(strstr(ceclGetLastError(NULL), "between ceclGroupStart and ceclGroupEnd"));
    for (int r = 0; r < 2; r++)
        (void)!ceclCommAbort(two[r]);
}

TEST_BETWEEN(a_null_pointer_refuses_the_group, open_all, close_all)
{
    void *ptr = NULL;
    OK(ceclGroupStart());
    OK(ceclMemAlloc(comms[0], &ptr, 4096));
    bad_argument(ceclMemAlloc(comms[1], NULL, 4096), "ptr: NULL");
    bad_argument(ceclGroupEnd(), "ptr: NULL");
    assert_null(ptr);
}

TEST_BETWEEN(synchronize_tells_of_a_group_that_was_not_ended, open_all, close_all)
{
    int *buffers[RANKS];
    allocate_all(buffers, RANKS * COUNT * sizeof(int));
    OK(ceclGroupStart());
    OK_EACH(ceclAllGather(buffers[r] + r * COUNT, buffers[r], COUNT, ceclInt, comms[r], NULL));
    bad_usage(ceclStreamSynchronize(comms[0], NULL),
              "1 calls on this communicator wait for ceclGroupEnd");
    bad_usage(ceclCommFinalize(comms[0]),
              "wait for ceclGroupEnd, which this thread has not called: finalize after it");
    OK(ceclGroupEnd()); /* no call was lost */
    finish_all(NULL);
}

TEST_BETWEEN(destroy_tells_of_a_group_that_was_not_ended, open_all, close_all)
{
    ceclComm_t one;
    void *ptr = NULL;
    OK(ceclCommInitAll(&one, 1, NULL));
    OK(ceclGroupStart());
    OK(ceclMemAlloc(one, &ptr, 4096));
    bad_usage(ceclCommDestroy(one), "has not called: they are not carried out");
    bad_usage(ceclGroupEnd(), "a communicator ended while calls of the group");
    assert_null(ptr);
}

static ceclUniqueId new_id(void)
{
    ceclUniqueId id;
    OK(ceclGetUniqueId(&id));
    return id;
}

static void join_in_group(ceclComm_t *joined, int nranks)
{
    const ceclUniqueId id = new_id();
    for (int r = 0; r < nranks; r++) {
        joined[r] = NULL;
        OK(ceclCommInitRank(&joined[r], nranks, id, r));
        assert_null(joined[r]); /* not set before the group ends */
    }
}

static void destroy_all(ceclComm_t *joined, int nranks)
{
    for (int r = 0; r < nranks; r++)
        OK(ceclCommDestroy(joined[r]));
}

static void must_be_rank(ceclComm_t comm, int rank, int nranks)
{
    int count = 0, mine = -1;
    OK(ceclCommCount(comm, &count));
    OK(ceclCommUserRank(comm, &mine));
    assert_true(count == nranks && mine == rank);
}

/* Waits for this number of threads: the thread that listens for an id ends soon after the id's last rank has left. */
static void must_come_to(int threads)
{
    for (int ms = 0; ms < 5000 && threads_alive() != threads; ms += 5)
        usleep(5000);
    assert_int_equal(threads_alive(), threads);
}

TEST_BETWEEN(one_thread_joins_as_all_ranks_in_a_group, open_all, close_all)
{
    ceclComm_t joined[8];
    int *words[8];
    const int threads = threads_alive();
    OK(ceclGroupStart());
    OK(ceclGroupStart());
    join_in_group(joined, 8);
    OK(ceclGroupEnd());
    assert_null(joined[0]); /* only the outermost end joins */
    OK(ceclGroupEnd());
    OK(ceclGroupStart());
    for (int r = 0; r < 8; r++) {
        must_be_rank(joined[r], r, 8);
        OK(ceclMemAlloc(joined[r], (void **)&words[r], 8 * sizeof(int)));
    }
    OK(ceclGroupEnd());
    OK(ceclGroupStart());
    for (int r = 0; r < 8; r++) {
        words[r][r] = 100 + r;
        OK(ceclAllGather(words[r] + r, words[r], 1, ceclInt, joined[r], NULL));
    }
    OK(ceclGroupEnd());
    for (int r = 0; r < 8; r++) {
        OK(ceclStreamSynchronize(joined[r], NULL));
        for (int q = 0; q < 8; q++)
            assert_int_equal(words[r][q], 100 + q);
    }
    destroy_all(joined, 8);
    must_come_to(threads);
}

TEST_BETWEEN(a_group_joins_several_communicators_and_goes_on_with_an_older_one, open_all, close_all)
{
    ceclComm_t two[2], three[3];
    void *ptrs[RANKS] = {NULL};
    OK(ceclGroupStart());
    OK_EACH(ceclMemAlloc(comms[r], &ptrs[r], 4096));
    assert_null(ptrs[0]); /* not set before the group ends */
    join_in_group(two, 2);
    OK_EACH(ceclBarrier(comms[r], NULL));
    join_in_group(three, 3);
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        must_be_rank(three[r], r, 3);
        assert_non_null(ptrs[r]);
        OK(ceclStreamSynchronize(comms[r], NULL));
    }
    must_be_rank(two[1], 1, 2);
    destroy_all(two, 2);
    destroy_all(three, 3);
}

TEST_BETWEEN(a_config_is_copied, open_all, close_all)
{
    ceclComm_t joined[2];
    const ceclUniqueId id = new_id();
    OK(ceclGroupStart());
    for (int r = 0; r < 2; r++) {
        ceclConfig_t config = CECL_CONFIG_INITIALIZER;
        config.poolBytes = 64 << 20;
        OK(ceclCommInitRankConfig(&joined[r], 2, id, r, &config));
        memset(&config, 0x5a, sizeof(config));
    }
    OK(ceclGroupEnd());
    ceclPoolStats_t stats;
    OK(ceclPoolStats(joined[1], &stats));
    assert_int_equal(stats.reservedBytes, 64 << 20);
    destroy_all(joined, 2);
}

/* The group's other communicator is not made either, and no other call of the group is carried out. */
TEST_BETWEEN(a_refused_rank_refuses_the_group, open_all, close_all)
{
    ceclComm_t joined[2] = {NULL, NULL}, others[2];
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    void *ptr = NULL;
    const int threads = threads_alive();
    const ceclUniqueId id = new_id();
    config.smPolicy = 77;
    OK(ceclGroupStart());
    OK(ceclMemAlloc(comms[0], &ptr, 4096));
    join_in_group(others, 2);
    OK(ceclCommInitRank(&joined[0], 2, id, 0));
    bad_argument(ceclCommInitRankConfig(&joined[1], 2, id, 1, &config), "config.smPolicy = 77");
    bad_argument(ceclGroupEnd(), "config.smPolicy = 77");
    assert_true(!joined[0] && !joined[1] && !others[0] && !others[1] && !ptr);
    must_come_to(threads); /* no rank waits for one that will not come */
}

/* Two ranks with different time limits, so that the group fails. */
static void join_unequally(ceclComm_t joined[2])
{
    const ceclUniqueId id = new_id();
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    config.timeoutMs = 4321;
    OK(ceclCommInitRank(&joined[0], 2, id, 0));
    OK(ceclCommInitRankConfig(&joined[1], 2, id, 1, &config));
}

TEST_BETWEEN(ranks_that_differ_leave_no_communicator_of_the_group, open_all, close_all)
{
    ceclComm_t joined[2] = {NULL, NULL}, good[2];
    void *ptr = NULL;
    const int threads = threads_alive();
    OK(ceclGroupStart());
    join_in_group(good, 2);
    join_unequally(joined);
    OK(ceclMemAlloc(comms[0], &ptr, 4096));
    bad_argument(ceclGroupEnd(), "timeoutMs (CECL_TIMEOUT_MS): 30000 on rank 0");
    assert_true(!joined[0] && !joined[1] && !good[0] && !good[1] && !ptr);
    must_come_to(threads);
}

struct other {
    ceclUniqueId id;
    ceclComm_t comm;
};

static void *join_as_rank_1(void *context)
{
    struct other *other = context;
    return (void *)(intptr_t)ceclCommInitRank(&other->comm, 2, other->id, 1);
}

TEST_BETWEEN(a_peer_hears_why_its_communicator_was_taken_back, open_all, close_all)
{
    ceclComm_t mine = NULL, joined[2];
    struct other other = {new_id(), NULL};
    pthread_t thread;
    void *made;
    assert_int_equal(pthread_create(&thread, NULL, join_as_rank_1, &other), 0);
    OK(ceclGroupStart());
    OK(ceclCommInitRank(&mine, 2, other.id, 0));
    join_unequally(joined);
    bad_argument(ceclGroupEnd(), "timeoutMs");
    assert_int_equal(pthread_join(thread, &made), 0);
    assert_true(!mine && (intptr_t)made == ceclSuccess);
    /* waits for the rank that is gone, or is refused because this rank knows already */
    (void)!ceclBarrier(other.comm, NULL);
    must_say(ceclStreamSynchronize(other.comm, NULL), ceclRemoteError,
             "another communicator of the group was not made");
    OK(ceclCommAbort(other.comm));
}

TEST_BETWEEN(a_number_of_ranks_out_of_range_refuses_the_group_and_leaves_the_id_good, open_all,
             close_all)
{
    ceclComm_t joined = NULL;
    const ceclUniqueId id = new_id();
    OK(ceclGroupStart());
    bad_argument(ceclCommInitRank(&joined, 0, id, 0), "nranks 0");
    OK(ceclCommInitRank(&joined, 1, id, 0));
    bad_argument(ceclGroupEnd(), "nranks 0");
    assert_null(joined);
    OK(ceclCommInitRank(&joined, 1, id, 0));
    destroy_all(&joined, 1);
}

static int no_gather(void *context, const void *send, void *recv, size_t bytes)
{
    return bytes == 0;
}

TEST_BETWEEN(callbacks_are_refused_in_a_group, open_all, close_all)
{
    ceclComm_t joined = NULL;
    const ceclOob_t oob = {NULL, no_gather, NULL};
    OK(ceclGroupStart());
    bad_usage(ceclCommInitOob(&joined, 1, 0, &oob, NULL), "outside the group");
    bad_usage(ceclGroupEnd(), "outside the group");
    assert_null(joined);
}

TEST_BETWEEN(a_join_cannot_be_explained, open_all, close_all)
{
    ceclComm_t joined = NULL;
    ceclExplanation_t explanation;
    OK(ceclGroupStart());
    OK(ceclCommInitRank(&joined, 1, new_id(), 0));
    bad_usage(ceclGroupExplain(comms[0], &explanation), "a ceclCommInitRank is in");
    OK(ceclGroupStart());
    OK(ceclGroupEnd());
    assert_null(joined); /* the next group does not include the refused join */
}
