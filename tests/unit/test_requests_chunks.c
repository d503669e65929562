/* Streams that wait for single chunks of a gather, on the host device. All ranks are in one thread. */
#include "requests.h"

static ceclStream_t others[RANKS]; /* streams that wait for chunks and read them */
static int read_back[RANKS][RANKS * COUNT];

static int open_with_others(void **state)
{
    const int result = open_ranks(state);
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamCreate(comms[r], &others[r]));
    return result;
}

static void gather_in_chunks(int chunks, int *send[RANKS], int *recv[RANKS],
                             ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        OK(ceclAllGatherChunksInit(send[r], recv[r], COUNT, chunks, ceclInt32, comms[r],
                                   &requests[r]));
}

/* The elements [c * each, end) of a block. */
static int begin_of(int chunks, int c)
{
    const int at = c * ((COUNT + chunks - 1) / chunks);
    return at < COUNT ? at : COUNT;
}

/* Copies each chunk as soon as it has arrived: of all blocks together, or of one block after the other. */
static void read_chunks(int rank, int chunks, const int *recv, ceclRequest_t request, bool by_peer)
{
    for (int c = 0; c < chunks; c++) {
        const int at = begin_of(chunks, c), count = begin_of(chunks, c + 1) - at;
        if (!by_peer)
            OK(ceclWaitChunk(request, -1, c, others[rank]));
        for (int from = 0; from < RANKS; from++) {
            const int place = from * COUNT + at;
            if (by_peer)
                OK(ceclWaitChunk(request, from, c, others[rank]));
            if (count > 0)
                OK(ceclMemcpyAsync(comms[rank], read_back[rank] + place, recv + place,
                                   (size_t)count * sizeof(int), others[rank]));
        }
    }
}

static void start_and_read(int chunks, int *recv[RANKS], ceclRequest_t requests[RANKS], int round)
{
    start_all(requests);
    for (int r = 0; r < RANKS; r++)
        read_chunks(r, chunks, recv[r], requests[r], round % 2);
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], others[r]));
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < RANKS * COUNT; i++)
            assert_int_equal(read_back[r][i], value(i / COUNT, round, i % COUNT));
    synchronize();
}

static void gather(int chunks, enum memory memory, bool in_place, ceclDirection_t direction)
{
    int *apart[RANKS], *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = (int)direction;
    allocate(POOL, COUNT, apart);
    allocate(memory, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++) {
        send[r] = in_place ? recv[r] + r * COUNT : apart[r];
        OK(ceclSetOptions(comms[r], &options));
    }
    gather_in_chunks(chunks, send, recv, requests);
    for (int r = 0; r < RANKS; r++)
        OK(ceclSetOptions(comms[r], NULL));
    for (int round = 0; round < 8; round++) {
        for (int r = 0; r < RANKS; r++)
            memset(recv[r], 0, RANKS * COUNT * sizeof(int));
        for (int r = 0; r < RANKS && round % 3; r++)
            OK(ceclReady(requests[r], streams[r]));
        fill(send, round);
        start_and_read(chunks, recv, requests, round);
    }
    free_all(requests);
    release(POOL, COUNT, apart);
    release(memory, RANKS * COUNT, recv);
}

static void each_chunk_is_there_when_the_stream_goes_on(void **state)
{
    static const int counts[] = {1, 2, 7, 64};
    for (int i = 0; i < 4; i++)
        for (int memory = 0; memory < MEMORIES; memory++)
            for (int in_place = 0; in_place < 2; in_place++)
                for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL;
                     direction++)
                    gather(counts[i], (enum memory)memory, in_place, (ceclDirection_t)direction);
}

static void gather_in_place(int chunks, int *send[RANKS], int *recv[RANKS],
                            ceclRequest_t requests[RANKS])
{
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++)
        send[r] = recv[r] + r * COUNT;
    gather_in_chunks(chunks, send, recv, requests);
    fill(send, 5);
    for (int r = 0; r < RANKS; r++)
        OK(ceclReady(requests[r], streams[r]));
}

