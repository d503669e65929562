/* CECL_CHECK=1 where ranks are threads of one process, on the host device: what each rank is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "comm/check.h"
#include "comm/collective.h"

#define RANKS 2

static ceclComm_t comms[RANKS];

#define OK(expr) assert_int_equal((expr), ceclSuccess)

static int open_all(void **state)
{
    (void)state;
    setenv("CECL_CHECK", "1", 1);
    OK(ceclCommInitAll(comms, RANKS, NULL));
    unsetenv("CECL_CHECK");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommAbort(comms[r]));
    return 0;
}

/* ---- messages that are longer than what ranks send each other */

#define LONG 400

static char long_words[LONG + 1];

struct refusal {
    pthread_t thread;
    int rank;
    enum cecl_op_index op;
    ceclResult_t result;
    char words[CECL_MESSAGE_BYTES];
};

/* Rank 0 has refused its arguments. */
static void *call(void *argument)
{
    struct refusal *me = argument;
    ceclComm_t comm = comms[me->rank];
    const struct cecl_call call = {.op = &cecl_ops[me->op]};
    ceclResult_t local = ceclSuccess;
    if (me->rank == 0)
        local = cecl_fail(ceclInvalidArgument, "%s", long_words);
    me->result = me->op == CECL_OP_ALL_TO_ALLV
                     ? cecl_places_exchange(comm, &call, comm->layout, local)
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

static void a_refused_call_has_its_whole_message_here_and_a_short_one_at_peers(void **state)
{
    (void)state;
    refuse_at_length(CECL_OP_ALL_GATHER);
}

static void so_has_one_that_asks_for_places(void **state)
{
    (void)state;
    refuse_at_length(CECL_OP_ALL_TO_ALLV);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_refused_call_has_its_whole_message_here_and_a_short_one_at_peers),
        TEST(so_has_one_that_asks_for_places),
    };
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_DEBUG", "none", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
