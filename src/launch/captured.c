/* Captured calls; see launch.h. */
#include "launch/launch.h"

#include "launch/launcher.h"
#include "plan/splits.h"
#include "util/clock.h"

/* Called when the graph is gone, on any thread. */
static void graph_is_gone(void *context)
{
    struct cecl_launch *launch = context;
    ceclComm_t comm = launch->comm;
    launch->is_gone = true;
    cecl_launch_return(launch);
    atomic_fetch_sub(&comm->captured, 1); /* from here on another thread may end the communicator */
}

ceclResult_t cecl_captured_hold(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    atomic_fetch_add(&comm->captured, 1);
    launch->is_held = true;
    const ceclResult_t result =
        comm->dev->ops->graph_keep(comm->dev, &launch->capture, graph_is_gone, launch);
    if (result != ceclSuccess) {
        launch->is_held = false;
        atomic_fetch_sub(&comm->captured, 1);
        return result;
    }
    launch->next_held = comm->launcher->captured;
    comm->launcher->captured = launch;
    cecl_imports_hold(&comm->registry, &launch->imports, true);
    return ceclSuccess;
}

/* Sleeps 1 ms and returns true; returns false once the deadline has passed. Called for up to 2 s (the launcher's
 * gone_ms) while graphs hold calls: a destroyed graph holds its calls until its launches are done, and the device may
 * report their end late. */
static bool pause_until(int64_t deadline)
{
    if (cecl_ms_left(deadline) == 0)
        return false;
    cecl_pause_us(1000);
    return true;
}

uint32_t cecl_captured_await(ceclComm_t comm)
{
    const int64_t deadline = cecl_deadline(comm->launcher->gone_ms);
    while (atomic_load(&comm->captured) > 0 && pause_until(deadline))
        ;
    return atomic_load(&comm->captured);
}

static bool touches(struct cecl_buffer buffer, uint64_t needed, uint64_t offset, uint64_t bytes)
{
    return cecl_buffer_is_pool(buffer) && buffer.offset < offset + bytes &&
           offset < buffer.offset + needed;
}

/* Whether the bytes touch an array of a call by splits. Kernels of this rank and of peers use these arrays. */
static bool splits_touch(ceclComm_t comm, const struct cecl_call *call, uint64_t offset,
                         uint64_t bytes)
{
    struct cecl_splits_array arrays[CECL_SPLITS_ARRAYS];
    if (call->op->family != CECL_FAMILY_SPLITS)
        return false;
    cecl_call_splits_arrays(call, arrays);
    for (int i = 0; i < CECL_SPLITS_ARRAYS; i++)
        if (arrays[i].bytes > 0 &&
            touches(cecl_window_find(&comm->windows, cecl_call_address(call, arrays[i].word)),
                    arrays[i].bytes, offset, bytes))
            return true;
    return false;
}

static const struct cecl_call *call_with(ceclComm_t comm, uint64_t offset, uint64_t bytes)
{
    for (const struct cecl_launch *at = comm->launcher->captured; at; at = at->next_held)
        for (uint32_t i = 0; i < at->nfull; i++) {
            const struct cecl_call *call = &at->calls[i];
            if (touches(call->recv, cecl_call_recv_needed(call), offset, bytes) ||
                touches(call->send, cecl_call_send_needed(call), offset, bytes) ||
                splits_touch(comm, call, offset, bytes))
                return call;
        }
    return NULL;
}

ceclResult_t cecl_captured_check_free(ceclComm_t comm, uint64_t offset)
{
    uint64_t start, bytes;
    cecl_launch_take_returned(comm);
    if (!comm->launcher->captured || !cecl_blocks_find(&comm->pool.blocks, offset, &start, &bytes))
        return ceclSuccess;
    const int64_t deadline = cecl_deadline(comm->launcher->gone_ms);
    const struct cecl_call *call = call_with(comm, offset, bytes);
    while (call && pause_until(deadline)) {
        cecl_launch_take_returned(comm);
        call = call_with(comm, offset, bytes);
    }
    return call
               ? cecl_fail(ceclInvalidUsage,
                           "ptr %p: a graph holds a captured %s that uses this memory; destroy the "
                           "graph first, on all ranks",
                           cecl_pool_at(&comm->pool, comm->rank, offset), call->op->name)
               : ceclSuccess;
}
