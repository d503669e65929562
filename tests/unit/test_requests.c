/* Requests on the host device, with all ranks in one thread: each kind of call as a request, started often,
 * between other calls, on different streams, in memory of all kinds; and refused requests. */
#include "alloc/registry_internal.h"
#include "launch/request.h"
#include "requests.h"

static bool over_nodes(void)
{
    return getenv("CECL_NODE_SIZE") != NULL;
}

/* A call that is not a request. Over nodes, a single rank's call would wait for the other ranks, which
 * belong to this thread. */
static void gather(int *send[RANKS], int *recv[RANKS])
{
    if (over_nodes())
        OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGather(send[r], recv[r], COUNT, ceclInt32, comms[r], streams[r]));
    if (over_nodes())
        OK(ceclGroupEnd());
}

/* ---- an all-gather in each kind of memory */

static void gather_in(enum memory sends, enum memory receives)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS];
    allocate(sends, COUNT, send);
    allocate(receives, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    for (int round = 0; round < STARTS; round++) {
        fill(send, round);
        for (int r = 0; r < RANKS; r++)
            memset(recv[r], 0, RANKS * COUNT * sizeof(int));
        start_all(requests);
        synchronize();
        check_gathered(recv, round);
    }
    free_all(requests);
    release(sends, COUNT, send);
    release(receives, RANKS * COUNT, recv);
}

static void starts_gather_what_is_there_in_memory_of_each_kind(void **state)
{
    for (int sends = 0; sends < MEMORIES; sends++)
        for (int receives = 0; receives < MEMORIES; receives++)
            gather_in((enum memory)sends, (enum memory)receives);
}

static void in_place_in_private_memory_the_input_is_carried_at_each_start(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    allocate(PRIVATE, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        send[r] = recv[r] + r * COUNT;
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    }
    for (int round = 0; round < STARTS; round++) {
        fill(send, round);
        start_all(requests);
        synchronize();
        check_gathered(recv, round);
    }
    free_all(requests);
    release(PRIVATE, RANKS * COUNT, recv);
}

/* ---- order */

/* All starts use the same buffers: a later start overwrites the output of an earlier one. */
static void many_starts_may_be_pending_on_streams_that_change(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS];
    ceclStream_t others[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStreamCreate(comms[r], &others[r]));
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    }
    fill(send, 5);
    for (int i = 0; i < 100; i++) {
        for (int r = 0; r < RANKS; r++)
            OK(ceclStart(requests[r], i % 2 ? others[r] : streams[r]));
        if (i % 7 == 0)
            gather(send, recv);
    }
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], others[r]));
    synchronize();
    check_gathered(recv, 5);
    free_all(requests);
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamDestroy(comms[r], others[r]));
    release(POOL, COUNT, send);
    release(POOL, RANKS * COUNT, recv);
}

/* Ranks start requests in one common order, which may differ from the order in which they were made. */
static void requests_are_started_in_any_order(void **state)
{
    int *send[RANKS], *recv[RANKS], *sum[RANKS];
    ceclRequest_t gathers[RANKS], sums[RANKS], unused[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, RANKS * COUNT, recv);
    allocate(POOL, COUNT, sum);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &gathers[r]));
        OK(ceclBroadcastInit(send[r], sum[r], COUNT, ceclInt32, 1, comms[r], &unused[r]));
        OK(ceclAllReduceInit(send[r], sum[r], COUNT, ceclInt32, ceclSum, comms[r], &sums[r]));
    }
    free_all(unused); /* before any start */
    fill(send, 3);
    start_all(sums);
    start_all(gathers);
    start_all(sums);
    synchronize();
    check_gathered(recv, 3);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(sum[r][i], value(0, 3, i) + value(1, 3, i) + value(2, 3, i));
    free_all(gathers);
    free_all(sums);
    release(POOL, COUNT, send);
    release(POOL, RANKS * COUNT, recv);
    release(POOL, COUNT, sum);
}

/* ---- groups and messages */

