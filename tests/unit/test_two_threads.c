/* Two threads call on one communicator at once, which cecl.h forbids. The second call is refused with a message that
 * names the problem, and nothing else is disturbed. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define RANKS 2
#define COUNT 100 /* ints in each block */
#include "comms.h"

static int in[RANKS][RANKS * COUNT], out[RANKS][RANKS * COUNT];

static int open_quietly(void **state)
{
    setenv("CECL_DEBUG", "none", 1);
    return open_all(state);
}

/* ---- a thread that stays inside rank 0's call until rank 1 makes the call, too */

static ceclResult_t exchange(int rank)
{
    static const size_t counts[RANKS] = {COUNT, COUNT}, places[RANKS] = {0, COUNT};
    for (int i = 0; i < RANKS * COUNT; i++)
        in[rank][i] = 10000 * rank + i;
    return ceclAlltoAllv(in[rank], counts, places, out[rank], counts, places, ceclInt32,
                         comms[rank], NULL);
}

/* Tries again if await_thread_inside's own call was first. */
static void *exchange_as_rank_0(void *result)
{
    ceclResult_t *mine = result;
    do
        *mine = exchange(0);
    while (*mine == ceclInvalidUsage);
    return NULL;
}

static ceclResult_t explain(ceclComm_t comm)
{
    ceclExplanation_t explanation;
    return ceclExplain(ceclOpAllGather, in[0], out[0], COUNT, ceclInt32, comm, &explanation);
}

/* Runs in its own thread: the test's thread may have begun a group, in which ceclExplain is refused. */
static void *await_thread_inside(void *unused)
{
    for (int tries = 0; explain(comms[0]) == ceclSuccess && tries < 10000; tries++)
        usleep(1000);
    return unused;
}

static pthread_t begin_exchange(ceclResult_t *result)
{
    pthread_t thread, waiter;
    assert_int_equal(pthread_create(&thread, NULL, exchange_as_rank_0, result), 0);
    assert_int_equal(pthread_create(&waiter, NULL, await_thread_inside, NULL), 0);
    pthread_join(waiter, NULL);
    return thread;
}

static void end_exchange(pthread_t thread, const ceclResult_t *result)
{
    OK(exchange(1));
    pthread_join(thread, NULL);
    OK(*result);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamSynchronize(comms[r], NULL));
        for (int i = 0; i < RANKS * COUNT; i++)
            assert_int_equal(out[r][i], 10000 * (i / COUNT) + r * COUNT + i % COUNT);
    }
}

/* The call is refused because another thread is inside a call. name: what the message calls the refused call. */
static void expect_refused(ceclResult_t result, const char *name)
{
    char whole[256];
    snprintf(whole, sizeof(whole),
             "two threads are inside communicator %p (rank 0) at once: %s, while another thread is "
             "inside ceclAlltoAllv",
             (void *)comms[0], name);
    assert_int_equal(result, ceclInvalidUsage);
    if (!strstr(ceclGetLastError(NULL), whole))
        fail_msg("said: %s\nexpected: %s", ceclGetLastError(NULL), whole);
}
#define REFUSED(name, ...) expect_refused(name(__VA_ARGS__), #name)

TEST_BETWEEN(lone_calls_of_a_second_thread_are_refused, open_quietly, close_all)
{
    int mine[COUNT] = {0}, all[RANKS * COUNT];
    void *place;
    ceclLimits_t limits;
    ceclPoolStats_t pool;
    ceclCallStats_t calls;
    ceclComm_t made;
    ceclResult_t result;
    const pthread_t thread = begin_exchange(&result);
    REFUSED(ceclAllGather, mine, all, COUNT, ceclInt32, comms[0], NULL);
    REFUSED(ceclAllReduce, mine, mine, COUNT, ceclInt32, ceclSum, comms[0], NULL);
    REFUSED(ceclBarrier, comms[0], NULL);
    REFUSED(ceclSend, mine, COUNT, ceclInt32, 1, comms[0], NULL);
    REFUSED(ceclRecv, mine, COUNT, ceclInt32, 1, comms[0], NULL);
    expect_refused(explain(comms[0]), "ceclExplain");
    REFUSED(ceclShard, comms[0], all, COUNT, ceclInt32, &place);
    REFUSED(ceclGetPeerPointer, comms[0], all, 1, &place);
    REFUSED(ceclSetOptions, comms[0], NULL);
    REFUSED(ceclCommLimits, comms[0], &limits);
    REFUSED(ceclPoolStats, comms[0], &pool);
    REFUSED(ceclCallStats, comms[0], &calls);
    REFUSED(ceclCommShrink, comms[0], NULL, 0, &made, NULL);
    REFUSED(ceclCommFinalize, comms[0]);
    end_exchange(thread, &result);
}

TEST_BETWEEN(a_group_with_such_a_call_is_refused, open_quietly, close_all)
{
    int mine[COUNT] = {0}, all[RANKS * COUNT];
    void *place;
    ceclResult_t result;
    const pthread_t thread = begin_exchange(&result);
    OK(ceclGroupStart());
    REFUSED(ceclMemAlloc, comms[0], &place, 64);
    expect_refused(ceclGroupEnd(), "ceclMemAlloc");
    OK(ceclGroupStart());
    REFUSED(ceclSend, mine, COUNT, ceclInt32, 1, comms[0], NULL);
    OK(ceclAllGather(mine, all, COUNT, ceclInt32, comms[1], NULL));
    expect_refused(ceclGroupEnd(), "ceclSend");
    end_exchange(thread, &result);
}

