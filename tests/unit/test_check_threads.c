/* CECL_CHECK=1 with ranks as threads of one process, on the host device: the error that each rank gets. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/exchange.h"
#include "launch/launcher.h"
#include "util/clock.h"

#define RANKS 2

static ceclComm_t comms[RANKS];

#define OK(expr) assert_int_equal((expr), ceclSuccess)

static int open_all(void **state)
{
    setenv("CECL_CHECK", "1", 1);
    OK(ceclCommInitAll(comms, RANKS, NULL));
    unsetenv("CECL_CHECK");
    return 0;
}

static int close_all(void **state)
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommAbort(comms[r]));
    return 0;
}

/* ---- messages longer than what ranks send each other */

#define LONG 400

static char long_words[LONG + 1];

struct refusal {
    pthread_t thread;
    int rank;
    enum cecl_op_index op;
    bool fails; /* the communicator fails on rank 0 while the call is checked */
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

/* Makes the call; rank 0's call has invalid arguments. */
static void *call(void *argument)
{
    struct refusal *me = argument;
    ceclComm_t comm = comms[me->rank];
    const struct cecl_call call = {.op = &cecl_ops[me->op], .view.layout = comm->launcher->layout};
    ceclResult_t local = ceclSuccess;
    if (me->rank == 0 && me->fails)
        local = cecl_comm_break(comm, cecl_fail(ceclRemoteError, "rank 9 ended"));
    else if (me->rank == 0)
        local = cecl_fail(ceclInvalidArgument, "%s", long_words);
    me->result = me->op == CECL_OP_ALL_TO_ALLV
                     ? cecl_exchange_places(comm, &call, comm->launcher->layout, local)
                     : cecl_check_call(comm, &call, local);
    cecl_keep_message(me->words);
    return NULL;
}

static void refuse_at_length(enum cecl_op_index op)
{
    struct refusal refusals[RANKS];
    memset(long_words, 'x', LONG);
    memcpy(long_words + LONG - 6, "advice", 6);
    for (int r = 0; r < RANKS; r++) {
        refusals[r] = (struct refusal){.rank = r, .op = op};
        assert_int_equal(pthread_create(&refusals[r].thread, NULL, call, &refusals[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(refusals[r].thread, NULL);
    assert_int_equal(refusals[0].result, ceclInvalidArgument);
    assert_string_equal(refusals[0].words, long_words);
    assert_int_equal(refusals[1].result, ceclInvalidUsage);
    static const char start[] = "rank 0 refused its call: xxx";
    const size_t length = strlen(refusals[1].words);
    assert_memory_equal(refusals[1].words, start, sizeof(start) - 1);
    assert_true(length > 180 && length < LONG);
    assert_string_equal(refusals[1].words + length - 4, "x...");
}

TEST_BETWEEN(a_refused_call_has_its_whole_message_here_and_a_short_one_at_peers, open_all,
             close_all)
{
    refuse_at_length(CECL_OP_ALL_GATHER);
}

TEST_BETWEEN(so_has_one_that_asks_for_places, open_all, close_all)
{
    refuse_at_length(CECL_OP_ALL_TO_ALLV);
}

/* ---- failures */

/* Without this, rank 1 would have an error on a communicator that works, until its watchdog notices the
 * failure. */
TEST_BETWEEN(a_refusal_for_a_failed_communicator_fails_it_on_the_peers, open_all, close_all)
{
    struct refusal refusals[RANKS];
    for (int r = 0; r < RANKS; r++) {
        refusals[r] = (struct refusal){.rank = r, .op = CECL_OP_ALL_GATHER, .fails = true};
        assert_int_equal(pthread_create(&refusals[r].thread, NULL, call, &refusals[r]), 0);
    }
    pthread_join(refusals[1].thread, NULL);
    assert_int_equal(refusals[1].result, ceclRemoteError);
    assert_string_equal(refusals[1].words, "rank 0 gave up: rank 9 ended");
    assert_int_equal(cecl_comm_async(comms[1]), ceclRemoteError);
    pthread_join(refusals[0].thread, NULL);
}

/* ---- advice */

static void make_different_calls(void)
{
    cecl_history_note(&comms[0]->history, 1, "one");
    cecl_history_note(&comms[1]->history, 2, "another");
    cecl_comm_compare_calls(comms[0]);
    assert_int_equal(cecl_comm_async(comms[0]), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "rank 1 made a different call"));
}

TEST_BETWEEN(a_check_is_advised_where_there_is_none, open_all, close_all)
{
    for (int r = 0; r < RANKS; r++)
        comms[r]->config.check = 0;
    make_different_calls();
    assert_non_null(strstr(ceclGetLastError(comms[0]), "CECL_CHECK=1 names the difference"));
}

TEST_BETWEEN(no_check_is_advised_where_there_is_one, open_all, close_all)
{
    make_different_calls();
    assert_null(strstr(ceclGetLastError(comms[0]), "CECL_CHECK"));
}

/* ---- one thread with several ranks */

#define TIMEOUT_MS 3000 /* ms, in the test that waits for it */
#define CURE "CECL_CHECK=1 needs a thread for each rank, or the calls of all ranks in one group"
#define TIMEOUT "60000"
#define SOON_MS 45000 /* enough if busy; below TIMEOUT, which must not pass */

static void must_be_refused(ceclResult_t got, ceclResult_t expected)
{
    assert_int_equal(got, expected);
    if (!strstr(ceclGetLastError(NULL), CURE))
        fail_msg("said: %s", ceclGetLastError(NULL));
}

static void *linger(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

static int open_all_for_a_while(void **state)
{
    setenv("CECL_TIMEOUT_MS", "3000", 1); /* TIMEOUT_MS */
    const int result = open_all(state);
    setenv("CECL_TIMEOUT_MS", TIMEOUT, 1);
    return result;
}

/* The other thread may still make the other rank's calls. */
TEST_BETWEEN(another_thread_is_waited_for, open_all_for_a_while, close_all)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t other;
    pthread_mutex_lock(&lock);
    assert_int_equal(pthread_create(&other, NULL, linger, &lock), 0);
    const int64_t start = cecl_now_ms();
    must_be_refused(ceclBarrier(comms[0], NULL), ceclTimeout);
    assert_true(cecl_now_ms() - start >= TIMEOUT_MS);
    pthread_mutex_unlock(&lock);
    pthread_join(other, NULL);
}

#ifndef __SANITIZE_THREAD__ /* its own thread looks like one of the program's */
TEST_BETWEEN(one_thread_is_refused_at_once, open_all, close_all)
{
    void *ptr = NULL;
    const int64_t start = cecl_now_ms();
    must_be_refused(ceclBarrier(comms[0], NULL), ceclInvalidUsage);
    must_be_refused(ceclBarrier(comms[1], NULL), ceclInvalidUsage);
    must_be_refused(ceclMemAlloc(comms[1], &ptr, 64), ceclInvalidUsage);
    assert_true(cecl_now_ms() - start < SOON_MS);
    assert_int_equal(ceclMemFree(comms[0], &ptr),
                     ceclInvalidArgument); /* the error of ceclMemFree itself */
    assert_non_null(strstr(ceclGetLastError(NULL), "not memory of ceclMemAlloc"));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclBarrier(comms[r], NULL));
    OK(ceclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], NULL));
}

/* Rank 2 is the child. It reads the id from one pipe, and tells by another that it has joined. */
static int barrier_in_child(int from, int to)
{
    ceclComm_t comm = NULL;
    ceclUniqueId id;
    if (read(from, &id, sizeof(id)) != sizeof(id) ||
        ceclCommInitRank(&comm, RANKS + 1, id, RANKS) != ceclSuccess || write(to, &id, 1) != 1)
        return 1;
    const int64_t start = cecl_now_ms();
    const ceclResult_t result = ceclBarrier(comm, NULL);
    if (result == ceclSuccess || !strstr(ceclGetLastError(comm), "CECL_CHECK=1 needs a thread"))
        return 2;
    return cecl_now_ms() - start < SOON_MS ? 0 : 3;
}

TEST(another_process_hears_of_it_at_once)
{
    ceclUniqueId id;
    ceclComm_t mine[RANKS];
    int status = -1;
    int ends[2], back[2];
    char joined;
    setenv("CECL_CHECK", "1", 1);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(pipe(back), 0);
    const pid_t child = fork();
    if (child == 0)
        _exit(barrier_in_child(ends[0], back[1]));
    close(back[1]); /* the child's end ends the read below */
    OK(ceclGetUniqueId(&id));
    assert_int_equal(write(ends[1], &id, sizeof(id)), sizeof(id));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommInitRank(&mine[r], RANKS + 1, id, r));
    OK(ceclGroupEnd());
    unsetenv("CECL_CHECK");
    assert_int_equal(read(back[0], &joined, 1), 1);
    const int64_t start = cecl_now_ms();
    must_be_refused(ceclBarrier(mine[0], NULL), ceclInvalidUsage);
    assert_true(cecl_now_ms() - start < SOON_MS);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
    close(back[0]);
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommAbort(mine[r]));
}
#endif

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_TIMEOUT_MS", TIMEOUT, 1);
    return tests_run_apart();
}
