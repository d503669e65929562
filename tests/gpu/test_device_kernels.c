/* The user's own kernels synchronize with their peers' kernels through cecl_device.h. One process
 * uses as many GPUs as the first argument says (default 2). tests/multi tests only the logic,
 * without GPUs. */
#include "cuda_fixture.h"

#include <cecl/cecl.h>

#include "device_kernels.h"

#define MOST 16
#define THREADS 128

static int ngpus = 2;
static ceclComm_t comms[MOST];
static ceclDeviceComm_t dcs[MOST];
static cudaStream_t streams[MOST];
static uint32_t *words[MOST];   /* [CECL_DEVICE_BLOCKS][ngpus][THREADS] symmetric */
static uint32_t *results[MOST]; /* pinned: wrong, ended, came */

/* Of gathers beside a kernel that runs. */
#define WORDS (1 << 20) /* of a rank's block: 4 MiB */
#define PARTS 8
#define KERNEL_BLOCKS 24

static struct parts parts[MOST];
static ceclRequest_t requests[PARTS][MOST];
static cudaStream_t calls[MOST]; /* of starts */
static uint32_t *counted[MOST];  /* the words for which starts wait */

#define ok(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != ceclSuccess)                                                                 \
            fail_msg("%s: %s", #expr, ceclGetLastError(NULL));                                     \
    } while (0)

static int all_open(void **state)
{
    /* One thread makes all ranks' calls, so no call may wait for the pool to grow. */
    setenv("CECL_SEGMENT_BYTES", "256M", 1);
    setenv("CECL_DEVICE", "cuda", 1);
    setenv("CECL_TIMEOUT_MS", "20000", 1);
    ok(ceclCommInitAll(comms, ngpus, NULL));
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(kernels_load());
        must_cuda(cudaStreamCreateWithFlags(&streams[g], cudaStreamNonBlocking));
        must_cuda(cudaHostAlloc((void **)&results[g], 4096, cudaHostAllocPortable));
        ok(ceclMemAlloc(comms[g], (void **)&words[g],
                        (size_t)CECL_DEVICE_BLOCKS * (size_t)ngpus * THREADS * 4));
        ok(ceclCommGetDeviceComm(comms[g], &dcs[g]));
    }
    return 0;
}

static int all_close(void **state)
{
    for (int g = 0; g < ngpus; g++) {
        cudaSetDevice(g);
        (void)!ceclRequestFree(requests[0][g]); /* of the last test */
        cudaStreamDestroy(streams[g]);
        cudaFreeHost(results[g]);
        ceclCommDestroy(comms[g]);
    }
    return 0;
}

static void begin(void)
{
    for (int g = 0; g < ngpus; g++)
        memset(results[g], 0, 4096);
}

static void all_are_right(void)
{
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(streams[g]));
    }
    for (int g = 0; g < ngpus; g++)
        if (results[g][0] || results[g][1])
            fail_msg("rank %d: %u words are wrong, %u waits ended early", g, results[g][0],
                     results[g][1]);
}

static void exchange(int g, int blocks, int threads, uint32_t seed, int rounds)
{
    must_cuda(cudaSetDevice(g));
    must_cuda(launch_exchange(dcs[g], blocks, threads, words[g], seed, rounds, &results[g][0],
                              &results[g][1], streams[g]));
}

static void barriers_order_writes_over_many_rounds_and_launches(void **state)
{
    begin();
    for (uint32_t launch = 0; launch < 200; launch++)
        for (int g = 0; g < ngpus; g++) {
            const int i = (g + (int)launch) % ngpus; /* the first rank changes */
            exchange(i, launch % 3 == 0 ? CECL_DEVICE_BLOCKS : 1 + (int)launch % 16,
                     launch % 5 == 0 ? 1 : THREADS, launch, launch == 100 ? 2000 : 10);
        }
    all_are_right();
}

/* After a barrier, all writes and reads of a block's threads are complete, however slow they are:
 * copies fill the links, and so do the blocks themselves. */
