/* Requests that are made ready before they are started, on the host device, with all ranks in one
 * thread. */
#include "requests.h"

static void ready_all(ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclReady(requests[r], streams[r]));
}

static void gather_early_in(enum memory receives, bool in_place, ceclDirection_t direction)
{
    int *apart[RANKS], *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = (int)direction;
    allocate(POOL, COUNT, apart);
    allocate(receives, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        send[r] = in_place ? recv[r] + r * COUNT : apart[r];
        OK(ceclSetOptions(comms[r], &options));
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
        OK(ceclSetOptions(comms[r], NULL));
    }
    for (int round = 0; round < STARTS; round++) {
        for (int r = 0; r < RANKS; r++)
            memset(recv[r], 0, RANKS * COUNT * sizeof(int));
        if (round % 3) /* some rounds are not made ready */
            ready_all(requests);
        fill(send, round); /* fills after ready, before the start */
        start_all(requests);
        synchronize();
        check_gathered(recv, round);
    }
    free_all(requests);
    release(POOL, COUNT, apart);
    release(receives, RANKS * COUNT, recv);
}

static void what_is_ready_gathers_as_before(void **state)
{
    for (int memory = 0; memory < MEMORIES; memory++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL; direction++)
                gather_early_in((enum memory)memory, in_place, (ceclDirection_t)direction);
}

static bool arrives(const int *at, int wanted, int ms)
{
    for (int i = 0; i < ms * 10; i++) {
        if (*(const volatile int *)at == wanted)
            return true;
        usleep(100);
    }
    return false;
}

/* Makes requests of an in-place all-gather, in new memory of the pool. */
static void gather_in_place(int *send[RANKS], int *recv[RANKS], ceclRequest_t requests[RANKS])
{
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        send[r] = recv[r] + r * COUNT;
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    }
}

/* Rank 0 starts alone. Its block arrives at a peer that is ready and has not started. */
static void a_start_waits_for_no_start_of_peers_that_are_ready(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(send, recv, requests);
    for (int round = 1; round < STARTS; round++) {
        fill(send, round);
        ready_all(requests);
        OK(ceclStart(requests[0], streams[0]));
        for (int r = 1; r < RANKS; r++)
            assert_true(arrives(&recv[r][COUNT - 1], value(0, round, COUNT - 1), 10000));
        for (int r = 1; r < RANKS; r++)
            OK(ceclStart(requests[r], streams[r]));
        synchronize();
        check_gathered(recv, round);
    }
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

/* Rank 2 is ready late. No rank gets data before, because a block is sent to all ranks at once. */
static void a_start_waits_until_all_are_ready(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(send, recv, requests);
    for (int round = 1; round < 4; round++) {
        fill(send, round);
        memset(recv[2], 0, COUNT * sizeof(int)); /* rank 0's block */
        OK(ceclReady(requests[0], streams[0]));
        OK(ceclReady(requests[1], streams[1]));
        OK(ceclStart(requests[0], streams[0]));
        OK(ceclStart(requests[1], streams[1]));
        assert_false(arrives(&recv[2][COUNT - 1], value(0, round, COUNT - 1), 20));
        OK(ceclReady(requests[2], streams[2]));
        OK(ceclStart(requests[2], streams[2]));
        synchronize();
        check_gathered(recv, round);
    }
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

/* One exchange for three gathers, which are started in another order, between other calls. */
static void a_session_makes_many_ready_at_once(void **state)
{
    enum { MANY = 3 };
    static const int order[MANY] = {2, 0, 1};
    int *send[MANY][RANKS], *recv[MANY][RANKS];
    ceclRequest_t requests[RANKS][MANY];
    for (int i = 0; i < MANY; i++) {
        allocate(POOL, COUNT, send[i]);
        allocate(i == 1 ? PRIVATE : REGISTERED, RANKS * COUNT, recv[i]);
        for (int r = 0; r < RANKS; r++)
            OK(ceclAllGatherInit(send[i][r], recv[i][r], COUNT, ceclInt32, comms[r],
                                 &requests[r][i]));
    }
    for (int round = 0; round < STARTS; round++) {
        for (int r = 0; r < RANKS; r++)
            OK(ceclReadyAll(requests[r], MANY, NULL));
        for (int i = 0; i < MANY; i++) {
            fill(send[order[i]], round + 100 * i);
            for (int r = 0; r < RANKS; r++) {
                OK(ceclBarrier(comms[r], streams[r]));
                OK(ceclStart(requests[r][order[i]], streams[r]));
            }
        }
        synchronize();
        for (int i = 0; i < MANY; i++)
            check_gathered(recv[order[i]], round + 100 * i);
    }
    for (int i = 0; i < MANY; i++) {
        for (int r = 0; r < RANKS; r++)
            OK(ceclRequestFree(requests[r][i]));
        release(POOL, COUNT, send[i]);
        release(i == 1 ? PRIVATE : REGISTERED, RANKS * COUNT, recv[i]);
    }
}

/* Each rank makes and frees requests in another order, so the slots of ranks differ. */
static void slots_serve_requests_that_come_and_go(void **state)
{
    enum { MANY = 40 };
    ceclRequest_t requests[MANY][RANKS] = {{NULL}};
    int *send[RANKS], *recv[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, RANKS * COUNT, recv);
    for (int round = 0; round < 2000; round++) {
        const int at = round * 7 % MANY;
        for (int r = 0; r < RANKS; r++) {
            const int old = (at + r) % MANY; /* ranks free in different orders */
            if (round >= MANY && requests[old][r])
                OK(ceclRequestFree(requests[old][r]));
            if (round >= MANY)
                requests[old][r] = NULL;
            if (requests[at][r])
                OK(ceclRequestFree(requests[at][r]));
            OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[at][r]));
        }
        ready_all(requests[at]);
        fill(send, round);
        start_all(requests[at]);
        synchronize();
        if (round % 50 == 0)
            check_gathered(recv, round);
    }
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++)
            if (requests[i][r])
                OK(ceclRequestFree(requests[i][r]));
    release(POOL, COUNT, send);
    release(POOL, RANKS * COUNT, recv);
}