static void a_group_is_one_request(void **state)
{
    int *send[RANKS], *recv[RANKS], *sum[RANKS], *got[RANKS];
    ceclRequest_t requests[RANKS];
    allocate(PRIVATE, COUNT, send);
    allocate(PRIVATE, RANKS * COUNT, recv);
    allocate(REGISTERED, COUNT, sum);
    allocate(PRIVATE, COUNT, got);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclGroupStart());
        OK(ceclAllGather(send[r], recv[r], COUNT, ceclInt32, comms[r], streams[r]));
        OK(ceclAllReduce(send[r], sum[r], COUNT, ceclInt32, ceclSum, comms[r], streams[r]));
        OK(ceclSend(send[r], COUNT, ceclInt32, (r + 1) % RANKS, comms[r], streams[r]));
        OK(ceclRecv(got[r], COUNT, ceclInt32, (r + RANKS - 1) % RANKS, comms[r], streams[r]));
        OK(ceclGroupInit(comms[r], &requests[r]));
    }
    for (int round = 0; round < STARTS; round++) {
        fill(send, round);
        start_all(requests);
        synchronize();
        check_gathered(recv, round);
        for (int r = 0; r < RANKS; r++)
            for (int i = 0; i < COUNT; i++) {
                assert_int_equal(got[r][i], value((r + RANKS - 1) % RANKS, round, i));
                assert_int_equal(sum[r][i],
                                 value(0, round, i) + value(1, round, i) + value(2, round, i));
            }
    }
    free_all(requests);
    release(PRIVATE, COUNT, send);
    release(PRIVATE, RANKS * COUNT, recv);
    release(REGISTERED, COUNT, sum);
    release(PRIVATE, COUNT, got);
}

/* Rank 0 sends by a request, and rank 1 receives without one. */
static void a_message_needs_no_request_at_its_other_end(void **state)
{
    int *buffers[RANKS];
    ceclRequest_t request;
    allocate(POOL, COUNT, buffers);
    OK(ceclSendInit(buffers[0], COUNT, ceclInt32, 1, comms[0], &request));
    for (int round = 0; round < STARTS; round++) {
        for (int i = 0; i < COUNT; i++)
            buffers[0][i] = value(0, round, i);
        if (round % 2)
            OK(ceclStart(request, streams[0]));
        OK(ceclRecv(buffers[1], COUNT, ceclInt32, 0, comms[1], streams[1]));
        if (round % 2 == 0)
            OK(ceclStart(request, streams[0]));
        synchronize();
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(buffers[1][i], value(0, round, i));
    }
    OK(ceclRequestFree(request));
    release(POOL, COUNT, buffers);
}

/* Makes more calls than the ring of requests has entries. */
static void more_requests_are_made_than_the_ring_holds(void **state)
{
    enum { MANY = 1500 };
    static ceclRequest_t requests[RANKS][MANY];
    int *send[RANKS], *recv[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, RANKS * COUNT, recv);
    fill(send, 1);
    for (int i = 0; i < MANY; i++)
        for (int r = 0; r < RANKS; r++)
            OK(ceclAllGatherInit(send[r], recv[r], (size_t)(1 + i % COUNT), ceclInt32, comms[r],
                                 &requests[r][i]));
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStart(requests[r][MANY - 1], streams[r]));
        OK(ceclStart(requests[r][COUNT - 1], streams[r]));
    }
    synchronize();
    check_gathered(recv, 1);
    for (int i = MANY - 1; i >= 0; i--)
        for (int r = 0; r < RANKS; r++)
            OK(ceclRequestFree(requests[r][i]));
    release(POOL, COUNT, send);
    release(POOL, RANKS * COUNT, recv);
}

static void a_request_without_bytes_does_nothing(void **state)
{
    int *recv[RANKS];
    ceclRequest_t requests[RANKS], barriers[RANKS];
    allocate(POOL, COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(recv[r], recv[r], 0, ceclInt32, comms[r], &requests[r]));
        OK(ceclBarrierInit(comms[r], &barriers[r]));
    }
    start_all(requests);
    start_all(barriers);
    start_all(requests);
    synchronize();
    free_all(requests);
    free_all(barriers);
    release(POOL, COUNT, recv);
}

/* ---- refused calls */

