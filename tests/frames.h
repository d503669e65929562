/* Counts the function calls between a call of the program and the device. `watched`: a device's functions, which note
 * how deep their stack is. */
#ifndef CECL_TESTS_FRAMES_H
#define CECL_TESTS_FRAMES_H

#include <execinfo.h>

#include "comm/comm.h"

static const struct cecl_device_ops *real;
static struct cecl_device_ops watched;
static _Thread_local int deepest, batches; /* deepest: in stack frames */

static int depth(void)
{
    void *frames[64];
    return backtrace(frames, 64);
}

static void note_depth(void)
{
    const int here = depth() - 1;
    deepest = here > deepest ? here : deepest;
}

static ceclResult_t watched_copies(struct cecl_device *dev, ceclStream_t work,
                                   const struct cecl_batch *batch)
{
    note_depth();
    batches++;
    return real->copies(dev, work, batch);
}

static ceclResult_t watched_memops(struct cecl_device *dev, ceclStream_t work,
                                   const struct cecl_memop *ops, size_t count)
{
    note_depth();
    return real->memops(dev, work, ops, count);
}

static uint64_t watched_stream_id(struct cecl_device *dev, ceclStream_t stream)
{
    note_depth();
    return real->stream_id(dev, stream);
}

static void watch(const struct cecl_device_ops *ops)
{
    real = ops;
    watched = *ops;
    watched.copies = watched_copies;
    watched.memops = watched_memops;
    watched.stream_id = watched_stream_id;
}

#endif
