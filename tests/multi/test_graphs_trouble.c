/* Errors name wrong uses of graphs. Graphs of a failed communicator end in time, and its error names the faulty rank. */
#include "multi.h"

#include <pthread.h>

#include "flags/turns.h"
#include "launch/launcher.h"

#define COUNT 300
#define LONG_S 30 /* a call takes longer than this only if it waits in vain */

static ceclComm_t comm;
static ceclStream_t stream;
static ceclGraph_t graph;
static uint32_t *recv;
static bool is_small; /* each call is one kernel */

static int open_all(void **state)
{
    ceclConfig_t config = multi_config();
    if (is_small)
        config.smPolicy = CECL_SM_ALLOW;
    comm = multi_comm(&config);
    stream = multi_stream(comm);
    recv = multi_alloc(comm, (size_t)multi_nranks * COUNT * sizeof(*recv));
    graph = NULL;
    MPI_Barrier(MPI_COMM_WORLD); /* a rank's failure must not hit another rank's join */
    return 0;
}

static int open_small(void **state)
{
    is_small = true;
    open_all(state);
    is_small = false;
    return 0;
}

static ceclResult_t gather(void)
{
    return ceclAllGather(recv + multi_rank * COUNT, recv, COUNT, ceclUint32, comm, stream);
}

static ceclGraph_t captured(int calls)
{
    ceclGraph_t made = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    for (int i = 0; i < calls; i++)
        multi_ok(comm, gather());
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &made));
    return made;
}

/* Sets how long ceclCommDestroy waits for graphs that are not destroyed. */
static void wait_for_graphs(int ms)
{
    comm->launcher->gone_ms = ms;
}

static bool is_last(void)
{
    return multi_rank == multi_nranks - 1;
}

/* After a failure: streams end, and all resources are released. */
static int abort_all(void **state)
{
    (void)!ceclStreamSynchronize(comm, stream);
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommAbort(comm));
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

static int close_all(void **state)
{
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

#define TEST_THAT_WORKS(name) TEST_BETWEEN(name, open_all, close_all)
#define TEST_THAT_FAILS(name) TEST_BETWEEN(name, open_all, abort_all)

TEST_THAT_WORKS(streams_that_cannot_capture_are_refused)
{
    ceclGraph_t other = NULL;
    multi_refused(comm, ceclStreamBeginCapture(comm, NULL), ceclInvalidUsage, "default stream");
    multi_refused(comm, ceclStreamEndCapture(comm, stream, &graph), ceclInvalidUsage,
                  "captures no graph");
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclStreamBeginCapture(comm, stream), ceclInvalidUsage, "already");
    multi_refused(comm, ceclStreamSynchronize(comm, stream), ceclInvalidUsage, "captures a graph");
    multi_refused(comm, ceclStreamEndCapture(comm, stream, NULL), ceclInvalidArgument, "NULL");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclGraphLaunch(graph, stream), ceclInvalidUsage, "captures a graph");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &other));
    multi_ok(comm, ceclGraphLaunch(graph, stream)); /* the graph is empty */
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclGraphDestroy(other));
    multi_ok(comm, ceclGraphDestroy(NULL));
}

TEST_THAT_FAILS(a_call_that_others_do_not_capture_is_named)
{
    if (is_last()) {
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
        const ceclResult_t made = gather(); /* a peer may have found the difference first */
        if ((made != ceclInvalidUsage && made != ceclRemoteError) ||
            !strstr(ceclGetLastError(comm), "a graph captures the call"))
            fail_msg("%d: %s", (int)made, ceclGetLastError(comm));
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    } else {
        /* Before the last rank came, these ranks may have agreed that the call is late: then it succeeds. */
        const ceclResult_t made = gather();
        if (made == ceclSuccess)
            assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
    }
}

