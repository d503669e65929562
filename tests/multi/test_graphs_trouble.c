/* Graphs that are used wrongly are refused with their name. Graphs whose communicator fails end
 * within a time limit, with an error that names the rank. */
#include "multi.h"

#include <stdio.h>

#include "comm/comm.h"

#define COUNT 300

static ceclComm_t comm;
static ceclStream_t stream;
static uint32_t *recv;
static bool is_small; /* each call is one kernel */

static void open_all(void)
{
    ceclConfig_t config = multi_config();
    if (is_small)
        config.smPolicy = CECL_SM_ALLOW;
    comm = multi_comm(&config);
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    multi_ok(comm,
             ceclMemAlloc(comm, (void **)&recv, (size_t)multi_nranks * COUNT * sizeof(*recv)));
    MPI_Barrier(MPI_COMM_WORLD); /* a rank's failure must not hit another rank's join */
}

static ceclResult_t gather(void)
{
    return ceclAllGather(recv + multi_rank * COUNT, recv, COUNT, ceclUint32, comm, stream);
}

static ceclGraph_t captured(int calls)
{
    ceclGraph_t graph = NULL;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    for (int i = 0; i < calls; i++)
        multi_ok(comm, gather());
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    return graph;
}

static bool is_last(void)
{
    return multi_rank == multi_nranks - 1;
}

/* After a failure: streams end, and all resources are released. */
static void abort_all(ceclGraph_t graph)
{
    (void)!ceclStreamSynchronize(comm, stream);
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommAbort(comm));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void close_all(void)
{
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void streams_that_cannot_capture_are_refused(void **state)
{
    ceclGraph_t graph = NULL, other = NULL;
    open_all();
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
    multi_refused(comm, ceclGraphLaunch(NULL, stream), ceclInvalidArgument, "NULL");
    multi_ok(comm, ceclGraphLaunch(graph, stream)); /* the graph is empty */
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclGraphDestroy(other));
    multi_ok(comm, ceclGraphDestroy(NULL));
    close_all();
}

static void messages_are_refused_by_name(void **state)
{
    ceclGraph_t graph = NULL;
    open_all();
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm,
                  ceclSend(recv, COUNT, ceclUint32, (multi_rank + 1) % multi_nranks, comm, stream),
                  ceclInvalidUsage, "cannot be captured");
    multi_ok(comm, gather()); /* the capture is still usable */
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    close_all();
}

/* The last rank captures a call that the others make eagerly. */
static void a_call_that_others_do_not_capture_is_named(void **state)
{
    ceclGraph_t graph = NULL;
    open_all();
    if (is_last()) {
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
        const ceclResult_t made = gather(); /* a peer may have found the difference first */
        if ((made != ceclInvalidUsage && made != ceclRemoteError) ||
            !strstr(ceclGetLastError(comm), "a graph captures the call"))
            fail_msg("%d: %s", (int)made, ceclGetLastError(comm));
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    } else {
        /* ranks that do not capture may have agreed that they are late before the last rank came */
        const ceclResult_t made = gather();
        if (made == ceclSuccess)
            assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
    }
    abort_all(graph);
}

