/* Streams and kernels that wait for single chunks of a gather, on the host device. Threads stand for kernels. One
 * thread makes the calls of all ranks. */
#include <cecl/cecl_device.h>
#include <pthread.h>

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

static void read_by_streams(int chunks, int *recv[RANKS], ceclRequest_t requests[RANKS], int round)
{
    start_all(requests);
    for (int r = 0; r < RANKS; r++)
        read_chunks(r, chunks, recv[r], requests[r], round % 2);
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamSynchronize(comms[r], others[r]));
}

/* A rank's kernel, and what it is given. */
struct kernel {
    pthread_t thread;
    ceclDeviceChunks_t chunks;
    const int *recv;
    bool came; /* each wait has returned true */
};
static struct kernel kernels[RANKS];

/* Copies each chunk as soon as it has arrived; each rank begins with another one. */
static void *read_in_kernel(void *argument)
{
    struct kernel *kernel = argument;
    const ceclDeviceChunks_t dc = kernel->chunks;
    kernel->came = true;
    for (int i = 0; i < dc.nranks * dc.chunks; i++) {
        const int n = (i + dc.rank) % (dc.nranks * dc.chunks), c = n / dc.nranks;
        const int at = begin_of(dc.chunks, c), place = n % dc.nranks * COUNT + at;
        kernel->came = ceclDeviceWaitChunk(dc, n % dc.nranks, c) && kernel->came;
        memcpy(read_back[dc.rank] + place, kernel->recv + place,
               (size_t)(begin_of(dc.chunks, c + 1) - at) * sizeof(int));
    }
    return NULL;
}

static void launch(struct kernel *kernel, void *(*function)(void *))
{
    assert_int_equal(pthread_create(&kernel->thread, NULL, function, kernel), 0);
}

/* Kernels begin to wait before the last rank has started. */
static void read_by_kernels(int *recv[RANKS], ceclRequest_t requests[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStart(requests[r], streams[r]));
        OK(ceclGetDeviceChunks(requests[r], &kernels[r].chunks));
        kernels[r].recv = recv[r];
        launch(&kernels[r], read_in_kernel);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_join(kernels[r].thread, NULL), 0);
        assert_true(kernels[r].came);
    }
}

static void start_and_read(int chunks, int *recv[RANKS], ceclRequest_t requests[RANKS], int round)
{
    memset(read_back, 0, sizeof(read_back));
    if (round < 4)
        read_by_streams(chunks, recv, requests, round);
    else
        read_by_kernels(recv, requests);
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

static void each_chunk_is_there_when_the_stream_or_kernel_goes_on(void **state)
{
    static const int counts[] = {1, 2, 7, 64};
    for (int i = 0; i < 4; i++)
        for (int memory = 0; memory < MEMORIES; memory++)
            for (int in_place = 0; in_place < 2; in_place++)
                for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL;
                     direction++)
                    gather(counts[i], (enum memory)memory, in_place, (ceclDirection_t)direction);
}

/* In place, so that chunks are announced where ranks push. */
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
static void a_kernel_waits_for_one_rank_and_within_its_bound(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    ceclDeviceChunks_t dc;
    gather_in_place(4, send, recv, requests);
    OK(ceclStart(requests[0], streams[0]));
    OK(ceclStart(requests[1], streams[1]));
    OK(ceclGetDeviceChunks(requests[0], &dc));
    assert_int_equal(dc.chunks, 4);
    for (int c = 0; c < 4; c++)
        assert_true(ceclDeviceWaitChunk(dc, 1, c));
    assert_true(ceclDeviceWaitChunk(dc, 0, 3)); /* the rank's own block, in place */
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(recv[0][COUNT + i], value(1, 5, i));
    ceclDeviceChunks_t hasty = dc;
    hasty.timeoutNs = 20000000;
    assert_false(ceclDeviceWaitChunk(hasty, 2, 0));
    OK(ceclStart(requests[2], streams[2]));
    assert_true(ceclDeviceWaitChunk(dc, 2, 3));
    assert_int_equal(recv[0][3 * COUNT - 1], value(2, 5, COUNT - 1));
    synchronize();
    free_all(requests);
    release(POOL, RANKS * COUNT, recv);
}

