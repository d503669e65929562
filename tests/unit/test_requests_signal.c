/* Starts that wait until a kernel has counted a word up (ceclStartOnSignal), on the host device. Threads stand for
 * kernels. Except in one test, one thread makes the calls of all ranks. */
#include <cecl/cecl_device.h>
#include <pthread.h>

#include "requests.h"

#define PARTS 4
#define ROUNDS 12

/* Runs one thread for each rank beside the test's thread. */
static pthread_t kernels[RANKS];
static int ranks[RANKS];

static void launch_all(void *(*kernel)(void *))
{
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        assert_int_equal(pthread_create(&kernels[r], NULL, kernel, &ranks[r]), 0);
    }
}

static void join_all(void)
{
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(kernels[r], NULL), 0);
}

static void make_gather(int *recv[RANKS], ceclRequest_t requests[RANKS])
{
    int *send[RANKS];
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        send[r] = recv[r] + r * COUNT;
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    }
    fill(send, 5);
}

static uint32_t words[RANKS]; /* counted up by the kernels; they wrap around in the first rounds */
static uint32_t counted = UINT32_MAX - 2 * PARTS;
static int *produced[RANKS], produced_round;

static void begin_words(void)
{
    for (int r = 0; r < RANKS; r++)
        words[r] = counted;
}

/* Writes one part of the rank's block after the other, and lets each part's start go on. */
static void *produce(void *argument)
{
    const int rank = *(int *)argument;
    for (int part = 0; part < PARTS; part++) {
        for (int i = begin_of(PARTS, part); i < begin_of(PARTS, part + 1); i++)
            produced[rank][i] = value(rank, produced_round, i);
        ceclDeviceCount(&words[rank], 1);
    }
    return NULL;
}

static void init_part(int rank, int part, int *recv, ceclRequest_t *request)
{
    const int at = begin_of(PARTS, part), count = begin_of(PARTS, part + 1) - at;
    OK(ceclAllGatherInit(produced[rank] + at, recv + RANKS * at, (size_t)count, ceclInt32,
                         comms[rank], request));
}

static void check_parts(int *recv[RANKS], int round)
{
    for (int r = 0; r < RANKS; r++)
        for (int part = 0; part < PARTS; part++) {
            const int at = begin_of(PARTS, part), count = begin_of(PARTS, part + 1) - at;
            for (int i = 0; i < RANKS * count; i++)
                assert_int_equal(recv[r][RANKS * at + i], value(i / count, round, at + i % count));
        }
}

static void gather_parts(ceclRequest_t requests[PARTS][RANKS])
{
    for (int part = 0; part < PARTS; part++)
        for (int r = 0; r < RANKS; r++)
            OK(ceclStartOnSignal(requests[part][r], &words[r], counted + (uint32_t)part + 1,
                                 streams[r]));
    for (int part = 0; part < PARTS; part++)
        for (int r = 0; r < RANKS; r++)
            is_refused(ceclRequestFree(requests[part][r]), ceclInvalidUsage, "pending");
    launch_all(produce);
    synchronize();
    join_all();
    counted += PARTS;
}

static void parts_of(enum memory memory)
{
    int *recv[RANKS];
    ceclRequest_t requests[PARTS][RANKS];
    allocate(memory, COUNT, produced);
    allocate(memory, RANKS * COUNT, recv);
    for (int part = 0; part < PARTS; part++)
        for (int r = 0; r < RANKS; r++)
            init_part(r, part, recv[r], &requests[part][r]);
    begin_words();
    for (produced_round = 0; produced_round < ROUNDS; produced_round++) {
        gather_parts(requests);
        check_parts(recv, produced_round);
    }
    for (int part = 0; part < PARTS; part++)
        free_all(requests[part]);
    release(memory, COUNT, produced);
    release(memory, RANKS * COUNT, recv);
}

static void parts_are_sent_as_a_kernel_writes_them(void **state)
{
    for (int memory = 0; memory < MEMORIES; memory++)
        parts_of((enum memory)memory);
}

