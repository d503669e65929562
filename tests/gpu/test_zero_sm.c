/* What only a communicator on GPUs can show: which calls finish while every SM is held (more of them in bench/cecl_zerosm
 * and its test zero_sm_cases), and that nothing leaks. One process has one rank for each GPU. A single thread makes all
 * calls, because none of them blocks the host. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <time.h>

#include "hold_sms.h"

#define MAX_GPUS 8

static size_t block = (size_t)2 << 20; /* bytes; too large for a small call */
static int gpus;
static ceclComm_t comms[MAX_GPUS];
static ceclStream_t streams[MAX_GPUS];
static unsigned char *recv_buffer[MAX_GPUS], *send_buffer[MAX_GPUS];
static struct hold_sms *holds[MAX_GPUS];

#define OK(expr) \
    do { \
        if ((expr) != ceclSuccess) \
            fail_msg("%s: %s", #expr, ceclGetLastError(NULL)); \
    } while (0)

static void open_all(const char *policy)
{
    assert_int_equal(cudaGetDeviceCount(&gpus), cudaSuccess);
    gpus = gpus > MAX_GPUS ? MAX_GPUS : gpus;
    setenv("CECL_SM_POLICY", policy, 1);
    OK(ceclCommInitAll(comms, gpus, NULL));
    unsetenv("CECL_SM_POLICY");
    for (int g = 0; g < gpus; g++)
        OK(ceclStreamCreate(comms[g], &streams[g]));
    OK(ceclGroupStart());
    for (int g = 0; g < gpus; g++) {
        OK(ceclMemAlloc(comms[g], (void **)&recv_buffer[g], block * (size_t)gpus));
        OK(ceclMemAlloc(comms[g], (void **)&send_buffer[g], block * (size_t)gpus));
    }
    OK(ceclGroupEnd());
}

static void close_all(void)
{
    for (int g = 0; g < gpus; g++) {
        OK(ceclStreamDestroy(comms[g], streams[g]));
        OK(ceclCommDestroy(comms[g]));
    }
}

/* A collective of these tests. Only the all-gather is in place. */
struct shape {
    ceclOp_t op;
    bool in_place;
};
static const struct shape gather_in_place = {ceclOpAllGather, true};
static const struct shape exchange_out_of_place = {ceclOpAlltoAll, false};

/* Where rank g's input lies, and its number of blocks. */
static unsigned char *input_of(const struct shape *shape, int g)
{
    return shape->in_place ? recv_buffer[g] + (size_t)g * block : send_buffer[g];
}

static int blocks_of(const struct shape *shape)
{
    return shape->op == ceclOpAllGather ? 1 : gpus;
}

static unsigned char byte_of(int rank, size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u + (unsigned)rank * 40503u + seed) >> 7);
}

static void fill(const struct shape *shape, unsigned seed)
{
    const size_t bytes = block * (size_t)blocks_of(shape);
    unsigned char *host = malloc(block * (size_t)gpus);
    assert_non_null(host);
    for (int g = 0; g < gpus; g++) {
        memset(host, 0xA5, block * (size_t)gpus);
        OK(ceclMemcpyAsync(comms[g], recv_buffer[g], host, block * (size_t)gpus, streams[g]));
        OK(ceclStreamSynchronize(comms[g], streams[g]));
        for (size_t i = 0; i < bytes; i++)
            host[i] = byte_of(g, i, seed);
        OK(ceclMemcpyAsync(comms[g], input_of(shape, g), host, bytes, streams[g]));
        OK(ceclStreamSynchronize(comms[g], streams[g]));
    }
    free(host);
}

static void check(const struct shape *shape, unsigned seed)
{
    unsigned char *host = malloc(block * (size_t)gpus);
    assert_non_null(host);
    for (int g = 0; g < gpus; g++) {
        const size_t from = shape->op == ceclOpAllGather ? 0 : (size_t)g * block;
        OK(ceclMemcpyAsync(comms[g], host, recv_buffer[g], block * (size_t)gpus, streams[g]));
        OK(ceclStreamSynchronize(comms[g], streams[g]));
        for (int r = 0; r < gpus; r++)
            for (size_t i = 0; i < block; i++)
                if (host[(size_t)r * block + i] != byte_of(r, from + i, seed))
                    fail_msg("GPU %d: byte %zu of rank %d is wrong", g, i, r);
    }
    free(host);
}

static void hold_all(void)
{
    for (int g = 0; g < gpus; g++) {
        assert_int_equal(cudaSetDevice(g), cudaSuccess);
        holds[g] = hold_sms_start();
        assert_non_null(holds[g]);
    }
}

