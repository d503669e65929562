/* The user's own kernels synchronize with their peers' kernels through cecl_device.h. One process uses as many GPUs as
 * the first argument says (default 2). tests/multi/test_device_comm.c tests only the logic, without GPUs. */
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

#define ok(expr) \
    do { \
        if ((expr) != ceclSuccess) \
            fail_msg("%s: %s", #expr, ceclGetLastError(NULL)); \
    } while (0)

static int all_open(void **state)
{
    /* One thread makes all ranks' calls, so no call may have to wait for the pool to grow. */
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

TEST(barriers_order_writes_over_many_rounds_and_launches)
{
    begin();
    for (uint32_t launch = 0; launch < 200; launch++)
        for (int g = 0; g < ngpus; g++) {
            const int i = (g + (int)launch) % ngpus; /* in each launch another rank comes first */
            exchange(i, launch % 3 == 0 ? CECL_DEVICE_BLOCKS : 1 + (int)launch % 16,
                     launch % 5 == 0 ? 1 : THREADS, launch, launch == 100 ? 2000 : 10);
        }
    all_are_right();
}

/* After a barrier, a block's writes and reads are complete, even if copies and the blocks themselves fill the links. */
TEST(barriers_order_what_is_still_on_its_way)
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

TEST(a_captured_kernel_is_replayed)
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

TEST(signals_go_round_the_ring_in_two_launches)
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

TEST(a_barrier_ends_by_its_bound_and_ranks_get_in_step_again)
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

TEST(a_slot_out_of_range_is_false_at_once)
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

/* The last test, because it makes the communicators fail. Waits without a time limit end with their communicator. */
TEST(waits_end_when_a_rank_gives_up)
{
    begin();
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
    }
    assert_true(cecl_now_ms() - start < SOON_MS);
}

int main(int argc, char **argv)
{
    ngpus = gpus_wanted(argc, argv, MOST);
    return ngpus > 0 ? tests_run(all_open, all_close) : 77;
}
