/* The number of function calls between ceclAllGather and the device (the call path in
 * docs/architecture.md). The files on that path are compiled for this program without optimization, so no
 * function is inlined. */
#include "../with_cmocka.h"
#include <execinfo.h>

#include "comm/comm.h"

#define RANKS 2
#include "comms.h"

#define COUNT 1000
#define FRAMES_MOST 9
#define FRAMES_MOST_PRIVATE 10
#define CALLS 5 /* only the last is a warm call */

static const struct cecl_device_ops *real;
static struct cecl_device_ops watched;
static int caller, deepest, batches; /* `caller` and `deepest`: stack depths */

static int depth(void)
{
    void *frames[64];
    return backtrace(frames, 64);
}

static ceclResult_t watched_copies(struct cecl_device *dev, ceclStream_t work,
                                   const struct cecl_batch *batch)
{
    const int here = depth();
    deepest = here > deepest ? here : deepest;
    batches++;
    return real->copies(dev, work, batch);
}

static ceclResult_t watched_memops(struct cecl_device *dev, ceclStream_t work,
                                   const struct cecl_memop *ops, size_t count)
{
    const int here = depth();
    deepest = here > deepest ? here : deepest;
    return real->memops(dev, work, ops, count);
}

static uint64_t watched_stream_id(struct cecl_device *dev, ceclStream_t stream)
{
    const int here = depth();
    deepest = here > deepest ? here : deepest;
    return real->stream_id(dev, stream);
}

/* The most functions from a warm ceclAllGather in place to the device. */
static int frames_of(int *buffers[RANKS])
{
    deepest = batches = 0;
    real = comms[0]->dev->ops;
    watched = *real;
    watched.copies = watched_copies;
    watched.memops = watched_memops;
    watched.stream_id = watched_stream_id;
    for (int i = 0; i < CALLS; i++)
        for (int r = 0; r < RANKS; r++) {
            comms[r]->dev->ops = i == CALLS - 1 ? &watched : real;
            caller = depth();
            OK(ceclAllGather(buffers[r] + r * COUNT, buffers[r], COUNT, ceclInt32, comms[r], NULL));
        }
    for (int r = 0; r < RANKS; r++) {
        comms[r]->dev->ops = real;
        OK(ceclStreamSynchronize(comms[r], NULL));
    }
    print_message("%d functions from ceclAllGather to the device\n", deepest - caller);
    assert_true(batches > 0);
    assert_true(deepest - caller >= 2);
    return deepest - caller;
}

TEST(a_warm_all_gather_is_nine_functions_from_the_device)
{
    int *buffers[RANKS];
    allocate_all(buffers, RANKS * COUNT * sizeof(int));
    assert_true(frames_of(buffers) <= FRAMES_MOST);
}

/* Peers cannot reach the memory, so that bytes are copied from and to a bounce buffer. */
TEST(private_memory_takes_no_more_than_ten)
{
    static int memory[RANKS][RANKS * COUNT];
    int *buffers[RANKS] = {memory[0], memory[1]};
    assert_true(frames_of(buffers) <= FRAMES_MOST_PRIVATE);
}

TESTS_BETWEEN(open_all, close_all)
