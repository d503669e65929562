/* The error that each rank gets under CECL_CHECK=1. Ranks are threads of one process, on the host device. */
#include "../with_cmocka.h"

#include <pthread.h>

#include "launch/exchange.h"
#include "launch/launcher.h"
#include "util/clock.h"

#define RANKS 2

#include "comms.h"

static int open_within(const char *timeout_ms)
{
    setenv("CECL_DEBUG", "none", 1);
    setenv("CECL_TIMEOUT_MS", timeout_ms, 1);
    setenv("CECL_CHECK", "1", 1);
    return open_all(NULL);
}

static int open_checked(void **state)
{
    return open_within("60000");
}

/* ---- error messages that are longer than what ranks exchange of them */

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
    me->result = me->op == CECL_OP_ALL_TO_ALLV ? cecl_exchange_call(comm, &call, local)
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

TEST_BETWEEN(a_refused_call_has_its_whole_message_here_and_a_short_one_at_peers, open_checked,
             abort_all)
{
    refuse_at_length(CECL_OP_ALL_GATHER);
    refuse_at_length(CECL_OP_ALL_TO_ALLV); /* ranks also exchange layouts */
}

/* If rank 1 heard only of the refusal, its communicator would work on until its watchdog noticed rank 0's failure. */
TEST_BETWEEN(a_refusal_for_a_failed_communicator_fails_it_on_the_peers, open_checked, abort_all)
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

static void make_different_calls(void)
{
    cecl_history_note(&comms[0]->history, 1);
    cecl_history_note(&comms[1]->history, 2);
    cecl_comm_compare_calls(comms[0]);
    assert_int_equal(cecl_comm_async(comms[0]), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "rank 1 made a different call"));
}

TEST_BETWEEN(a_check_is_advised_where_there_is_none, open_checked, abort_all)
{
    for (int r = 0; r < RANKS; r++)
        comms[r]->config.check = 0;
    make_different_calls();
    assert_non_null(strstr(ceclGetLastError(comms[0]), "CECL_CHECK=1 names the difference"));
}

TEST_BETWEEN(no_check_is_advised_where_there_is_one, open_checked, abort_all)
{
    make_different_calls();
    assert_null(strstr(ceclGetLastError(comms[0]), "CECL_CHECK"));
}

#define TIMEOUT_MS 3000 /* ms; one test waits until it has passed */

static int open_for_a_while(void **state)
{
    return open_within("3000"); /* TIMEOUT_MS */
}

TEST_BETWEEN(a_call_outside_a_group_ends_with_the_cure, open_for_a_while, abort_all)
{
    const int64_t start = cecl_now_ms();
    must_say(ceclBarrier(comms[0], NULL), ceclTimeout,
             "CECL_CHECK=1 needs a thread for each rank, or the calls "
             "of all ranks in one group");
    assert_true(cecl_now_ms() - start >= TIMEOUT_MS);
}

TEST_BETWEEN(a_group_of_all_ranks_is_compared, open_checked, abort_all)
{
    OK(ceclGroupStart());
    OK_EACH(ceclBarrier(comms[r], NULL));
    OK(ceclGroupEnd());
    finish_all(NULL);
}