/* The sum of all ranks' first block, and a message to the next rank, wait for the last part. */
static void reductions_and_messages_wait_too(void **state)
{
    int *sums[RANKS], *recv[RANKS];
    ceclRequest_t reduce[RANKS], pass[RANKS];
    allocate(POOL, COUNT, produced);
    allocate(POOL, COUNT, sums);
    allocate(POOL, COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllReduceInit(produced[r], sums[r], COUNT, ceclInt32, ceclSum, comms[r],
                             &reduce[r]));
        OK(ceclGroupStart());
        OK(ceclSend(produced[r], COUNT, ceclInt32, (r + 1) % RANKS, comms[r], streams[r]));
        OK(ceclRecv(recv[r], COUNT, ceclInt32, (r + RANKS - 1) % RANKS, comms[r], streams[r]));
        OK(ceclGroupInit(comms[r], &pass[r]));
    }
    begin_words();
    for (produced_round = 0; produced_round < ROUNDS; produced_round++) {
        counted += PARTS;
        for (int r = 0; r < RANKS; r++)
            OK(ceclStartOnSignal(reduce[r], &words[r], counted, streams[r]));
        for (int r = 0; r < RANKS; r++)
            OK(ceclStartOnSignal(pass[r], &words[r], counted, streams[r]));
        launch_all(produce);
        synchronize();
        join_all();
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < COUNT; i++) {
                assert_int_equal(sums[r][i], value(0, produced_round, i) +
                                                 value(1, produced_round, i) +
                                                 value(2, produced_round, i));
                assert_int_equal(recv[r][i], value((r + 2) % RANKS, produced_round, i));
            }
    }
    free_all(reduce);
    free_all(pass);
    release(POOL, COUNT, produced);
    release(POOL, COUNT, sums);
    release(POOL, COUNT, recv);
}

/* More starts than may wait at a time: the host waits for room. Each rank has a thread of its own. */
#define MANY 700
static ceclRequest_t many[RANKS];
static bool all_started[RANKS];

static void *start_many(void *argument)
{
    const int rank = *(int *)argument;
    for (uint32_t i = 1; i <= MANY && all_started[rank]; i++)
        all_started[rank] =
            ceclStartOnSignal(many[rank], &words[rank], i, streams[rank]) == ceclSuccess;
    return NULL;
}

static void a_host_far_ahead_waits(void **state)
{
    int *recv[RANKS];
    make_gather(recv, many);
    start_all(many);
    for (int r = 0; r < RANKS; r++) {
        words[r] = 0;
        all_started[r] = true;
    }
    launch_all(start_many);
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++)
            ceclDeviceCount(&words[r], 1);
    join_all();
    synchronize();
    for (int r = 0; r < RANKS; r++)
        assert_true(all_started[r]);
    check_gathered(recv, 5);
    free_all(many);
    release(POOL, RANKS * COUNT, recv);
}