TEST_THAT_FAILS(a_call_that_others_do_not_make_ends_in_time)
{
    multi_limit(comm, 300);
    if (is_last()) {
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
        multi_refused(comm, gather(), ceclTimeout, multi_nranks == 2 ? "rank 0" : "ranks 0");
        assert_non_null(strstr(ceclGetLastError(comm),
                               "for 300 ms (CECL_TIMEOUT_MS); did every rank capture the call?"));
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A launch waits inside CUDA while the stream's queue is full; on the host device the queue grows. No launch can end
 * here, because the last rank launches nothing. The time limit is made short once all others wait for that rank. */
TEST_THAT_FAILS(a_full_launch_queue_does_not_hold_up_a_failure)
{
    enum { CALLS = 50 };
    char words[64];
    ceclResult_t found = ceclSuccess;
    const int launches = multi_on_gpus(comm) ? 600 : 40;
    graph = captured(CALLS);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    if (!is_last())
        multi_ok(comm, ceclGraphLaunch(graph, stream));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_limit(comm, 3000);
    if (!is_last()) {
        for (int i = 0; i < launches && found == ceclSuccess; i++)
            found = ceclGraphLaunch(graph, stream);
        if (found == ceclSuccess)
            found = ceclStreamSynchronize(comm, stream);
        snprintf(words, sizeof(words), "has waited for rank %d", multi_nranks - 1);
        if (found == ceclSuccess || !strstr(ceclGetLastError(comm), words))
            fail_msg("%d: %s", (int)found, ceclGetLastError(comm));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Whether replays succeed if they go on for longer than the time limit. */
static bool replays_outlast(int limit_ms)
{
    open_all(NULL);
    graph = captured(1);
    multi_limit(comm, limit_ms);
    const double end = multi_seconds() + 1.5e-3 * limit_ms;
    bool right = true;
    for (int go_on = 1; go_on;) {
        for (int i = 0; i < 100 && right; i++)
            right = ceclGraphLaunch(graph, stream) == ceclSuccess;
        right = right && ceclStreamSynchronize(comm, stream) == ceclSuccess;
        right = multi_how_many(right) == multi_nranks;
        go_on = right && multi_seconds() < end;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    abort_all(NULL);
    return right;
}

/* All replays together outlast the time limit, but none alone. Each rank keeps time for itself, so two ranks are
 * enough. If the machine stands still, one replay may outlast the first limit. */
TEST(many_replays_without_a_pause_are_no_timeout)
{
    if (multi_nranks > 2)
        skip_because("2 ranks are enough");
    for (int small = 0; small < 2; small++) {
        is_small = small;
        assert_true(replays_outlast(1000) || replays_outlast(20000));
    }
    is_small = false;
}

/* Sets this rank's word to phase `j` of 3, as if its stream had come that far. */
static void show_phase(uint32_t j)
{
    uint32_t *word =
        cecl_flags_word(&comm->engine.flags, multi_rank, multi_rank, CECL_COUNTER_TURN);
    atomic_store((_Atomic uint32_t *)word, cecl_turns_word(j, 3, 1));
}

/* A call begins with a wait for the last phase of the peers' previous call. If a peer does not end its call, a rank whose
 * graph waits for that call's end names the peer; other ranks are not affected. */
TEST_THAT_FAILS(a_peer_that_does_not_end_its_call_keeps_only_graphs_waiting)
{
    graph = captured(1);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_limit(comm, 300);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_last())
        show_phase(2);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_last()) /* the last rank's own call seems to run */
        assert_int_equal(multi_async_within(comm, 1.0), ceclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == 0) {
        char words[64];
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        snprintf(words, sizeof(words), "has waited for rank %d", multi_nranks - 1);
        multi_fails(comm, words);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_last())
        show_phase(3);
}

/* A word that the stream waits for. A thread writes it a second after gate_opens. */
static uint32_t *gate;
static pthread_t opener;

static void gate_holds_stream(void)
{
    multi_ok(comm, comm->dev->ops->words_alloc(comm->dev, 1, &gate));
    const struct cecl_memop wait = {gate, 1, CECL_MEMOP_WAIT};
    multi_ok(comm, comm->dev->ops->memops(comm->dev, stream, &wait, 1));
}

static void *open_gate(void *nothing)
{
    multi_pause_ms(1000);
    comm->dev->ops->host_write(comm->dev, gate, 1, 1);
    return nothing;
}

static void gate_opens(void)
{
    assert_int_equal(pthread_create(&opener, NULL, open_gate, NULL), 0);
}

/* Once a shrink has succeeded, streams of the old communicator must not copy into peers' buffers. Here a graph has not
 * even begun when the others shrink: its stream waits for a word that a thread writes later. */
TEST_THAT_FAILS(a_shrink_waits_for_graphs_that_have_not_begun)
{
    const int last = multi_nranks - 1;
    ceclComm_t rest = NULL;
    graph = captured(3);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    if (!is_last()) {
        gate_holds_stream();
        multi_ok(NULL, ceclGraphLaunch(graph, stream));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_last()) {
        multi_ok(comm, ceclCommRevoke(comm));
    } else {
        assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
        gate_opens();
        multi_ok(comm, ceclCommShrink(comm, &last, 1, &rest, NULL));
        assert_int_equal(comm->dev->ops->event_query(comm->dev, comm->engine.order.event),
                         ceclSuccess);
        pthread_join(opener, NULL);
        multi_ok(NULL, ceclCommDestroy(rest));
        (void)!ceclStreamSynchronize(comm, stream);
        comm->dev->ops->words_free(comm->dev, gate);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST_THAT_WORKS(memory_that_a_graph_uses_is_not_freed)
{
    uint32_t *send = multi_alloc(comm, COUNT * sizeof(*send));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, ceclAllGather(send, recv, COUNT, ceclUint32, comm, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    wait_for_graphs(100);
    for (int i = 0; i < 2; i++)
        multi_refused(comm, ceclMemFree(comm, i == 0 ? recv : send), ceclInvalidUsage,
                      "a graph holds a captured ceclAllGather");
    wait_for_graphs(2000);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclMemFree(comm, recv));
}

/* The graph that uses the memory is destroyed while its launch is pending. Another graph stays. */
TEST_THAT_WORKS(memory_is_free_as_soon_as_its_own_graph_is_gone)
{
    uint32_t *former = recv;
    graph = captured(1);
    recv = multi_alloc(comm, (size_t)multi_nranks * COUNT * sizeof(*recv));
    ceclGraph_t other = captured(1);
    gate_holds_stream();
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    wait_for_graphs(1000 * LONG_S);
    gate_opens();
    const double start = multi_seconds();
    multi_ok(comm, ceclMemFree(comm, former));
    assert_true(multi_seconds() - start < LONG_S);
    pthread_join(opener, NULL);
    comm->dev->ops->words_free(comm->dev, gate);
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(other));
    multi_ok(comm, ceclMemFree(comm, recv));
}

/* ---- messages between rank 0 and the last rank */

static int other(void)
{
    return is_last() ? 0 : multi_nranks - 1;
}

static ceclResult_t message(bool sends, size_t count)
{
    return sends ? ceclSend(recv, count, ceclUint32, other(), comm, stream)
                 : ceclRecv(recv, count, ceclUint32, other(), comm, stream);
}

static bool has_message(void)
{
    return multi_rank == 0 || is_last();
}

/* Begins the capture on all ranks before the communicator fails. */
static void begin_together(void)
{
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Checks the error on a rank that sends or receives; its peer may have found the error first. */
static void assert_said(ceclResult_t made, const char *words)
{
    if (made == ceclSuccess || !strstr(ceclGetLastError(comm), words))
        fail_msg("rank %d, %d: %s", multi_rank, (int)made, ceclGetLastError(comm));
}

TEST_THAT_WORKS(messages_of_one_side_only_are_refused)
{
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, ceclGroupStart());
    for (int i = 0; i < 33; i++)
        multi_ok(comm,
                 ceclSend(recv, 1, ceclUint32, (multi_rank + 1) % multi_nranks, comm, stream));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "at most");
    multi_refused(comm, ceclSend(recv, 1, ceclUint32, multi_rank, comm, stream), ceclInvalidUsage,
                  "is the rank itself");
    multi_ok(comm, gather()); /* the capture is still usable */
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
}

TEST_THAT_FAILS(captured_messages_of_different_sizes_are_named_on_both_ranks)
{
    begin_together();
    if (has_message())
        assert_said(message(multi_rank == 0, COUNT - (size_t)is_last()),
                    "ceclSend has 1200 bytes, ceclRecv 1196");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST(a_message_that_only_one_rank_captures_is_named)
{
    for (int sends = 0; sends < 2; sends++) {
        open_all(NULL);
        if (is_last()) {
            multi_ok(comm, ceclStreamBeginCapture(comm, stream));
            assert_said(message(sends, COUNT), "a graph captures it on rank");
            multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
        } else if (multi_rank == 0 && message(!sends, COUNT) == ceclSuccess) {
            assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        abort_all(NULL);
    }
}

/* Whether both ranks say that the other one has captured a different message. */
static bool captures_that_wait_are_named(int limit_ms)
{
    bool right = true;
    open_all(NULL);
    multi_limit(comm, limit_ms);
    begin_together();
    if (has_message()) {
        right = message(true, COUNT) != ceclSuccess;
        const char *said = ceclGetLastError(comm);
        right = right &&
                strstr(said, "has not captured its ceclRecv, but waits for another message") &&
                strstr(said, "into one group (ceclGroupStart");
        if (!right)
            print_message("rank %d, limit %d ms: %s\n", multi_rank, limit_ms, said);
    }
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    right = multi_how_many(right) == multi_nranks;
    abort_all(NULL);
    return right;
}

/* The first limit may pass before both ranks have begun to wait. */
TEST(captures_that_wait_for_each_other_end_in_time)
{
    assert_true(captures_that_wait_are_named(600) || captures_that_wait_are_named(20000));
}

/* After the communicator's end the device's own functions launch a graph of 3 calls, as CUDA would. Only some ranks launch,
 * so only the library can end the graph's waits. A rank that captured no call only destroys its communicator. */
static void outlives(ceclResult_t (*call)(void), bool captures, bool launches)
{
    void *made = NULL;
    struct cecl_device *dev = comm->dev;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    for (int i = 0; i < 3 && captures; i++)
        multi_ok(comm, call());
    multi_ok(comm, dev->ops->capture_end(dev, stream, &made));
    MPI_Barrier(MPI_COMM_WORLD);
    if (!captures) { /* without captured calls the device ends with the communicator */
        multi_ok(comm, dev->ops->graph_destroy(made));
        multi_ok(NULL, ceclCommDestroy(comm));
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    wait_for_graphs(100);
    multi_refused(NULL, ceclCommDestroy(comm), ceclInvalidUsage, "graphs hold 3 captured calls");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4 && launches; i++)
        multi_ok(NULL, dev->ops->graph_launch(dev, made, stream));
    multi_ok(NULL, dev->ops->stream_synchronize(dev, stream));
    multi_ok(NULL, dev->ops->graph_destroy(made));
}

static ceclResult_t message_to_zero(void)
{
    return message(is_last(), COUNT);
}

TEST_BETWEEN(a_graph_that_outlives_its_communicator_ends_by_itself, open_all, NULL)
{
    outlives(gather, true, !is_last());
}

TEST_BETWEEN(a_graph_of_messages_outlives_its_communicator, open_all, NULL)
{
    outlives(message_to_zero, has_message(), multi_rank == 0);
}

TEST_AGAIN(a_call_that_others_do_not_make_ends_in_time, open_small, abort_all)
TEST_AGAIN(a_graph_that_outlives_its_communicator_ends_by_itself, open_small, NULL)