static void barriers_order_what_is_still_on_its_way(void **state)
{
    const int threads = 512, rounds = 3000;
    const size_t bytes = 2 * RUSHED * (size_t)CECL_DEVICE_BLOCKS * (size_t)threads * 4;
    uint32_t *rushed[MOST];
    struct crowd crowd;
    begin();
    crowd_open(&crowd, ngpus);
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        ok(ceclMemAlloc(comms[g], (void **)&rushed[g], bytes));
        must_cuda(cudaMemset(rushed[g], 0, bytes));
        must_cuda(cudaDeviceSynchronize());
    }
    crowd_come(&crowd, 2);
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(launch_rush(dcs[g], CECL_DEVICE_BLOCKS, threads, rushed[g], rounds,
                              &results[g][0], &results[g][1], streams[g]));
    }
    while (cudaStreamQuery(streams[0]) == cudaErrorNotReady) {
        crowd_come(&crowd, 4);
        must_cuda(cudaStreamSynchronize(crowd.streams[0]));
    }
    all_are_right();
    crowd_close(&crowd);
    for (int g = 0; g < ngpus; g++)
        ok(ceclMemFree(comms[g], rushed[g]));
}

static void a_captured_kernel_is_replayed(void **state)
{
    cudaGraphExec_t graphs[MOST];
    begin();
    for (int g = 0; g < ngpus; g++) {
        cudaGraph_t graph;
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamBeginCapture(streams[g], cudaStreamCaptureModeThreadLocal));
        exchange(g, 8, THREADS, 7, 4);
        exchange(g, 3, THREADS, 8, 5);
        must_cuda(cudaStreamEndCapture(streams[g], &graph));
        must_cuda(cudaGraphInstantiate(&graphs[g], graph, 0));
        must_cuda(cudaGraphUpload(graphs[g], streams[g]));
        must_cuda(cudaGraphDestroy(graph));
    }
    for (int replay = 0; replay < 50; replay++)
        for (int g = 0; g < ngpus; g++) {
            must_cuda(cudaSetDevice(g));
            must_cuda(cudaGraphLaunch(graphs[g], streams[g]));
        }
    all_are_right();
    for (int g = 0; g < ngpus; g++)
        must_cuda(cudaGraphExecDestroy(graphs[g]));
}

static void signals_go_round_the_ring_in_two_launches(void **state)
{
    begin();
    for (uint32_t first = 1; first <= 501; first += 500)
        for (int g = 0; g < ngpus; g++) {
            must_cuda(cudaSetDevice(g));
            must_cuda(launch_ring(dcs[g], CECL_DEVICE_SIGNALS - 1, first, first + 499, words[g],
                                  &results[g][0], &results[g][1], streams[g]));
        }
    all_are_right();
}

/* Rank 0 is late for the barrier's time limit; when it comes, all ranks are in step again. */
static void a_barrier_ends_by_its_bound_and_ranks_get_in_step_again(void **state)
{
    const int slot = 5;
    begin();
    for (int g = 1; g < ngpus; g++) {
        ceclDeviceComm_t hasty = dcs[g];
        hasty.timeoutNs = 50000000;
        must_cuda(cudaSetDevice(g));
        results[g][2] = 77;
        must_cuda(launch_barrier(hasty, slot, (int *)&results[g][2], streams[g]));
    }
    for (int g = 1; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(streams[g]));
        assert_int_equal(results[g][2], 0);
    }
    must_cuda(cudaSetDevice(0));
    must_cuda(launch_barrier(dcs[0], slot, (int *)&results[0][2], streams[0]));
    must_cuda(cudaStreamSynchronize(streams[0]));
    assert_int_equal(results[0][2], 1);
    for (int g = 0; g < ngpus; g++)
        exchange(g, 16, THREADS, 99, 20);
    all_are_right();
}

