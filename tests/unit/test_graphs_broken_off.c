/* The capture of a call fails halfway, so the graph has only a part of the call. A program may launch it nevertheless: its
 * waits end, and the communicator's memory stays for as long as the graph. On the host device. */
#include "../with_cmocka.h"

#include "comm/comm.h"
#include "flags/turns.h"

#define RANKS 2
#define COUNT 100
#define PROGRAM_S 120 /* ends a test that hangs */
#include "comms_with_memory.h"

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
    for (int r = 0; r < RANKS; r++)
        OK(ceclStreamBeginCapture(comms[r], streams[r]));
    OK(ceclGroupStart());
    for (int r = 0; r < RANKS; r++)
        OK(gather(r));
    assert_int_equal(ceclGroupEnd(), ceclUnhandledCudaError);
    OK(dev->ops->capture_end(dev, streams[0], &graph));
    return graph;
}

/* Without its end the call seems to run for ever, and the communicator's end would wait for that. */
static void end_call(void)
{
    uint32_t *word = cecl_flags_word(&comms[0]->engine.flags, 0, 0, CECL_COUNTER_TURN);
    atomic_store((_Atomic uint32_t *)word, cecl_turns_word(3, 3, 1));
}

TEST_BETWEEN(a_graph_with_a_part_of_a_call_is_held_and_its_waits_end, open_with_memory, NULL)
{
    struct cecl_device *dev = comms[0]->dev;
    void *graph = capture_a_part();
    OK(dev->ops->graph_launch(dev, graph, streams[0]));
    OK(dev->ops->stream_synchronize(dev, streams[0]));
    assert_int_equal(atomic_load(&comms[0]->captured), 1);
    OK(dev->ops->graph_destroy(graph));
    assert_int_equal(atomic_load(&comms[0]->captured), 0);
    end_call();
    for (int r = 0; r < RANKS; r++)
        OK(ceclCommAbort(comms[r]));
}

int main(void)
{
    alarm(PROGRAM_S);
    return tests_run(NULL, NULL);
}