static void a_call_that_others_do_not_make_ends_in_time(void **state)
{
    ceclGraph_t graph = NULL;
    open_all();
    multi_limit(comm, 1200);
    if (is_last()) {
        multi_ok(comm, ceclStreamBeginCapture(comm, stream));
        multi_refused(comm, gather(), ceclTimeout, multi_nranks == 2 ? "rank 0" : "ranks 0");
        assert_non_null(strstr(ceclGetLastError(comm),
                               "for 1200 ms (CECL_TIMEOUT_MS); did every rank capture the call?"));
        multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    abort_all(graph);
}

/* The others' graphs wait in the middle of their launch. All ranks make the first launch. */
static void a_rank_that_does_not_launch_is_named(void **state)
{
    char words[64];
    open_all();
    ceclGraph_t graph = captured(2);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_limit(comm, 1200);
    if (!is_last()) {
        snprintf(words, sizeof(words), "has waited for rank %d", multi_nranks - 1);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        const ceclResult_t found = multi_async_within(comm, PROMPT);
        const char *message = ceclGetLastError(comm);
        /* a peer may have reported it first */
        if (found == ceclSuccess || !strstr(message, words))
            fail_msg("%d: %s", (int)found, message);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    abort_all(graph);
}

/* Whether replays that go on for longer than a time limit succeed. */
static bool replays_outlast(int limit_ms)
{
    open_all();
    ceclGraph_t graph = captured(1);
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
    abort_all(graph);
    return right;
}

/* Time in the program's own work before the call does not count as waiting. Each rank's limit is its own, so
 * two ranks are enough. A machine that stands still may exceed the first limit. */
static void many_replays_without_a_pause_are_no_timeout(void **state)
{
    if (multi_nranks <= 2)
        assert_true(replays_outlast(3000) || replays_outlast(20000));
}

static void a_peer_that_aborts_ends_replays_that_wait(void **state)
{
    open_all();
    ceclGraph_t graph = captured(3);
    for (int i = 0; i < 50; i++)
        multi_ok(comm, ceclGraphLaunch(graph, stream));
    if (is_last()) {
        abort_all(graph);
        return;
    }
    for (int i = 0; i < 50; i++) /* these calls wait for the rank that has left, or are refused */
        (void)!ceclGraphLaunch(graph, stream);
    assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
    abort_all(graph);
}

static void memory_that_a_graph_uses_is_not_freed(void **state)
{
    open_all();
    ceclGraph_t graph = captured(1);
    multi_refused(comm, ceclMemFree(comm, recv), ceclInvalidUsage,
                  "a graph holds a captured ceclAllGather");
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclMemFree(comm, recv));
    close_all();
}

static void a_communicator_that_ends_before_its_graph_says_so(void **state)
{
    open_all();
    ceclGraph_t graph = captured(2);
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_refused(NULL, ceclCommDestroy(comm), ceclInvalidUsage, "graphs hold 2 captured calls");
    multi_refused(NULL, ceclGraphLaunch(graph, stream), ceclInvalidArgument, "not a communicator");
    multi_ok(NULL, ceclGraphDestroy(graph));
}

/* The device's own functions launch the graph, as CUDA's would. Only some ranks launch, so the
 * graph's waits end only when the library ends them. */
static void a_graph_that_outlives_its_communicator_ends_by_itself(void **state)
{
    void *graph = NULL;
    open_all();
    struct cecl_device *dev = comm->dev;
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    for (int i = 0; i < 3; i++)
        multi_ok(comm, gather());
    multi_ok(comm, dev->captures->stream_end(dev, stream, &graph));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_refused(NULL, ceclCommDestroy(comm), ceclInvalidUsage, "graphs hold 3 captured calls");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4 && !is_last(); i++)
        multi_ok(NULL, dev->captures->graph_launch(dev, graph, stream));
    multi_ok(NULL, dev->ops->stream_synchronize(dev, stream));
    multi_ok(NULL, dev->captures->graph_destroy(graph));
}

/* A graph's programs, windows and imports are released with the graph. */
static void captures_leave_nothing_behind(void **state)
{
    open_all();
    multi_ok(comm, ceclGraphDestroy(captured(1)));
    const int descriptors = multi_descriptors(), mappings = multi_mappings();
    for (int i = 0; i < 300; i++) {
        ceclGraph_t graph = captured(3);
        if (i % 2)
            multi_ok(comm, ceclGraphLaunch(graph, stream));
        multi_ok(comm, ceclGraphDestroy(graph)); /* a launch may still be running */
    }
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    multi_no_growth(multi_descriptors, descriptors, 0, "descriptors");
    multi_no_growth(multi_mappings, mappings, 8, "mappings");
    multi_ok(comm, ceclMemFree(comm, recv));
    close_all();
}

static int make_small(void **state)
{
    is_small = true;
    return 0;
}

static int make_usual(void **state)
{
    is_small = false;
    return 0;
}

#define SMALL(test)                                                                                \
    {                                                                                              \
        "small: " #test, test, make_small, make_usual, NULL                                        \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_cannot_capture_are_refused),
        cmocka_unit_test(messages_are_refused_by_name),
        cmocka_unit_test(a_call_that_others_do_not_capture_is_named),
        cmocka_unit_test(a_call_that_others_do_not_make_ends_in_time),
        cmocka_unit_test(a_rank_that_does_not_launch_is_named),
        cmocka_unit_test(many_replays_without_a_pause_are_no_timeout),
        cmocka_unit_test(a_peer_that_aborts_ends_replays_that_wait),
        cmocka_unit_test(memory_that_a_graph_uses_is_not_freed),
        cmocka_unit_test(a_communicator_that_ends_before_its_graph_says_so),
        cmocka_unit_test(a_graph_that_outlives_its_communicator_ends_by_itself),
        cmocka_unit_test(captures_leave_nothing_behind),
        SMALL(a_call_that_others_do_not_make_ends_in_time),
        SMALL(a_rank_that_does_not_launch_is_named),
        SMALL(many_replays_without_a_pause_are_no_timeout),
        SMALL(a_peer_that_aborts_ends_replays_that_wait),
        SMALL(a_graph_that_outlives_its_communicator_ends_by_itself),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