static void a_slot_out_of_range_is_false_at_once(void **state)
{
    const int slots[] = {-1, CECL_DEVICE_BLOCKS};
    for (int i = 0; i < 2; i++) {
        results[0][2] = 77;
        must_cuda(cudaSetDevice(0));
        must_cuda(launch_barrier(dcs[0], slots[i], (int *)&results[0][2], streams[0]));
        must_cuda(cudaStreamSynchronize(streams[0]));
        assert_int_equal(results[0][2], 0);
    }
}

/* ---- gathers beside a kernel that runs */

/* Makes `count` requests of gathers in place: of all parts, or of one part in `chunks`. */
static void gathers_open(int count, int chunks)
{
    const size_t each = WORDS / (size_t)count;
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamCreateWithFlags(&calls[g], cudaStreamNonBlocking));
        must_cuda(cudaMalloc((void **)&counted[g], sizeof(uint32_t)));
        must_cuda(cudaMemset(counted[g], 0, sizeof(uint32_t)));
        parts[g] = (struct parts){.rank = g, .nranks = ngpus, .count = count, .each = each};
        ok(ceclMemAlloc(comms[g], (void **)&parts[g].recv, (size_t)ngpus * WORDS * 4));
        must_cuda(cudaDeviceSynchronize());
    }
    for (int part = 0; part < count; part++)
        for (int g = 0; g < ngpus; g++) {
            uint32_t *recv = parts[g].recv + (size_t)(part * ngpus) * each;
            must_cuda(cudaSetDevice(g));
            ok(ceclAllGatherChunksInit(recv + (size_t)g * each, recv, each, chunks, ceclUint32,
                                       comms[g], &requests[part][g]));
        }
}

static void gathers_close(void)
{
    for (int g = 0; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(calls[g]));
        for (int part = 0; part < parts[g].count; part++)
            ok(ceclRequestFree(requests[part][g]));
        ok(ceclMemFree(comms[g], parts[g].recv));
        must_cuda(cudaStreamDestroy(calls[g]));
        must_cuda(cudaFree(counted[g]));
    }
}

/* Each kernel but the last rank's begins to wait before all ranks have started. */
static void a_kernel_reads_each_chunk_as_it_comes(void **state)
{
    begin();
    gathers_open(1, PARTS);
    for (uint32_t round = 0; round < 200; round++) {
        for (int g = 0; g < ngpus; g++) {
            ceclDeviceChunks_t chunks;
            must_cuda(cudaSetDevice(g));
            must_cuda(launch_produce(parts[g], KERNEL_BLOCKS, round, NULL, NULL, NULL, calls[g]));
            ok(ceclStart(requests[0][g], calls[g]));
            ok(ceclGetDeviceChunks(requests[0][g], &chunks));
            must_cuda(launch_read_chunks(chunks, KERNEL_BLOCKS, parts[g].recv, WORDS, round,
                                         &results[g][0], &results[g][1], streams[g]));
        }
        all_are_right();
        for (int g = 0; g < ngpus; g++)
            must_cuda(cudaStreamSynchronize(calls[g]));
    }
    gathers_close();
}

static void start_parts(int g, uint32_t round)
{
    results[g][2] = 0;
    must_cuda(cudaSetDevice(g));
    must_cuda(launch_produce(parts[g], KERNEL_BLOCKS, round * PARTS, counted[g], &results[g][2],
                             &results[g][1], streams[g]));
    for (uint32_t part = 0; part < PARTS; part++)
        ok(ceclStartOnSignal(requests[part][g], counted[g],
                             (round * PARTS + part + 1) * KERNEL_BLOCKS, calls[g]));
    must_cuda(launch_check_parts(parts[g], round * PARTS, &results[g][0], calls[g]));
}