static void what_cannot_be_ready_is_refused(void **state)
{
    int *recv[RANKS];
    ceclRequest_t gathers[RANKS], sums[RANKS], both[2];
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(recv[r] + r * COUNT, recv[r], COUNT, ceclInt32, comms[r],
                             &gathers[r]));
        OK(ceclAllReduceInit(recv[r], recv[r], COUNT, ceclInt32, ceclSum, comms[r], &sums[r]));
    }
    is_refused(ceclReady(NULL, streams[0]), ceclInvalidArgument, "request: NULL");
    is_refused(ceclReadyAll(NULL, 1, streams[0]), ceclInvalidArgument, "1 request at least");
    is_refused(ceclReady(sums[0], streams[0]), ceclInvalidUsage, "ceclAllGather");
    both[0] = both[1] = gathers[0];
    is_refused(ceclReadyAll(both, 2, streams[0]), ceclInvalidArgument, "the same request");
    both[1] = gathers[1];
    is_refused(ceclReadyAll(both, 2, streams[0]), ceclInvalidUsage, "a different communicator");
    ready_all(gathers);
    is_refused(ceclReady(gathers[0], streams[0]), ceclInvalidUsage, "not started since");
    is_refused(ceclRequestFree(gathers[0]), ceclInvalidUsage, "start it first");
    start_all(gathers);
    synchronize();
    free_all(gathers);
    free_all(sums);
    release(POOL, RANKS * COUNT, recv);
}

/* A request that is ready, but was refused because its memory was freed, can be freed. Later requests are not confused
 * by its signals. */
static void what_can_no_longer_be_started_is_freed(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(send, recv, requests);
    ready_all(requests);
    release(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++)
        is_refused(ceclStart(requests[r], streams[r]), ceclInvalidUsage, "freed or replaced");
    free_all(requests);
    for (int r = 0; r < RANKS; r++)
        is_refused(ceclRequestFree(requests[r]), ceclInvalidArgument, "not a request");
    gather_in_place(send, recv, requests);
    fill(send, 1);
    ready_all(requests);
    start_all(requests);
    synchronize();
    check_gathered(recv, 1);
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

static void open_hastily(void)
{
    close_ranks(NULL);
    setenv("CECL_TIMEOUT_MS", "3000", 1);
    open_ranks(NULL);
}

/* Rank 2 has made nothing ready. The time limit ends the waits of the others, and the error names rank 2. */
static void rank_2_is_named(void)
{
    const ceclResult_t result = ceclStreamSynchronize(comms[0], streams[0]);
    assert_true(result == ceclTimeout ||
                result == ceclRemoteError); /* rank 1's limit may pass first */
    if (!strstr(ceclGetLastError(NULL), "waited for rank 2") ||
        !strstr(ceclGetLastError(NULL), "ceclStart"))
        fail_msg("%s", ceclGetLastError(NULL));
    (void)!ceclStreamSynchronize(comms[1], streams[1]);
    for (int r = 0; r < RANKS; r++) {
        (void)!ceclStreamDestroy(comms[r], streams[r]);
        OK(ceclCommAbort(comms[r]));
    }
}

static void a_rank_that_is_never_ready_is_named(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS];
    open_hastily();
    gather_in_place(send, recv, requests);
    ready_all(requests);
    start_all(requests);
    synchronize();
    for (int r = 0; r < 2; r++) {
        OK(ceclReady(requests[r], streams[r]));
        OK(ceclStart(requests[r], streams[r]));
    }
    rank_2_is_named();
    free_all(requests);
    unsetenv("CECL_TIMEOUT_MS");
    open_ranks(NULL);
}

/* The first request of a session is made ready again before the session's second request is started, whose
 * signals are older. */
static void a_rank_is_named_that_is_not_ready_again_within_a_session(void **state)
{
    enum { MANY = 2 };
    int *send[RANKS], *recv[MANY][RANKS];
    ceclRequest_t requests[MANY][RANKS];
    open_hastily();
    for (int i = 0; i < MANY; i++)
        gather_in_place(send, recv[i], requests[i]);
    for (int r = 0; r < RANKS; r++)
        OK(ceclReadyAll((ceclRequest_t[]){requests[0][r], requests[1][r]}, MANY, streams[r]));
    start_all(requests[0]);
    synchronize();
    for (int r = 0; r < 2; r++) {
        OK(ceclReady(requests[0][r], streams[r]));
        OK(ceclStart(requests[0][r], streams[r]));
        OK(ceclStart(requests[1][r], streams[r]));
    }
    rank_2_is_named();
    for (int i = 0; i < MANY; i++)
        free_all(requests[i]);
    unsetenv("CECL_TIMEOUT_MS");
    open_ranks(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_ready_gathers_as_before),
        cmocka_unit_test(a_start_waits_for_no_start_of_peers_that_are_ready),
        cmocka_unit_test(a_start_waits_until_all_are_ready),
        cmocka_unit_test(a_session_makes_many_ready_at_once),
        cmocka_unit_test(slots_serve_requests_that_come_and_go),
        cmocka_unit_test(what_cannot_be_ready_is_refused),
        cmocka_unit_test(what_can_no_longer_be_started_is_freed),
        cmocka_unit_test(a_rank_that_is_never_ready_is_named),
        cmocka_unit_test(a_rank_is_named_that_is_not_ready_again_within_a_session),
    };
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