static bool all_held(void)
{
    for (int g = 0; g < gpus; g++)
        if (!hold_sms_held(holds[g]))
            return false;
    return true;
}

static void let_go(void)
{
    for (int g = 0; g < gpus; g++) {
        assert_int_equal(cudaSetDevice(g), cudaSuccess);
        hold_sms_stop(holds[g]);
    }
}

static bool done_within(int ms)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int tries = 0; tries < ms; tries++) {
        int done = 0;
        for (int g = 0; g < gpus; g++) {
            cudaSetDevice(g);
            done += cudaStreamQuery(streams[g]) == cudaSuccess;
        }
        if (done == gpus)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

static void call_all(const struct shape *shape)
{
    for (int g = 0; g < gpus; g++)
        OK(shape->op == ceclOpAllGather ? ceclAllGather(input_of(shape, g), recv_buffer[g], block,
                                                        ceclUint8, comms[g], streams[g])
                                        : ceclAlltoAll(input_of(shape, g), recv_buffer[g], block,
                                                       ceclUint8, comms[g], streams[g]));
}

static ceclExplanation_t explain(const struct shape *shape)
{
    ceclExplanation_t e = {.zeroSm = -1};
    OK(ceclExplain(shape->op, input_of(shape, 0), recv_buffer[0], block, ceclUint8, comms[0], &e));
    return e;
}

/* The counter-test: a call waits for an SM if its explanation says that it needs one. Without that, cecl_zerosm would
 * prove nothing. If this test fails, the driver runs local copies on a copy engine: see docs/decisions/0003. */
TEST(local_copies_wait_for_an_sm)
{
    const struct shape *shape = &exchange_out_of_place;
    open_all("allow");
    const ceclExplanation_t explained = explain(shape);
    assert_int_equal(explained.localCopies, 1);
    fill(shape, 23);
    hold_all();
    call_all(shape);
    const bool early = done_within(500), held = all_held();
    let_go();
    assert_true(held);
    const bool after = done_within(3000);
    assert_true(after);
    check(shape, 23);
    close_all();
    assert_int_equal(explained.zeroSm, 0);
    assert_false(early);
}

TEST(a_barrier_needs_no_sm)
{
    open_all("never");
    hold_all();
    for (int g = 0; g < gpus; g++)
        OK(ceclBarrier(comms[g], streams[g]));
    const bool early = done_within(500), held = all_held();
    let_go();
    close_all();
    assert_true(held);
    assert_true(early);
}

static ceclWindow_t windows[MAX_GPUS];

static void *share(void *argument)
{
    const int g = (int)(intptr_t)argument;
    if (ceclWindowShare(comms[g], recv_buffer[g], block * (size_t)gpus, &windows[g]) != ceclSuccess)
        fprintf(stderr, "GPU %d: %s\n", g, ceclGetLastError(NULL));
    return NULL;
}

/* Shares a window on each rank. Each needs a thread, because a rank that shares its window waits for the others. */
static void share_all(void)
{
    pthread_t threads[MAX_GPUS];
    memset(windows, 0, sizeof(windows));
    for (int g = 0; g < gpus; g++)
        assert_int_equal(pthread_create(&threads[g], NULL, share, (void *)(intptr_t)g), 0);
    for (int g = 0; g < gpus; g++)
        pthread_join(threads[g], NULL);
    for (int g = 0; g < gpus; g++)
        assert_non_null(windows[g]);
}

static void put_from(int g)
{
    for (int to = 0; to < gpus; to++)
        if (to != g)
            OK(ceclPutSignal(recv_buffer[g] + (size_t)g * block, block, ceclUint8, to, windows[g],
                             (size_t)g * block, 3, comms[g], streams[g]));
}

/* GPU g waits for the blocks of all others, and gets the next GPU's block by ceclGet. */
static void take_at(int g)
{
    const int next = (g + 1) % gpus;
    for (int from = 0; from < gpus; from++) {
        const ceclSignalWait_t wait = {from, 3, 1};
        if (from != g)
            OK(ceclWaitSignal(1, &wait, comms[g], streams[g]));
    }
    OK(ceclGet(send_buffer[g], block, ceclUint8, next, windows[g], (size_t)next * block, comms[g],
               streams[g]));
}

static void put_all(void)
{
    for (int g = 0; g < gpus; g++)
        put_from(g);
    for (int g = 0; g < gpus; g++)
        take_at(g);
}

static void check_got(unsigned seed)
{
    unsigned char *host = malloc(block);
    assert_non_null(host);
    for (int g = 0; g < gpus; g++) {
        OK(ceclMemcpyAsync(comms[g], host, send_buffer[g], block, streams[g]));
        OK(ceclStreamSynchronize(comms[g], streams[g]));
        for (size_t i = 0; i < block; i++)
            if (host[i] != byte_of((g + 1) % gpus, i, seed))
                fail_msg("GPU %d: byte %zu of its get is wrong", g, i);
    }
    free(host);
}

TEST(puts_gets_and_signals_need_no_sm)
{
    open_all("never");
    share_all();
    fill(&gather_in_place, 31);
    put_all(); /* once before, so that all setup is done when SMs are held */
    check(&gather_in_place, 31);
    fill(&gather_in_place, 32);
    hold_all();
    put_all();
    const bool early = done_within(500), held = all_held();
    let_go();
    assert_true(held);
    assert_true(early);
    check(&gather_in_place, 32);
    check_got(32);
    close_all();
}

static void begin_capture(int g)
{
    assert_int_equal(cudaSetDevice(g), cudaSuccess);
    assert_int_equal(cudaStreamBeginCapture(streams[g], cudaStreamCaptureModeThreadLocal),
                     cudaSuccess);
}

static cudaGraph_t end_capture(int g)
{
    cudaGraph_t captured;
    assert_int_equal(cudaSetDevice(g), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(streams[g], &captured), cudaSuccess);
    return captured;
}

/* CUDA refuses to instantiate a graph while the thread captures on any GPU. */
static cudaGraphExec_t instantiate(int g, cudaGraph_t captured)
{
    cudaGraphExec_t graph;
    assert_int_equal(cudaSetDevice(g), cudaSuccess);
    assert_int_equal(cudaGraphInstantiate(&graph, captured, 0), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(captured), cudaSuccess);
    return graph;
}

/* Each GPU's stream captures its rank's call. One thread makes all calls, in a group. */
static void capture_calls(const struct shape *shape, cudaGraphExec_t graphs[MAX_GPUS])
{
    cudaGraph_t captured[MAX_GPUS];
    for (int g = 0; g < gpus; g++)
        begin_capture(g);
    OK(ceclGroupStart());
    call_all(shape);
    OK(ceclGroupEnd());
    for (int g = 0; g < gpus; g++)
        captured[g] = end_capture(g);
    for (int g = 0; g < gpus; g++)
        graphs[g] = instantiate(g, captured[g]);
}

static void launch_graphs(const cudaGraphExec_t graphs[MAX_GPUS])
{
    for (int g = 0; g < gpus; g++) {
        cudaSetDevice(g);
        assert_int_equal(cudaGraphLaunch(graphs[g], streams[g]), cudaSuccess);
    }
}

static void each_launch_needs_no_sm(const struct shape *shape)
{
    cudaGraphExec_t graphs[MAX_GPUS];
    open_all("never");
    capture_calls(shape, graphs);
    fill(shape, 5);
    launch_graphs(graphs); /* the first launch uploads the graph, which may need an SM */
    check(shape, 5);
    for (unsigned seed = 6; seed < 8; seed++) {
        fill(shape, seed);
        hold_all();
        launch_graphs(graphs);
        const bool early = done_within(3000), held = all_held();
        let_go();
        assert_true(done_within(3000));
        check(shape, seed);
        assert_true(held);
        assert_true(early);
    }
    for (int g = 0; g < gpus; g++)
        assert_int_equal(cudaGraphExecDestroy(graphs[g]), cudaSuccess);
    fill(shape, 8);
    call_all(shape); /* the communicators can still be used */
    check(shape, 8);
    close_all();
}

TEST(a_captured_gather_is_zero_sm_in_each_launch)
{
    each_launch_needs_no_sm(&gather_in_place);
}

/* The copies of a large batch are two chains of the graph. */
TEST(a_captured_call_with_large_batches_is_zero_sm_in_each_launch)
{
    const size_t before = block;
    block = (size_t)16 << 20;
    each_launch_needs_no_sm(&exchange_out_of_place);
    block = before;
}

TEST(communicators_leak_no_gpu_memory)
{
    size_t before = 0, after = 0, all = 0;
    for (int i = 0; i < 12; i++) {
        open_all("reduce_only");
        close_all();
        cudaSetDevice(0);
        assert_int_equal(cudaMemGetInfo(i == 1 ? &before : &after, &all), cudaSuccess);
    }
    if (after + ((size_t)4 << 20) < before)
        fail_msg("%zu bytes of GPU memory were lost in 10 cycles", before - after);
}

int main(void)
{
    setenv("CECL_DEVICE", "cuda", 1);
    return tests_run(NULL, NULL);
}