/* All parts are gathered and checked while the kernel that wrote them still runs. */
static void parts_are_sent_while_their_kernel_runs(void **state)
{
    begin();
    gathers_open(PARTS, 1);
    for (uint32_t round = 0; round < 200; round++) {
        for (int g = 0; g < ngpus; g++)
            start_parts(g, round);
        for (int g = 0; g < ngpus; g++) {
            must_cuda(cudaSetDevice(g));
            must_cuda(cudaStreamSynchronize(calls[g]));
            assert_int_equal(cudaStreamQuery(streams[g]), cudaErrorNotReady);
        }
        for (int g = 0; g < ngpus; g++)
            *(volatile uint32_t *)&results[g][2] = 1;
        all_are_right();
    }
    gathers_close();
}

static void a_word_in_memory_of_the_host_is_refused(void **state)
{
    uint32_t word = 0;
    gathers_open(1, 1);
    must_cuda(cudaSetDevice(0));
    assert_int_equal(ceclStartOnSignal(requests[0][0], results[0], 1, calls[0]),
                     ceclInvalidArgument);
    assert_non_null(strstr(ceclGetLastError(NULL), "pinned host memory"));
    assert_int_equal(ceclStartOnSignal(requests[0][0], &word, 1, calls[0]), ceclInvalidArgument);
    assert_int_equal(ceclStartOnSignal(requests[0][0], counted[1], 1, calls[0]),
                     ceclInvalidArgument);
    assert_non_null(strstr(ceclGetLastError(NULL), "memory of GPU 1"));
    gathers_close();
}

/* The last test, because it makes the communicators fail. Waits have no time limit, and end with
 * their communicator: of kernels, and of starts for a word that no kernel counts up. */
static void waits_end_when_a_rank_gives_up(void **state)
{
    begin();
    gathers_open(1, 1);
    for (int g = 1; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        ok(ceclStart(requests[0][g], calls[g]));
    }
    must_cuda(cudaSetDevice(0));
    ok(ceclStart(requests[0][0], calls[0]));
    for (int g = 0; g < ngpus; g++)
        must_cuda(cudaStreamSynchronize(calls[g]));
    for (int g = 1; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        ok(ceclStartOnSignal(requests[0][g], counted[g], 1, calls[g]));
    }
    const int64_t start = cecl_now_ms();
    for (int g = 1; g < ngpus; g++) {
        ceclDeviceComm_t patient = dcs[g];
        patient.timeoutNs = 0;
        must_cuda(cudaSetDevice(g));
        results[g][2] = 77;
        must_cuda(launch_barrier(patient, 0, (int *)&results[g][2], streams[g]));
    }
    must_cuda(cudaSetDevice(0));
    ok(ceclCommAbort(comms[0]));
    for (int g = 1; g < ngpus; g++) {
        must_cuda(cudaSetDevice(g));
        must_cuda(cudaStreamSynchronize(streams[g]));
        assert_int_equal(results[g][2], 0);
        must_cuda(cudaStreamSynchronize(calls[g]));
    }
    assert_true(cecl_now_ms() - start < SOON_MS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_writes_over_many_rounds_and_launches),
        cmocka_unit_test(barriers_order_what_is_still_on_its_way),
        cmocka_unit_test(a_captured_kernel_is_replayed),
        cmocka_unit_test(signals_go_round_the_ring_in_two_launches),
        cmocka_unit_test(a_barrier_ends_by_its_bound_and_ranks_get_in_step_again),
        cmocka_unit_test(a_slot_out_of_range_is_false_at_once),
        cmocka_unit_test(a_kernel_reads_each_chunk_as_it_comes),
        cmocka_unit_test(parts_are_sent_while_their_kernel_runs),
        cmocka_unit_test(a_word_in_memory_of_the_host_is_refused),
        cmocka_unit_test(waits_end_when_a_rank_gives_up),
    };
    int count = 0;
    const int skipped = fixture_start();
    if (skipped)
        return skipped;
    ngpus = argc > 1 ? atoi(argv[1]) : 2;
    if (cudaGetDeviceCount(&count) != cudaSuccess || ngpus < 2 || ngpus > MOST || count < ngpus) {
        printf("skipped: %d GPUs are needed, %d are here\n", ngpus, count);
        return 77;
    }
    return cmocka_run_group_tests(tests, all_open, all_close);
}
