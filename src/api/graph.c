/* Graphs, for programs that run with and without a GPU. */
#include <stdlib.h>

#include "comm/comm.h"

struct ceclGraph {
    ceclComm_t comm;
    const struct cecl_capture_ops *ops;
    void *graph; /* the device's own handle for this graph */
};

CECL_API ceclResult_t ceclStreamBeginCapture(ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    return comm->dev->captures->stream_begin(comm->dev, stream);
}

CECL_API ceclResult_t ceclStreamEndCapture(ceclComm_t comm, ceclStream_t stream, ceclGraph_t *graph)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm)); /* a capture can be ended after a failure, too */
    if (!graph)
        return cecl_fail(ceclInvalidArgument, "graph: NULL");
    struct ceclGraph *made = calloc(1, sizeof(*made));
    if (!made)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *made = (struct ceclGraph){.comm = comm, .ops = comm->dev->captures};
    const ceclResult_t result = made->ops->stream_end(comm->dev, stream, &made->graph);
    if (result == ceclSuccess)
        *graph = made;
    else
        free(made);
    return result;
}

CECL_API ceclResult_t ceclGraphLaunch(ceclGraph_t graph, ceclStream_t stream)
{
    CECL_PUBLIC;
    if (!graph)
        return cecl_fail(ceclInvalidArgument, "graph: NULL");
    CECL_TRY(cecl_comm_check_handle(graph->comm));
    CECL_TRY(cecl_comm_check(graph->comm));
    return graph->ops->graph_launch(graph->comm->dev, graph->graph, stream);
}

CECL_API ceclResult_t ceclGraphDestroy(ceclGraph_t graph)
{
    CECL_PUBLIC;
    if (!graph)
        return ceclSuccess;
    const ceclResult_t result = graph->ops->graph_destroy(graph->graph);
    free(graph);
    return result;
}