/* Rank 2 has not started, so the gather cannot end on any rank. */
static void a_part_of_one_rank_does_not_wait_for_the_others(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(4, send, recv, requests);
    OK(ceclStart(requests[0], streams[0]));
    OK(ceclStart(requests[1], streams[1]));
    for (int c = 0; c < 4; c++)
        OK(ceclWaitChunk(requests[0], 1, c, others[0]));
    OK(ceclWaitChunk(requests[0], 0, 3, others[0])); /* the rank's own block, in place */
    OK(ceclStreamSynchronize(comms[0], others[0]));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(recv[0][COUNT + i], value(1, 5, i));
    is_refused(ceclRequestFree(requests[0]), ceclInvalidUsage, "pending");
    OK(ceclStart(requests[2], streams[2]));
    OK(ceclWaitChunk(requests[0], -1, 3, others[0]));
    OK(ceclStreamSynchronize(comms[0], others[0]));
    check_gathered((int *[RANKS]){recv[0], recv[0], recv[0]}, 5);
    synchronize();
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

/* When the wait is made, words of peers have advanced by half a cycle: 65 phases a gather. */
static void a_gather_that_ended_long_ago_is_not_waited_for(void **state)
{
    int *old_recv[RANKS], *old_send[RANKS], *recv[RANKS], *send[RANKS];
    ceclRequest_t old[RANKS], requests[RANKS];
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = CECL_DIRECTION_PUSH;
    for (int r = 0; r < RANKS; r++)
        OK(ceclSetOptions(comms[r], &options));
    gather_in_place(4, old_send, old_recv, old);
    gather_in_place(64, send, recv, requests);
    for (int r = 0; r < RANKS; r++)
        OK(ceclSetOptions(comms[r], NULL));
    start_all(old);
    for (int i = 0; i < 600; i++) {
        start_all(requests);
        synchronize();
    }
    is_refused(ceclStart(old[0], (ceclStream_t)(void *)&old), ceclInvalidArgument, "stream");
    start_all(requests); /* the words are not checked while a call is pending */
    OK(ceclWaitChunk(old[0], -1, 0, others[0]));
    OK(ceclStreamSynchronize(comms[0], others[0]));
    check_gathered(old_recv, 5);
    synchronize();
    free_all(old);
    free_all(requests);
    release(POOL, RANKS * COUNT, old_recv);
    release(POOL, RANKS * COUNT, recv);
}

static void what_has_no_chunks_is_refused(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS], sums[RANKS], bad;
    allocate(POOL, RANKS * COUNT, recv);
    for (int r = 0; r < RANKS; r++)
        send[r] = recv[r] + r * COUNT;
    is_refused(ceclAllGatherChunksInit(send[0], recv[0], COUNT, 0, ceclInt32, comms[0], &bad),
               ceclInvalidArgument, "chunks: 1 to 64 expected");
    is_refused(ceclAllGatherChunksInit(send[0], recv[0], COUNT, 65, ceclInt32, comms[0], &bad),
               ceclInvalidArgument, "chunks: 1 to 64 expected");
    gather_in_chunks(3, send, recv, requests);
    for (int r = 0; r < RANKS; r++)
        OK(ceclBroadcastInit(recv[r], recv[r], COUNT, ceclInt32, 0, comms[r], &sums[r]));
    is_refused(ceclWaitChunk(NULL, 0, 0, others[0]), ceclInvalidArgument, "request");
    is_refused(ceclWaitChunk(requests[0], 0, 0, others[0]), ceclInvalidUsage, "not started yet");
    start_all(requests);
    start_all(sums);
    is_refused(ceclWaitChunk(sums[0], 0, 0, others[0]), ceclInvalidUsage, "of one all-gather");
    is_refused(ceclWaitChunk(requests[0], RANKS, 0, others[0]), ceclInvalidArgument, "peer 3");
    is_refused(ceclWaitChunk(requests[0], 1, 3, others[0]), ceclInvalidArgument, "chunk 3: 0 to 2");
    OK(ceclStreamBeginCapture(comms[0], others[0]));
    is_refused(ceclWaitChunk(requests[0], 1, 0, others[0]), ceclInvalidUsage, "captures a graph");
    ceclGraph_t graph;
    OK(ceclStreamEndCapture(comms[0], others[0], &graph));
    OK(ceclGraphDestroy(graph));
    synchronize();
    free_all(requests);
    free_all(sums);
    release(POOL, RANKS * COUNT, recv);
}

/* The last test: the communicators cannot be used afterwards. */
static void a_wait_for_a_chunk_ends_with_the_communicator(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(2, send, recv, requests);
    OK(ceclStart(requests[0], streams[0]));
    OK(ceclWaitChunk(requests[0], 2, 1, others[0]));
    OK(ceclCommRevoke(comms[1]));
    assert_int_equal(ceclStreamSynchronize(comms[0], others[0]), ceclRemoteError);
    for (int r = 0; r < RANKS; r++)
        (void)!ceclCommAbort(comms[r]);
    free_all(requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_is_there_when_the_stream_goes_on),
        cmocka_unit_test(a_part_of_one_rank_does_not_wait_for_the_others),
        cmocka_unit_test(a_gather_that_ended_long_ago_is_not_waited_for),
        cmocka_unit_test(what_has_no_chunks_is_refused),
        cmocka_unit_test(a_wait_for_a_chunk_ends_with_the_communicator),
    };
    return cmocka_run_group_tests(tests, open_with_others, NULL);
}
