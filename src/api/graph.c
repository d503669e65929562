/* The public functions for graphs, on GPUs and on the host device. */
#include "comm/comm.h"
#include "util/handles.h"

#define GRAPH_MAGIC 0x63656367u

struct ceclGraph {
    struct cecl_handle handle;
    uint32_t magic;
    ceclComm_t comm;
    const struct cecl_device_ops *ops;
    void *graph; /* the device's own handle for this graph */
};

static struct cecl_handles handles = CECL_HANDLES(0);

static ceclResult_t check_handle(ceclGraph_t graph)
{
    return graph->magic == GRAPH_MAGIC
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument, "graph %p: not a graph (destroyed before?)",
                           (void *)graph);
}

CECL_API ceclResult_t ceclStreamBeginCapture(ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    return comm->dev->ops->capture_begin(comm->dev, stream);
}

CECL_API ceclResult_t ceclStreamEndCapture(ceclComm_t comm, ceclStream_t stream, ceclGraph_t *graph)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm)); /* even a failed communicator's captures can be ended */
    CECL_TRY(cecl_check_given("graph", graph));
    ceclGraph_t made = cecl_handle_new(&handles, sizeof(*made));
    if (!made)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    made->magic = GRAPH_MAGIC;
    made->comm = comm;
    made->ops = comm->dev->ops;
    const ceclResult_t result = made->ops->capture_end(comm->dev, stream, &made->graph);
    if (result == ceclSuccess)
        *graph = made;
    else
        cecl_handle_free(&handles, made, sizeof(*made));
    return result;
}

CECL_API ceclResult_t ceclGraphLaunch(ceclGraph_t graph, ceclStream_t stream)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_check_given("graph", graph));
    CECL_TRY(check_handle(graph));
    if (cecl_comm_check_handle(graph->comm) != ceclSuccess)
        return cecl_fail(ceclInvalidUsage,
                         "graph %p: its communicator has ended; destroy the graph", (void *)graph);
    CECL_TRY(cecl_comm_check(graph->comm));
    return graph->ops->graph_launch(graph->comm->dev, graph->graph, stream);
}

CECL_API ceclResult_t ceclGraphDestroy(ceclGraph_t graph)
{
    CECL_PUBLIC;
    if (!graph)
        return ceclSuccess;
    CECL_TRY(check_handle(graph));
    const ceclResult_t result = graph->ops->graph_destroy(graph->graph);
    cecl_handle_free(&handles, graph, sizeof(*graph));
    return result;
}