static void handles_that_are_none_are_refused(void **state)
{
    int *recv[RANKS];
    ceclRequest_t request;
    allocate(POOL, RANKS * COUNT, recv);
    is_refused(ceclStart(NULL, streams[0]), ceclInvalidArgument, "request: NULL");
    is_refused(ceclRequestFree(NULL), ceclInvalidArgument, "request: NULL");
    is_refused(ceclAllGatherInit(recv[0], recv[0], COUNT, ceclInt32, comms[0], NULL),
               ceclInvalidArgument, "request: NULL");
    is_refused(ceclAllGatherInit(NULL, recv[0], COUNT, ceclInt32, comms[0], &request),
               ceclInvalidArgument, "sendbuff");
    OK(ceclSendInit(recv[0], COUNT, ceclInt32, 1, comms[0], &request));
    OK(ceclRequestFree(request));
    is_refused(ceclStart(request, streams[0]), ceclInvalidArgument, "freed before");
    is_refused(ceclRequestFree(request), ceclInvalidArgument, "freed before");
    release(POOL, RANKS * COUNT, recv);
}

static void groups_take_no_starts_and_make_requests_at_their_end(void **state)
{
    int *recv[RANKS];
    ceclRequest_t request, other;
    allocate(POOL, RANKS * COUNT, recv);
    OK(ceclSendInit(recv[0], COUNT, ceclInt32, 1, comms[0], &request));
    OK(ceclGroupStart());
    is_refused(ceclStart(request, streams[0]), ceclInvalidUsage, "outside a group");
    is_refused(ceclGroupEnd(), ceclInvalidUsage, "outside a group");
    OK(ceclGroupStart());
    is_refused(ceclSendInit(recv[0], 1, ceclInt32, 1, comms[0], &other), ceclInvalidUsage,
               "ceclGroupInit");
    is_refused(ceclGroupInit(comms[0], &other), ceclInvalidUsage, "no call");
    is_refused(ceclGroupInit(comms[0], &other), ceclInvalidUsage, "no ceclGroupStart");
    OK(ceclGroupStart());
    OK(ceclSend(recv[0], 1, ceclInt32, 1, comms[0], streams[0]));
    is_refused(ceclGroupInit(comms[1], &other), ceclInvalidUsage, "another communicator");
    OK(ceclRequestFree(request));
    release(POOL, RANKS * COUNT, recv);
}

/* A gate holds rank 0's stream, so its start stays pending. */
static void a_pending_request_is_not_freed(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
    OK(ceclStart(requests[0], streams[0])); /* the peers have not started */
    is_refused(ceclRequestFree(requests[0]), ceclInvalidUsage, "pending");
    OK(ceclStart(requests[1], streams[1]));
    OK(ceclStart(requests[2], streams[2]));
    synchronize();
    free_all(requests);
    release(POOL, COUNT, send);
    release(POOL, RANKS * COUNT, recv);
}

/* Numbers of calls wrap around, so the end of a start may seem to come only after all later calls. */
static void a_request_is_freed_however_long_ago_it_was_started(void **state)
{
    const uint32_t later = (UINT32_C(1) << 31) + 1; /* calls */
    ceclComm_t comm;
    ceclRequest_t request;
    int sent = 5, received = 0;
    OK(ceclCommInitAll(&comm, 1, NULL));
    OK(ceclAllGatherInit(&sent, &received, 1, ceclInt32, comm, &request));
    OK(ceclStart(request, NULL));
    OK(ceclStreamSynchronize(comm, NULL));
    struct cecl_flags *flags = &comm->engine.flags; /* as after many calls */
    flags->epoch[CECL_COUNTER_DONE] += later;
    flags->unsignalled_target += later;
    atomic_fetch_add((_Atomic uint32_t *)flags->done, later); /* the watchdog reads it */
    OK(ceclRequestFree(request));
    assert_int_equal(received, 5);
    OK(ceclCommDestroy(comm));
}

