/* Captured messages whose peer does not do its part: every wait is bounded, and the error names the peer. Each test
 * makes its own communicator, on the host device. */
#include "late_peers.h"

#include "flags/awaited.h"

static ceclGraph_t graph;
static char bytes[RANKS][64];

static ceclResult_t message(int rank, int peer, bool receives, ceclStream_t stream)
{
    return receives
               ? ceclRecv(bytes[rank], sizeof(bytes[rank]), ceclUint8, peer, comms[rank], stream)
               : ceclSend(bytes[rank], sizeof(bytes[rank]), ceclUint8, peer, comms[rank], stream);
}

/* Captures a message between `rank` and `peer` on both. `graph` is that of `rank`; the peer's is never launched. */
static bool is_captured(int rank, ceclStream_t stream, bool receives, int peer)
{
    ceclStream_t other;
    ceclGraph_t peers = NULL;
    return ceclStreamCreate(comms[peer], &other) == ceclSuccess &&
           ceclStreamBeginCapture(comms[rank], stream) == ceclSuccess &&
           ceclStreamBeginCapture(comms[peer], other) == ceclSuccess &&
           ceclGroupStart() == ceclSuccess &&
           message(rank, peer, receives, stream) == ceclSuccess &&
           message(peer, rank, !receives, other) == ceclSuccess && ceclGroupEnd() == ceclSuccess &&
           ceclStreamEndCapture(comms[rank], stream, &graph) == ceclSuccess &&
           ceclStreamEndCapture(comms[peer], other, &peers) == ceclSuccess &&
           ceclGraphDestroy(peers) == ceclSuccess;
}

static bool is_launched(int rank, int times, bool receives, int peer)
{
    ceclStream_t stream;
    bool is = ceclStreamCreate(comms[rank], &stream) == ceclSuccess &&
              is_captured(rank, stream, receives, peer);
    for (int i = 0; i < times && is; i++)
        is = ceclGraphLaunch(graph, stream) == ceclSuccess;
    return is;
}

static void launch(int rank, int times, bool receives, int peer)
{
    assert_true(is_launched(rank, times, receives, peer));
}

TEST_WITHIN(SOON, a_receive_that_waits_in_vain_names_the_peer)
{
    launch(0, 1, true, 1);
    expect_error(0, ceclTimeout, "a graph that was launched has waited for rank 1 for");
    assert_non_null(strstr(ceclGetLastError(comms[0]), "ceclSend has not moved the bytes"));
    OK(ceclGraphDestroy(graph));
}

/* These are not captured. */
TEST_WITHIN(SOON, of_several_messages_that_wait_the_last_call_is_named)
{
    OK(ceclGroupStart());
    for (int receives = 0; receives < 2; receives++)
        OK(message(0, 1, receives, NULL));
    OK(ceclGroupEnd());
    expect_error(0, ceclTimeout,
                 "; pending on rank 0: ceclGroupEnd; did the peer make its part of each");
}

TEST_WITHIN(SOON, a_send_that_nobody_receives_names_the_peer)
{
    launch(0, 1, false, 1);
    expect_error(0, ceclTimeout, "a graph that was launched has waited for rank 1 for");
    assert_non_null(strstr(ceclGetLastError(comms[0]), "ceclRecv has not begun"));
    OK(ceclGraphDestroy(graph));
}

TEST_OF_A_LIMIT(the_rank_at_the_end_of_the_waits_of_graphs_is_named)
{
    launch(0, 1, true, 1);
    ceclGraph_t first = graph;
    graph = NULL;
    pause_ms(limit_ms / 3); /* lets rank 0's time limit pass first */
    const bool named =
        is_launched(1, 1, true, 2) &&
        has_error(0, ceclTimeout, "a graph that was launched has waited for rank 2 for");
    OK(ceclGraphDestroy(first));
    OK(ceclGraphDestroy(graph));
    return named;
}

TEST_WITHIN(NEVER, a_graph_that_waits_for_a_rank_that_leaves_ends)
{
    launch(0, 1, true, 2);
    pause_ms(20);
    leave(2);
    expect_error(0, ceclRemoteError, "rank 2 has left, and a graph that was launched");
    OK(ceclGraphDestroy(graph));
}

