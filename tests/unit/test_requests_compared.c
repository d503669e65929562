/* Requests under CECL_CHECK=1, on the host device with a thread for each rank: if ranks differ, all ranks
 * are refused and can continue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"
#include <pthread.h>

#include <cecl/cecl.h>
#include <stdbool.h>

#define RANKS 3
#include "comms.h"

#define COUNT 1000

static int *recv[RANKS];
static ceclRequest_t requests[RANKS][2];

/* A rank's actions, and their result. */
struct task {
    pthread_t thread;
    int rank;
    ceclResult_t (*run)(int rank);
    ceclResult_t result;
    char words[600];
};

static void *run_task(void *argument)
{
    struct task *task = argument;
    task->result = task->run(task->rank);
    snprintf(task->words, sizeof(task->words), "%s", ceclGetLastError(NULL));
    return NULL;
}

/* Compares the results of all ranks. `words` NULL: all must succeed. */
static void all_do(ceclResult_t (*run)(int rank), ceclResult_t wanted, const char *words)
{
    struct task tasks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        tasks[r] = (struct task){.rank = r, .run = run};
        assert_int_equal(pthread_create(&tasks[r].thread, NULL, run_task, &tasks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(tasks[r].thread, NULL);
    for (int r = 0; r < RANKS; r++)
        if (tasks[r].result != wanted || (words && !strstr(tasks[r].words, words)))
            fail_msg("rank %d: %d: %s", r, (int)tasks[r].result, tasks[r].words);
}

static ceclResult_t init(int rank, int which, size_t count)
{
    return ceclAllGatherInit(recv[rank] + (size_t)rank * count, recv[rank], count, ceclInt32,
                             comms[rank], &requests[rank][which]);
}

static ceclResult_t allocate(int rank)
{
    return ceclMemAlloc(comms[rank], (void **)&recv[rank], RANKS * COUNT * sizeof(int));
}

static ceclResult_t make_first(int rank)
{
    return init(rank, 0, COUNT);
}

static ceclResult_t make_second(int rank)
{
    return init(rank, 1, COUNT);
}

static ceclResult_t start_and_look(int rank)
{
    for (int i = 0; i < COUNT; i++)
        recv[rank][rank * COUNT + i] = rank * 10000 + i;
    ceclResult_t result = ceclStart(requests[rank][0], NULL);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comms[rank], NULL);
    for (int i = 0; i < RANKS * COUNT && result == ceclSuccess; i++)
        if (recv[rank][i] != i / COUNT * 10000 + i % COUNT)
            return ceclInternalError;
    return result;
}

static ceclResult_t make_of_another_count(int rank)
{
    return init(rank, 1, rank == 1 ? COUNT - 1 : COUNT);
}

static ceclResult_t call_in_place_of_a_request(int rank)
{
    return rank == 2 ? ceclBarrier(comms[rank], NULL) : init(rank, 1, COUNT);
}

static ceclResult_t start_another(int rank)
{
    return ceclStart(requests[rank][rank == 0], NULL);
}

static ceclResult_t call_in_place_of_a_start(int rank)
{
    return rank == 0 ? ceclBarrier(comms[rank], NULL) : ceclStart(requests[rank][0], NULL);
}

static ceclResult_t make_another_ready(int rank)
{
    return ceclReady(requests[rank][rank == 0], NULL);
}

static ceclResult_t make_ready(int rank)
{
    return ceclReady(requests[rank][0], NULL);
}

static void what_differs_is_refused_on_all_ranks(void **state)
{
    all_do(allocate, ceclSuccess, NULL);
    all_do(call_in_place_of_a_request, ceclInvalidUsage, "making a request");
    all_do(make_of_another_count, ceclInvalidUsage, "count");
    all_do(make_first, ceclSuccess, NULL);
    all_do(make_second, ceclSuccess, NULL);
    all_do(start_another, ceclInvalidUsage, "the order in which requests were made");
    all_do(call_in_place_of_a_start, ceclInvalidUsage, "ceclStart");
    all_do(make_another_ready, ceclInvalidUsage, "ceclReady");
    all_do(start_and_look, ceclSuccess, NULL);
    all_do(make_ready, ceclSuccess, NULL);
    all_do(start_and_look, ceclSuccess, NULL);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclRequestFree(requests[r][0]));
        OK(ceclRequestFree(requests[r][1]));
    }
}

/* A refused group has a call on another communicator, too, whose later calls go on. */
static void a_refused_group_leaves_all_its_communicators(void **state)
{
    ceclComm_t one, other;
    ceclRequest_t request = NULL;
    int data[COUNT];
    OK(ceclCommInitAll(&one, 1, NULL));
    OK(ceclCommInitAll(&other, 1, NULL));
    OK(ceclGroupStart());
    OK(ceclAllGather(data, data, COUNT, ceclInt32, other, NULL));
    assert_int_equal(ceclAllGather(NULL, data, COUNT, ceclInt32, one, NULL), ceclInvalidArgument);
    assert_int_equal(ceclGroupInit(one, &request), ceclInvalidArgument);
    assert_null(request);
    OK(ceclBarrier(one, NULL));
    OK(ceclBarrier(other, NULL));
    OK(ceclCommDestroy(one));
    OK(ceclCommDestroy(other));
}

static int open_compared(void **state)
{
    setenv("CECL_CHECK", "1", 1);
    return open_all(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_differs_is_refused_on_all_ranks),
        cmocka_unit_test(a_refused_group_leaves_all_its_communicators),
    };
    return cmocka_run_group_tests(tests, open_compared, close_all);
}
