/* One thread captures calls of several ranks. In a group they are captured and replayed; outside of one, the first call
 * waits for the other ranks until the time limit. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>

#define RANKS 3
#define COUNT 100
#include "comms_with_memory.h"

static int close_with_memory(void **state)
{
    OK_EACH(ceclStreamDestroy(comms[r], streams[r]));
    return close_all(state);
}

TEST(a_group_of_all_ranks_is_captured)
{
    ceclGraph_t graphs[RANKS];
    OK_EACH(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    OK_EACH(gather(r));
    OK(ceclGroupEnd());
    OK_EACH(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
    for (uint32_t round = 1; round < 50; round++) {
        for (int r = 0; r < RANKS; r++) /* programs may write the host device's memory */
            for (uint32_t i = 0; i < COUNT; i++)
                recv[r][(uint32_t)r * COUNT + i] = round * 1000 + (uint32_t)r * 100 + i;
        OK_EACH(ceclGraphLaunch(graphs[r], streams[r]));
        finish_all(streams);
        for (int r = 0; r < RANKS; r++)
            for (uint32_t i = 0; i < RANKS * COUNT; i++)
                assert_int_equal(recv[r][i], round * 1000 + i / COUNT * 100 + i % COUNT);
    }
    OK_EACH(ceclGraphDestroy(graphs[r]));
}

/* No rank captures the receive: ceclGroupExplain asks no peer. */
TEST(a_captured_message_is_explained)
{
    ceclExplanation_t explanation;
    ceclGraph_t graph;
    OK(ceclStreamBeginCapture(comms[0], streams[0]));
    OK(ceclGroupStart());
    OK(ceclSend(recv[0], COUNT, ceclUint32, 1, comms[0], streams[0]));
    OK(ceclGroupExplain(comms[0], &explanation));
    assert_non_null(strstr(explanation.path, "1 sent"));
    assert_int_equal(explanation.copies, 1);
    OK(ceclStreamEndCapture(comms[0], streams[0], &graph));
    OK(ceclGraphDestroy(graph));
}

TEST(a_lone_call_ends_with_the_cure)
{
    ceclComm_t two[2];
    ceclStream_t stream;
    ceclGraph_t graph;
    char from[8] = {0}, to[16];
    setenv("CECL_TIMEOUT_MS", "1000", 1);
    OK(ceclCommInitAll(two, 2, NULL));
    unsetenv("CECL_TIMEOUT_MS");
    OK(ceclStreamCreate(two[0], &stream));
    OK(ceclStreamBeginCapture(two[0], stream));
    assert_int_equal(ceclAllGather(from, to, 8, ceclInt8, two[0], stream), ceclTimeout);
    assert_non_null(strstr(ceclGetLastError(NULL), "did every rank capture the call?; a thread "
                                                   "that has several ranks puts their calls into "
                                                   "one group"));
    OK(ceclStreamEndCapture(two[0], stream, &graph));
    OK(ceclGraphDestroy(graph));
    for (int r = 0; r < 2; r++)
        OK(ceclCommAbort(two[r]));
}

/* The calls of a group are carried out at the group's end. By then the capture in which they were made may be over. */
TEST(a_group_that_outlasts_its_capture_is_refused)
{
    for (int again = 0; again < 2; again++) {
        ceclGraph_t graphs[RANKS], others[RANKS] = {NULL};
        OK_EACH(ceclStreamBeginCapture(comms[r], streams[r]));
        OK(ceclGroupStart());
        OK_EACH(gather(r));
        for (int r = 0; r < RANKS; r++) {
            OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
            OK(ceclGraphDestroy(graphs[r]));
            if (again)
                OK(ceclStreamBeginCapture(comms[r], streams[r]));
        }
        bad_usage(ceclGroupEnd(), "the capture of this call has ended");
        for (int r = 0; r < RANKS && again; r++) {
            OK(ceclStreamEndCapture(comms[r], streams[r], &others[r]));
            OK(ceclGraphDestroy(others[r]));
        }
    }
    a_group_of_all_ranks_is_captured(state);
}

TEST(a_communicator_is_not_finalized_while_a_stream_captures)
{
    ceclGraph_t graph = NULL;
    OK(ceclStreamBeginCapture(comms[1], streams[1]));
    bad_usage(ceclCommFinalize(comms[1]), "captures a graph");
    OK(ceclStreamEndCapture(comms[1], streams[1], &graph));
    OK(ceclGraphDestroy(graph));
    OK(ceclCommFinalize(comms[1]));
}

/* The program may keep a handle too long. Each use of the handle is refused, whatever graphs were made since. */
TEST(a_destroyed_graph_is_refused)
{
    ceclGraph_t graphs[2];
    for (int i = 0; i < 2; i++) {
        OK(ceclStreamBeginCapture(comms[0], streams[0]));
        OK(ceclMemcpyAsync(comms[0], recv[0], recv[0] + COUNT, COUNT, streams[0]));
        OK(ceclStreamEndCapture(comms[0], streams[0], &graphs[i]));
    }
    OK(ceclGraphDestroy(graphs[0]));
    for (int i = 0; i < 2; i++) {
        bad_argument(ceclGraphLaunch(graphs[i], streams[0]), "ceclGraphLaunch: graph");
        assert_non_null(strstr(ceclGetLastError(NULL), "destroyed before?"));
        bad_argument(ceclGraphDestroy(graphs[i]), "ceclGraphDestroy: graph");
        OK(i == 0 ? ceclGraphLaunch(graphs[1], streams[0]) : ceclSuccess);
        OK(i == 0 ? ceclGraphDestroy(graphs[1]) : ceclSuccess);
    }
    OK(ceclStreamSynchronize(comms[0], streams[0]));
}

TEST(a_graph_outlives_its_communicator_and_is_refused)
{
    ceclComm_t alone;
    ceclStream_t stream;
    ceclGraph_t graph;
    char from[8] = {0}, to[8];
    OK(ceclCommInitAll(&alone, 1, NULL));
    OK(ceclStreamCreate(alone, &stream));
    OK(ceclStreamBeginCapture(alone, stream));
    OK(ceclMemcpyAsync(alone, to, from, sizeof(to), stream));
    OK(ceclStreamEndCapture(alone, stream, &graph));
    OK(ceclStreamDestroy(alone, stream));
    OK(ceclCommDestroy(alone));
    bad_usage(ceclGraphLaunch(graph, NULL), "its communicator has ended");
    OK(ceclGraphDestroy(graph));
}

TESTS_BETWEEN(open_with_memory, close_with_memory)