/* The test stands in for rank 0's stream, which sees rank 2's word in time, but says so only after rank 2 has left. */
TEST_OF_A_LIMIT(a_rank_that_leaves_after_its_message_is_not_missed)
{
    struct cecl_flags *flags = &comms[0]->engine.flags;
    _Atomic uint32_t *hold =
        (_Atomic uint32_t *)&flags->awaited.now[cecl_awaited_at(flags, CECL_ROW_HANDED + 5, 2)];
    ceclStream_t stream;
    ceclResult_t async = ceclTimeout;
    OK(ceclStreamCreate(comms[0], &stream));
    assert_true(is_captured(0, stream, true, 2));
    OK(ceclGraphDestroy(graph));
    atomic_store(hold, cecl_handed_begun(7));
    pause_ms(limit_ms / 3);
    leave(2);
    pause_ms(100);
    atomic_store(hold, CECL_REPLAY_ENDED);
    pause_ms(limit_ms / 3);
    OK(ceclCommGetAsyncError(comms[0], &async));
    return async == ceclSuccess;
}

TEST_WITHIN(NEVER, a_graph_is_launched_while_its_communicator_fails)
{
    launch(0, 50, true, 1);
    OK(ceclCommRevoke(comms[1]));
    expect_error(0, ceclRemoteError, "rank 1");
    OK(ceclGraphDestroy(graph));
}

/* A communicator's end, abort and shrink wait for launched graphs. This graph does not begin before a gate opens. */
TEST_WITHIN(NEVER, a_graph_with_a_message_is_pending_before_it_begins)
{
    struct cecl_device *dev = comms[0]->dev;
    uint32_t *gate;
    ceclStream_t stream;
    OK(dev->ops->words_alloc(dev, 1, &gate));
    const struct cecl_memop hold = {gate, 1, CECL_MEMOP_WAIT};
    OK(ceclStreamCreate(comms[0], &stream));
    OK(dev->ops->memops(dev, stream, &hold, 1));
    assert_true(is_captured(0, stream, false, 1));
    OK(ceclGraphLaunch(graph, stream));
    assert_false(cecl_comm_is_done(comms[0]));
    OK(ceclCommRevoke(comms[0])); /* nobody receives */
    dev->ops->host_write(dev, gate, 1, 1);
    (void)!ceclStreamSynchronize(comms[0], stream);
    assert_true(cecl_comm_is_done(comms[0]));
    OK(ceclGraphDestroy(graph));
    dev->ops->words_free(dev, gate);
}

/* The thread sanitizer would take the read for a race with the copy that a released stream makes later. */
#ifdef __SANITIZE_THREAD__
#define IS_WRITTEN(byte) false
#else
#define IS_WRITTEN(byte) ((byte) != 0)
#endif

TEST_WITHIN(SOON, graphs_in_another_order_move_nothing_and_name_the_peer)
{
    static const char sent[2][8] = {"first", "second"};
    static char got[2][8];
    ceclStream_t streams[2];
    ceclGraph_t graphs[2][2]; /* [rank][message] */
    for (int r = 0; r < 2; r++)
        OK(ceclStreamCreate(comms[r], &streams[r]));
    memset(got, 0, sizeof(got));
    for (int m = 0; m < 2; m++) {
        for (int r = 0; r < 2; r++)
            OK(ceclStreamBeginCapture(comms[r], streams[r]));
        OK(ceclGroupStart());
        OK(ceclSend(sent[m], 8, ceclUint8, 1, comms[0], streams[0]));
        OK(ceclRecv(got[m], 8, ceclUint8, 0, comms[1], streams[1]));
        OK(ceclGroupEnd());
        for (int r = 0; r < 2; r++)
            OK(ceclStreamEndCapture(comms[r], streams[r], &graphs[r][m]));
    }
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < 2; r++)
            OK(ceclGraphLaunch(graphs[r][r == 0 ? m : 1 - m], streams[r]));
    bool touched = false, is = false;
    ceclResult_t async[2] = {ceclSuccess, ceclSuccess};
    while (async[0] == ceclSuccess && async[1] == ceclSuccess) {
        touched = is; /* a look counts only if no rank has failed right after it */
        is = IS_WRITTEN(got[0][0]) || IS_WRITTEN(got[1][0]);
        for (int r = 0; r < 2; r++)
            OK(ceclCommGetAsyncError(comms[r], &async[r]));
        pause_ms(1);
    }
    assert_false(touched);
    const int first = async[0] == ceclTimeout ? 0 : 1; /* the other rank may repeat this error */
    expect_error(first, ceclTimeout, first == 0 ? "waited for rank 1" : "waited for rank 0");
    for (int i = 0; i < 4; i++)
        OK(ceclGraphDestroy(graphs[i / 2][i % 2]));
}