/* All ranks are refused together, so the communicator stays usable. */
static void memory_that_was_freed_under_a_request_is_named(void **state)
{
    int *send[RANKS], *recv[RANKS], *again[RANKS];
    ceclRequest_t requests[RANKS];
    for (enum memory memory = POOL; memory <= REGISTERED; memory++) {
        allocate(POOL, COUNT, send);
        allocate(memory, RANKS * COUNT, recv);
        for (int r = 0; r < RANKS; r++)
            OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
        fill(send, 2);
        start_all(requests);
        synchronize();
        check_gathered(recv, 2);
        release(memory, RANKS * COUNT, recv);
        allocate(memory, RANKS * COUNT, again); /* often gets the same address */
        for (int r = 0; r < RANKS; r++) {
            const ceclResult_t result = ceclStart(requests[r], streams[r]);
            if (memory == POOL || again[r] == recv[r])
                is_refused(result, ceclInvalidUsage,
                           "freed or replaced since the request was made");
            else /* no memory may be mapped there */
                assert_true(result == ceclInvalidUsage || result == ceclInvalidArgument);
        }
        free_all(requests);
        release(memory, RANKS * COUNT, again);
        release(POOL, COUNT, send);
    }
}

/* Rank 0's other start is pending, because the peers have not made it yet, but nothing of the request is. */
static void a_request_whose_start_was_refused_is_freed_beside_other_calls(void **state)
{
    int *recv[RANKS], *others_recv[RANKS];
    ceclRequest_t requests[RANKS], others[RANKS];
    allocate(POOL, RANKS * COUNT, recv);
    allocate(POOL, RANKS * COUNT, others_recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(recv[r] + r * COUNT, recv[r], COUNT, ceclInt32, comms[r],
                             &requests[r]));
        OK(ceclAllGatherInit(others_recv[r] + r * COUNT, others_recv[r], COUNT, ceclInt32, comms[r],
                             &others[r]));
    }
    start_all(requests);
    synchronize();
    release(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStart(others[r], streams[r]));
        is_refused(ceclStart(requests[r], streams[r]), ceclInvalidUsage, "freed or replaced");
        OK(ceclRequestFree(requests[r]));
    }
    synchronize();
    free_all(others);
    release(POOL, RANKS * COUNT, others_recv);
}

/* Whether a rank has closed memory of its peers that the request uses. */
static bool has_closed(ceclRequest_t request)
{
    const struct cecl_imports *imports = &request->collectives->imports;
    bool closed = false;
    for (uint32_t i = 0; i < imports->count; i++)
        closed = closed || atomic_load(&imports->list[i]->closed);
    return closed;
}

/* Rank 1's memory is replaced. A call with the new memory announces it to peers, which then close the old
 * memory. */
static void a_peers_memory_that_was_replaced_is_named(void **state)
{
    int *send[RANKS], *recv[RANKS], *again[RANKS];
    ceclRequest_t requests[RANKS], unstarted[RANKS];
    if (over_nodes())
        skip_because("ranks of another node do not learn of it");
    allocate(POOL, COUNT, send);
    allocate(REGISTERED, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &unstarted[r]));
    }
    fill(send, 4);
    start_all(requests);
    synchronize();
    unmap_file(recv[1], RANKS * COUNT * sizeof(int));
    is_refused(ceclStart(requests[1], streams[1]), ceclInvalidArgument, "recvbuff");
    allocate(REGISTERED, RANKS * COUNT, again);
    gather(send, again);
    synchronize();
    check_gathered(again, 4);
    unmap_file(again[1], RANKS * COUNT * sizeof(int)); /* peers notice at the next new memory */
    again[1] = map_file(RANKS * COUNT * sizeof(int));
    for (int i = 0; i < 10000 && !(has_closed(requests[0]) && has_closed(requests[2])); i++) {
        gather(send, again);
        synchronize();
        usleep(100);
    }
    is_refused(ceclStart(requests[0], streams[0]), ceclInvalidUsage, "a peer's memory was freed");
    is_refused(ceclStart(requests[2], streams[2]), ceclInvalidUsage, "a peer's memory was freed");
    is_refused(ceclStart(unstarted[0], streams[0]), ceclInvalidUsage, "a peer's memory was freed");
    is_refused(ceclReady(unstarted[2], streams[2]), ceclInvalidUsage, "a peer's memory was freed");
    gather(send, again);
    synchronize();
    check_gathered(again, 4);
    free_all(requests);
    free_all(unstarted);
    release(POOL, COUNT, send);
    recv[1] = again[1];
    again[1] = map_file(sizeof(int));
    release(REGISTERED, RANKS * COUNT, recv);
    unmap_file(again[1], sizeof(int));
    unmap_file(again[0], RANKS * COUNT * sizeof(int));
    unmap_file(again[2], RANKS * COUNT * sizeof(int));
}