/* Rank 2 has not started here either. */
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
    for (int r = 0; r < RANKS; r++) {
        OK(ceclStart(old[r], streams[r])); /* pending on rank 0: the others have not started */
        if (r == 0)
            OK(ceclGetDeviceChunks(old[r], &kernels[r].chunks));
    }
    for (int i = 0; i < 600; i++) {
        start_all(requests);
        synchronize();
    }
    assert_non_null(kernels[0].chunks.words);
    for (int c = 0; c < 4; c++)
        assert_true(ceclDeviceWaitChunk(kernels[0].chunks, 1, c));
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
    ceclDeviceChunks_t dc;
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
    is_refused(ceclGetDeviceChunks(NULL, &dc), ceclInvalidArgument, "request");
    is_refused(ceclGetDeviceChunks(requests[0], NULL), ceclInvalidArgument, "chunks: NULL");
    is_refused(ceclGetDeviceChunks(requests[0], &dc), ceclInvalidUsage, "not started yet");
    start_all(requests);
    start_all(sums);
    is_refused(ceclGetDeviceChunks(sums[0], &dc), ceclInvalidUsage,
               "ceclGetDeviceChunks takes only a request of one all-gather");
    is_refused(ceclWaitChunk(sums[0], 0, 0, others[0]), ceclInvalidUsage, "of one all-gather");
    is_refused(ceclWaitChunk(requests[0], RANKS, 0, others[0]), ceclInvalidArgument, "peer 3");
    is_refused(ceclWaitChunk(requests[0], 1, 3, others[0]), ceclInvalidArgument, "chunk 3: 0 to 2");
    OK(ceclStreamBeginCapture(comms[0], others[0]));
    is_refused(ceclWaitChunk(requests[0], 1, 0, others[0]), ceclInvalidUsage, "captures a graph");
    ceclGraph_t graph;
    OK(ceclStreamEndCapture(comms[0], others[0], &graph));
    OK(ceclGraphDestroy(graph));
    synchronize();
    OK(ceclGetDeviceChunks(requests[0], &dc));
    assert_true(ceclDeviceWaitChunk(dc, 1, 2));
    assert_false(ceclDeviceWaitChunk(dc, 1, 3));
    assert_false(ceclDeviceWaitChunk(dc, 1, -1));
    assert_false(ceclDeviceWaitChunk(dc, RANKS, 0));
    assert_false(ceclDeviceWaitChunk(dc, -1, 0));
    free_all(requests);
    free_all(sums);
    release(POOL, RANKS * COUNT, recv);
}

static void *wait_for_ever(void *argument)
{
    struct kernel *kernel = argument;
    kernel->chunks.timeoutNs = 0;
    kernel->came = ceclDeviceWaitChunk(kernel->chunks, 2, 1);
    return NULL;
}

/* The last test: the communicators cannot be used afterwards. */
static void waits_for_a_chunk_end_with_the_communicator(void **state)
{
    int *recv[RANKS], *send[RANKS];
    ceclRequest_t requests[RANKS];
    gather_in_place(2, send, recv, requests);
    OK(ceclStart(requests[0], streams[0]));
    OK(ceclWaitChunk(requests[0], 2, 1, others[0]));
    OK(ceclGetDeviceChunks(requests[0], &kernels[0].chunks));
    launch(&kernels[0], wait_for_ever);
    OK(ceclCommRevoke(comms[1]));
    assert_int_equal(pthread_join(kernels[0].thread, NULL), 0);
    assert_false(kernels[0].came);
    assert_int_equal(ceclStreamSynchronize(comms[0], others[0]), ceclRemoteError);
    for (int r = 0; r < RANKS; r++)
        (void)!ceclCommAbort(comms[r]);
    free_all(requests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_chunk_is_there_when_the_stream_or_kernel_goes_on),
        cmocka_unit_test(a_kernel_waits_for_one_rank_and_within_its_bound),
        cmocka_unit_test(a_part_of_one_rank_does_not_wait_for_the_others),
        cmocka_unit_test(a_gather_that_ended_long_ago_is_not_waited_for),
        cmocka_unit_test(what_has_no_chunks_is_refused),
        cmocka_unit_test(waits_for_a_chunk_end_with_the_communicator),
    };
    return cmocka_run_group_tests(tests, open_with_others, NULL);
}
