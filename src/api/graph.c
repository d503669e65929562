/* Graphs, for programs that run with and without a GPU. */
#include <stdlib.h>

#include "comm/comm.h"

#define GRAPH_MAGIC 0x63656367u

/* Destroyed handles are kept for new graphs, and their memory is never freed, so that the use of a destroyed handle can be
 * refused. */
struct ceclGraph {
    uint32_t magic;
    ceclComm_t comm;
    const struct cecl_capture_ops *ops;
    void *graph;      /* the device's own handle for this graph */
    ceclGraph_t next; /* in the list of destroyed handles */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ceclGraph_t destroyed;

static ceclGraph_t take_handle(void)
{
    pthread_mutex_lock(&lock);
    ceclGraph_t graph = destroyed;
    if (graph)
        destroyed = graph->next;
    pthread_mutex_unlock(&lock);
    return graph ? graph : calloc(1, sizeof(*graph));
}

static void put_back(ceclGraph_t graph)
{
    pthread_mutex_lock(&lock);
    *graph = (struct ceclGraph){.next = destroyed};
    destroyed = graph;
    pthread_mutex_unlock(&lock);
}

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
    return comm->dev->captures->stream_begin(comm->dev, stream);
}

CECL_API ceclResult_t ceclStreamEndCapture(ceclComm_t comm, ceclStream_t stream, ceclGraph_t *graph)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm)); /* a capture can be ended after a failure, too */
    if (!graph)
        return cecl_fail(ceclInvalidArgument, "graph: NULL");
    ceclGraph_t made = take_handle();
    if (!made)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *made = (struct ceclGraph){.magic = GRAPH_MAGIC, .comm = comm, .ops = comm->dev->captures};
    const ceclResult_t result = made->ops->stream_end(comm->dev, stream, &made->graph);
    if (result == ceclSuccess)
        *graph = made;
    else
        put_back(made);
    return result;
}

CECL_API ceclResult_t ceclGraphLaunch(ceclGraph_t graph, ceclStream_t stream)
{
    CECL_PUBLIC;
    if (!graph)
        return cecl_fail(ceclInvalidArgument, "graph: NULL");
    CECL_TRY(check_handle(graph));
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
    put_back(graph);
    return result;
}