static void a_request_outlives_its_communicator_only_to_be_freed(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t requests[RANKS], unstarted[RANKS];
    allocate(POOL, COUNT, send);
    allocate(PRIVATE, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &requests[r]));
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &unstarted[r]));
    }
    start_all(requests);
    synchronize();
    close_ranks(NULL);
    for (int r = 0; r < RANKS; r++) {
        is_refused(ceclStart(requests[r], NULL), ceclInvalidUsage, "communicator has ended");
        is_refused(ceclStart(unstarted[r], NULL), ceclInvalidUsage, "communicator has ended");
        OK(ceclRequestFree(requests[r]));
        OK(ceclRequestFree(unstarted[r]));
        free(recv[r]);
    }
    open_ranks(NULL);
}

static void starts_of_different_requests_are_found(void **state)
{
    int *send[RANKS], *recv[RANKS];
    ceclRequest_t one[RANKS], other[RANKS];
    allocate(POOL, COUNT, send);
    allocate(POOL, 2 * RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        OK(ceclAllGatherInit(send[r], recv[r], COUNT, ceclInt32, comms[r], &one[r]));
        OK(ceclAllGatherInit(send[r], recv[r] + RANKS * COUNT, COUNT, ceclInt32, comms[r],
                             &other[r]));
    }
    for (int r = 0; r < RANKS; r++)
        OK(ceclStart(r == 1 ? other[r] : one[r], streams[r]));
    bool is_found = false; /* by a rank; the others may hear of it first */
    for (int r = 0; r < RANKS; r++) {
        const ceclResult_t result = ceclStreamSynchronize(comms[r], streams[r]);
        is_found = is_found || result == ceclInvalidUsage;
        if (result != ceclSuccess) {
            assert_true(result == ceclInvalidUsage || result == ceclRemoteError);
            assert_non_null(strstr(ceclGetLastError(NULL), "ceclStart"));
        }
    }
    assert_true(is_found);
    free_all(one);
    for (int r = 0; r < RANKS; r++) {
        (void)!ceclStreamDestroy(comms[r], streams[r]);
        OK(ceclCommAbort(comms[r]));
    }
    free_all(other);
    open_ranks(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_gather_what_is_there_in_memory_of_each_kind),
        cmocka_unit_test(in_place_in_private_memory_the_input_is_carried_at_each_start),
        cmocka_unit_test(many_starts_may_be_pending_on_streams_that_change),
        cmocka_unit_test(requests_are_started_in_any_order),
        cmocka_unit_test(a_group_is_one_request),
        cmocka_unit_test(a_message_needs_no_request_at_its_other_end),
        cmocka_unit_test(more_requests_are_made_than_the_ring_holds),
        cmocka_unit_test(a_request_without_bytes_does_nothing),
        cmocka_unit_test(handles_that_are_none_are_refused),
        cmocka_unit_test(groups_take_no_starts_and_make_requests_at_their_end),
        cmocka_unit_test(a_pending_request_is_not_freed),
        cmocka_unit_test(a_request_is_freed_however_long_ago_it_was_started),
        cmocka_unit_test(memory_that_was_freed_under_a_request_is_named),
        cmocka_unit_test(a_request_whose_start_was_refused_is_freed_beside_other_calls),
        cmocka_unit_test(a_peers_memory_that_was_replaced_is_named),
        cmocka_unit_test(a_request_outlives_its_communicator_only_to_be_freed),
        cmocka_unit_test(starts_of_different_requests_are_found),
    };
    return cmocka_run_group_tests(tests, open_ranks, close_ranks);
}
