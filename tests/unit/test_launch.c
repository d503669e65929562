/* Launches on the host device: which resources each holds, in which order a group makes them, and what is refused. */
#include "../with_cmocka.h"

#include <pthread.h>
#include <sys/mman.h>

#define RANKS 2
#include "comms.h"
#include "launch/group.h"
#include "launch/launcher.h"

#define COUNT 5000

/* A rank with buffers that peers cannot reach: each call needs a bounce buffer. */
struct rank {
    pthread_t thread;
    ceclComm_t comm;
    int *send, *first, *second; /* `send` has COUNT elements, the others RANKS * COUNT each */
    ceclResult_t result;
};

static int *private_memory(size_t count)
{
    int *memory = malloc(count * sizeof(int));
    memset(memory, 0xee, count * sizeof(int));
    return memory;
}

static void *call_by_itself(void *argument)
{
    struct rank *me = argument;
    me->result = ceclAllGather(me->send, me->second, COUNT, ceclInt32, me->comm, NULL);
    return NULL;
}

/* Another thread makes a call while this thread has an open group. */
static void *group_around_a_call(void *argument)
{
    struct rank *me = argument;
    pthread_t other;
    ceclResult_t result = ceclGroupStart();
    if (result == ceclSuccess)
        result = ceclAllGather(me->send, me->first, COUNT, ceclInt32, me->comm, NULL);
    if (pthread_create(&other, NULL, call_by_itself, me) != 0)
        return NULL;
    pthread_join(other, NULL);
    const ceclResult_t ended = ceclGroupEnd();
    me->result = result != ceclSuccess       ? result
                 : me->result != ceclSuccess ? me->result
                 : ended != ceclSuccess      ? ended
                                             : ceclStreamSynchronize(me->comm, NULL);
    return NULL;
}

static void expect_gathered(const int *recv)
{
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(recv[r * COUNT + i], 1000 * r + i);
}

TEST(a_call_of_another_thread_leaves_an_open_group_what_it_carries)
{
    struct rank ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){.comm = comms[r],
                                 .send = private_memory(COUNT),
                                 .first = private_memory(RANKS * COUNT),
                                 .second = private_memory(RANKS * COUNT),
                                 .result = ceclInternalError};
        for (int i = 0; i < COUNT; i++)
            ranks[r].send[i] = 1000 * r + i;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, group_around_a_call, &ranks[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].thread, NULL);
        OK(ranks[r].result);
        expect_gathered(ranks[r].first);
        expect_gathered(ranks[r].second);
        assert_int_equal(comms[r]->launcher->bounces.leases, 0);
        assert_int_equal(comms[r]->launcher->bounces.used, 0);
    }
    for (int r = 0; r < RANKS; r++) {
        free(ranks[r].send);
        free(ranks[r].first);
        free(ranks[r].second);
    }
}

static void *begin_a_group(void *argument)
{
    struct rank *me = argument;
    me->result = ceclGroupStart();
    if (me->result == ceclSuccess)
        me->result = ceclAllGather(me->send, me->first, COUNT, ceclInt32, me->comm, NULL);
    return NULL;
}

TEST(the_next_call_takes_back_what_a_thread_left_that_has_ended)
{
    struct rank me = {
        .comm = comms[0], .send = private_memory(COUNT), .first = private_memory(RANKS * COUNT)};
    ceclExplanation_t explanation;
    assert_int_equal(pthread_create(&me.thread, NULL, begin_a_group, &me), 0);
    pthread_join(me.thread, NULL);
    OK(me.result);
    assert_int_equal(me.comm->launcher->bounces.leases, 1);
    OK(ceclExplain(ceclOpAllGather, me.send, me.first, COUNT, ceclInt32, me.comm, &explanation));
    assert_int_equal(me.comm->launcher->bounces.leases, 0);
    free(me.send);
    free(me.first);
}

/* A communicator's place in the order is that of its first call, of whatever kind. */
TEST(launches_of_a_group_come_in_the_order_of_the_first_calls)
{
    int *memory = private_memory(8);
    OK(ceclGroupStart());
    OK(ceclSend(memory, 1, ceclInt32, 1, comms[0], NULL));
    OK(ceclRecv(memory, 1, ceclInt32, 0, comms[1], NULL));
    OK(ceclAllGather(memory, memory + 1, 1, ceclInt32, comms[0], NULL));
    OK(ceclAllGather(memory, memory + 3, 1, ceclInt32, comms[1], NULL));
    const struct cecl_launch *launch = cecl_group_current()->all.first;
    for (int i = 0; i < 4; i++) {
        assert_non_null(launch);
        assert_ptr_equal(launch->comm, comms[i / 2]);
        assert_int_equal(launch->kind, i % 2 ? CECL_LAUNCH_MESSAGES : CECL_LAUNCH_COLLECTIVES);
        launch = launch->next;
    }
    assert_null(launch);
    OK(ceclGroupEnd());
    finish_all(NULL);
    free(memory);
}

TEST(a_good_group_leaves_the_last_error_as_it_is)
{
    int memory[4] = {0};
    assert_int_equal(ceclSend(memory, 1, ceclInt32, 77, comms[0], NULL), ceclInvalidArgument);
    char before[CECL_MESSAGE_BYTES];
    cecl_keep_message(before);
    OK(ceclGroupStart());
    OK_EACH(ceclBarrier(comms[r], NULL));
    OK(ceclGroupEnd());
    assert_string_equal(cecl_message(), before);
}

#define PAGE ((size_t)4096)

TEST(memory_with_a_hole_between_the_blocks_of_a_call_is_refused)
{
    const size_t counts[RANKS] = {PAGE, PAGE}, displacements[RANKS] = {0, 2 * PAGE};
    int *send = private_memory(PAGE);
    char *recv = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(recv, MAP_FAILED);
    assert_int_equal(munmap(recv + PAGE, PAGE), 0);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(
            ceclAllGatherv(send, PAGE, recv, counts, displacements, ceclInt8, comms[r], NULL),
            ceclInvalidArgument);
    munmap(recv, PAGE);
    munmap(recv + 2 * PAGE, PAGE);
    free(send);
}

TESTS_BETWEEN(open_all, close_all)
