/* Graphs at the end of a communicator, on the host device. A rank that ends its communicator tells its peers first, and
 * then waits for its graphs. If a capture fails halfway, its graph holds a part of a call. A program may launch this
 * graph nevertheless: then the waits in it end, and the communicator's memory lives as long as the graph. */
#include "../prompt.h"
#include "../with_cmocka.h"

#include <pthread.h>

#include "device/host.h"
#include "flags/turns.h"
#include "launch/launcher.h"

#define RANKS 2
#define COUNT 100
#include "comms_with_memory.h"

static ceclGraph_t graphs[RANKS];

static void capture(void)
{
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    open_with_memory(NULL);
    OK_EACH(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    OK_EACH(ceclBarrier(comms[r], streams[r]));
    OK(ceclGroupEnd());
    OK_EACH(ceclStreamEndCapture(comms[r], streams[r], &graphs[r]));
}

static void *end(void *argument)
{
    ceclResult_t (*ends)(ceclComm_t) = *(ceclResult_t(**)(ceclComm_t))argument;
    return ends(comms[0]) == ceclSuccess ? NULL : comms;
}

static void peers_learn_it_before_graphs_are_gone(ceclResult_t (*ends)(ceclComm_t))
{
    pthread_t thread;
    void *failed;
    capture();
    comms[0]->launcher->gone_ms = 4 * PROMPT * 1000;
    assert_int_equal(pthread_create(&thread, NULL, end, &ends), 0);
    ceclResult_t result = ceclBarrier(comms[1], streams[1]);
    if (result == ceclSuccess)
        result = ceclStreamSynchronize(comms[1], streams[1]);
    assert_int_equal(result, ceclRemoteError);
    assert_non_null(strstr(ceclGetLastError(comms[1]), "rank 0 "));
    OK_EACH(ceclGraphDestroy(graphs[r]));
    pthread_join(thread, &failed);
    assert_null(failed);
    OK(ceclCommAbort(comms[1]));
    assert_null(host_process.events);
}

TEST(an_end_is_known_before_its_graphs_are_gone)
{
    peers_learn_it_before_graphs_are_gone(ceclCommAbort);
    peers_learn_it_before_graphs_are_gone(ceclCommDestroy);
}

static ceclResult_t refuse_copies(struct cecl_device *dev, ceclStream_t stream,
                                  const struct cecl_batch *batch)
{
    return cecl_fail(ceclUnhandledCudaError, "the device refuses a copy");
}

/* Rank 0's graph has the call's first barrier, and no copy. */
static void *capture_a_part(void)
{
    static struct cecl_device_ops refusing;
    struct cecl_device *dev = comms[0]->dev;
    void *graph = NULL;
    refusing = *dev->ops;
    refusing.copies = refuse_copies;
    dev->ops = &refusing;
    OK_EACH(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    OK_EACH(gather(r));
    assert_int_equal(ceclGroupEnd(), ceclUnhandledCudaError);
    OK(dev->ops->capture_end(dev, streams[0], &graph));
    return graph;
}

/* Ends rank 0's call. Otherwise the call would seem to run for ever, and the communicator's end would wait for it. */
static void end_call(void)
{
    uint32_t *word = cecl_flags_word(&comms[0]->engine.flags, 0, 0, CECL_COUNTER_TURN);
    atomic_store((_Atomic uint32_t *)word, cecl_turns_word(3, 3, 1));
}

TEST_BETWEEN(a_graph_with_a_part_of_a_call_is_held_and_its_waits_end, open_with_memory, abort_all)
{
    struct cecl_device *dev = comms[0]->dev;
    void *graph = capture_a_part();
    OK(dev->ops->graph_launch(dev, graph, streams[0]));
    OK(dev->ops->stream_synchronize(dev, streams[0]));
    assert_int_equal(atomic_load(&comms[0]->captured), 1);
    OK(dev->ops->graph_destroy(graph));
    assert_int_equal(atomic_load(&comms[0]->captured), 0);
    end_call();
}