static void a_word_that_no_stream_can_wait_for_is_refused(void **state)
{
    int *recv[RANKS];
    ceclRequest_t requests[RANKS];
    ceclGraph_t graph;
    uint32_t *unaligned = (uint32_t *)(void *)((char *)words + 2);
    make_gather(recv, requests);
    is_refused(ceclStartOnSignal(NULL, words, 1, 0), ceclInvalidArgument, "request: NULL");
    is_refused(ceclStartOnSignal(requests[0], NULL, 1, 0), ceclInvalidArgument, "word: NULL");
    is_refused(ceclStartOnSignal(requests[0], unaligned, 1, 0), ceclInvalidArgument,
               "an address that 4 divides is expected");
    is_refused(ceclStartOnSignal(requests[0], (uint32_t *)(uintptr_t)64, 1, 0), ceclInvalidArgument,
               "word 0x40");
    is_refused(ceclStartOnSignal(requests[0], words, 1, (ceclStream_t)(void *)&graph),
               ceclInvalidArgument, "stream");
    OK(ceclStreamBeginCapture(comms[0], streams[0]));
    is_refused(ceclStartOnSignal(requests[0], words, 1, streams[0]), ceclInvalidUsage, "captures");
    OK(ceclStreamEndCapture(comms[0], streams[0], &graph));
    OK(ceclGraphDestroy(graph));
    OK(ceclGroupStart());
    is_refused(ceclStartOnSignal(requests[0], words, 1, 0), ceclInvalidUsage,
               "ceclStartOnSignal: call it outside a group");
    assert_int_equal(ceclGroupEnd(), ceclInvalidUsage);
    words[0] = 1;
    OK(ceclStartOnSignal(requests[0], words, 1, streams[0])); /* only rank 0 has a word */
    OK(ceclStart(requests[1], streams[1]));
    OK(ceclStart(requests[2], streams[2]));
    synchronize();
    check_gathered(recv, 5);
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

/* ---- failure; each test has communicators of its own */

static void abort_all(ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        (void)!ceclCommAbort(comms[r]);
    free_all(requests);
}

/* Several starts wait for one word, and for another one. */
static void a_stream_goes_on_when_the_communicator_fails(void **state)
{
    int *recv[RANKS];
    ceclRequest_t requests[RANKS];
    make_gather(recv, requests);
    memset(words, 0, sizeof(words));
    start_all(requests);
    synchronize();
    for (uint32_t i = 1; i <= 5; i++)
        OK(ceclStartOnSignal(requests[0], &words[i % 2], i, streams[0]));
    OK(ceclCommRevoke(comms[0]));
    is_refused(ceclStreamSynchronize(comms[0], streams[0]), ceclRemoteError, "");
    is_refused(ceclStartOnSignal(requests[0], words, 6, streams[0]), ceclRemoteError, "");
    abort_all(requests);
    assert_int_equal(words[1], 5);
    assert_int_equal(words[0], 4);
}

/* A peer's time may be up first. */
static void fails_and_says(int rank, const char *what)
{
    const ceclResult_t result = ceclStreamSynchronize(comms[rank], streams[rank]);
    assert_true(result == ceclTimeout || result == ceclRemoteError);
    is_refused(result, result, what);
}

/* Ranks from `first` on wait for words. */
static void is_named(int first)
{
    char where[64];
    int *recv[RANKS];
    ceclRequest_t requests[RANKS];
    make_gather(recv, requests);
    start_all(requests);
    synchronize();
    for (int r = 0; r < RANKS; r++) {
        words[r] = 41;
        OK(r < first ? ceclStart(requests[r], streams[r])
                     : ceclStartOnSignal(requests[r], &words[r], 42, streams[r]));
    }
    snprintf(where, sizeof(where), "ceclStartOnSignal waits until the word at %p reaches 42",
             (void *)&words[2]);
    fails_and_says(2, where);
    fails_and_says(0, first > 0 ? "rank 2" : "ceclStartOnSignal waits until the word");
    abort_all(requests);
    assert_int_equal(words[2], 42);
}

static void a_word_that_is_never_counted_up_is_named(void **state)
{
    is_named(2);
}

static void words_that_are_never_counted_up_are_named(void **state)
{
    is_named(0);
}

static int open_hastily(void **state)
{
    setenv("CECL_TIMEOUT_MS", "1500", 1);
    const int result = open_ranks(state);
    unsetenv("CECL_TIMEOUT_MS");
    return result;
}

int main(void)
{
    const struct CMUnitTest calls[] = {
        cmocka_unit_test(parts_are_sent_as_a_kernel_writes_them),
        cmocka_unit_test(reductions_and_messages_wait_too),
        cmocka_unit_test(a_host_far_ahead_waits),
        cmocka_unit_test(a_word_that_no_stream_can_wait_for_is_refused),
    };
    const struct CMUnitTest failures[] = {
        cmocka_unit_test_setup(a_stream_goes_on_when_the_communicator_fails, open_ranks),
        cmocka_unit_test_setup(a_word_that_is_never_counted_up_is_named, open_hastily),
        cmocka_unit_test_setup(words_that_are_never_counted_up_are_named, open_hastily),
    };
    const int failed = cmocka_run_group_tests_name("calls", calls, open_ranks, close_ranks);
    return failed + cmocka_run_group_tests_name("failures", failures, NULL, NULL);
}