/* The group's calls were made before the other thread's call. */
TEST_BETWEEN(the_end_of_a_group_beside_another_call_is_refused, open_quietly, close_all)
{
    int mine[COUNT] = {0}, all[RANKS][RANKS * COUNT];
    ceclExplanation_t explanation;
    ceclResult_t result;
    for (int explains = 0; explains < 2; explains++) {
        OK(ceclGroupStart());
        for (int r = explains ? RANKS - 1 : 0; r < RANKS; r++) /* explains: on one communicator */
            OK(ceclAllGather(mine, all[r], COUNT, ceclInt32, comms[explains ? 0 : r], NULL));
        OK(ceclSend(mine, COUNT, ceclInt32, 1, comms[0], NULL));
        const pthread_t thread = begin_exchange(&result);
        if (explains)
            REFUSED(ceclGroupExplain, comms[0], &explanation);
        else
            expect_refused(ceclGroupEnd(), "ceclGroupEnd");
        end_exchange(thread, &result);
    }
}

TEST_BETWEEN(questions_and_a_revocation_are_answered_beside_a_call, open_quietly, abort_all)
{
    ceclResult_t result, async = ceclInternalError;
    int count = 0;
    const pthread_t thread = begin_exchange(&result);
    OK(ceclCommGetAsyncError(comms[0], &async));
    OK(async);
    OK(ceclCommCount(comms[0], &count));
    OK(ceclStreamSynchronize(comms[0], NULL));
    OK(ceclCommRevoke(comms[0]));
    pthread_join(thread, NULL);
    assert_int_equal(result, ceclRemoteError);
}

static void *gather_for_all_ranks(void *unused)
{
    ceclResult_t result = ceclGroupStart();
    for (int r = 0; r < RANKS && result == ceclSuccess; r++)
        result = ceclAllGather(in[r], out[r], COUNT, ceclInt32, comms[r], NULL);
    const ceclResult_t ended = ceclGroupEnd();
    return (void *)(intptr_t)(result == ceclSuccess ? ended : result);
}

TEST_BETWEEN(threads_may_make_calls_one_after_the_other, open_quietly, close_all)
{
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *result;
        assert_int_equal(pthread_create(&thread, NULL, gather_for_all_ranks, NULL), 0);
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, ceclSuccess);
        assert_null(gather_for_all_ranks(NULL));
    }
}

TEST_BETWEEN(a_refused_call_does_not_stay_inside, open_quietly, close_all)
{
    int mine[COUNT] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ceclAllGather(NULL, mine, COUNT, ceclInt32, comms[0], NULL),
                         ceclInvalidArgument);
        assert_int_equal(ceclSend(mine, COUNT, ceclInt32, RANKS, comms[0], NULL),
                         ceclInvalidArgument);
        OK(ceclGroupStart());
        assert_int_equal(ceclSend(NULL, COUNT, ceclInt32, 1, comms[0], NULL), ceclInvalidArgument);
        assert_int_equal(ceclGroupEnd(), ceclInvalidArgument);
    }
    assert_null(gather_for_all_ranks(NULL));
}

#define ROUNDS 2000
#define MESSAGES 5 /* in each group */

static ceclComm_t alone;
static _Atomic int refused, wrong;

static ceclResult_t exchange_alone(const int *from, int *to)
{
    ceclResult_t result = ceclGroupStart();
    for (int i = 0; i < MESSAGES && result == ceclSuccess; i++) {
        result = ceclSend(from + i * COUNT, COUNT, ceclInt32, 0, alone, NULL);
        if (result == ceclSuccess)
            result = ceclRecv(to + i * COUNT, COUNT, ceclInt32, 0, alone, NULL);
    }
    const ceclResult_t ended = ceclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

/* Repeats each round until its group succeeds. */
static void *exchange_often(void *unused)
{
    static _Thread_local int from[MESSAGES * COUNT], to[MESSAGES * COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        ceclResult_t result;
        for (int i = 0; i < MESSAGES * COUNT; i++)
            from[i] = round + i;
        while ((result = exchange_alone(from, to)) == ceclInvalidUsage) {
            wrong += !strstr(ceclGetLastError(NULL), "two threads are");
            refused++;
            sched_yield();
        }
        wrong += result != ceclSuccess || ceclStreamSynchronize(alone, NULL) != ceclSuccess ||
                 memcmp(from, to, sizeof(from)) != 0;
    }
    return unused;
}

TEST(messages_of_two_threads_at_once_are_made_or_refused)
{
    pthread_t threads[2];
    OK(ceclCommInitAll(&alone, 1, NULL));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange_often, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    print_message("%d groups were made, and %d were refused\n", 2 * ROUNDS, refused);
    assert_int_equal(wrong, 0);
    OK(ceclCommDestroy(alone));
}
