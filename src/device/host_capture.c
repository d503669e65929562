/* Graphs of the host device: a list of work that a stream has captured. A launch copies it into the
 * queue of a stream. */
#include <stdlib.h>

#include "device/host_work.h"

struct cecl_event {
    struct host_place at; /* what the event marks; guarded by the process's `order` */
    uint64_t capture;     /* the last capture for which `begin` was called with this event */
    size_t end;           /* index of the record in that capture's graph; SIZE_MAX: none yet */
};

/* ---- graphs */

static ceclResult_t stream_begin(struct cecl_device *dev, ceclStream_t handle)
{
    static _Atomic uint64_t last_id;
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    if (!stream->owner)
        return cecl_fail(ceclInvalidUsage,
                         "stream %p: the default stream cannot capture; pass a stream of your own",
                         (void *)handle);
    struct host_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *graph = (struct host_graph){.id = atomic_fetch_add(&last_id, 1) + 1, .references = 1};
    pthread_mutex_lock(&stream->lock);
    const bool captures = stream->capture != NULL;
    if (!captures)
        stream->capture = graph;
    pthread_mutex_unlock(&stream->lock);
    if (!captures)
        return ceclSuccess;
    host_graph_drop(graph);
    return cecl_fail(ceclInvalidUsage, "stream %p: captures a graph already", (void *)handle);
}

static ceclResult_t stream_end(struct cecl_device *dev, ceclStream_t handle, void **graph)
{
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    pthread_mutex_lock(&stream->lock);
    struct host_graph *captured = stream->capture;
    stream->capture = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (!captured)
        return cecl_fail(ceclInvalidUsage, "stream %p: captures no graph", (void *)handle);
    *graph = captured;
    return ceclSuccess;
}

/* The work that a launch enqueues for an entry. Takes the references that the work has, and moves an event
 * that is recorded here. The caller holds `order` and the stream's lock. */
static struct work launched(struct host_stream *stream, const struct work *entry)
{
    struct cecl_event *event = host_work_has_event(entry) ? entry->own : NULL;
    struct work work = *entry;
    work.lent = work.own != NULL;
    if (entry->kind == WORK_EVENT_WAIT)
        return host_work_after(host_place_copy(event->at));
    if (entry->kind != WORK_EVENT_RECORD)
        return work;
    host_place_drop(&event->at);
    event->at = host_place_of(stream);
    return (struct work){.kind = WORK_NOTHING};
}

static ceclResult_t enqueue(struct cecl_device *dev, struct host_graph *graph, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, graph->count + 1, &stream));
    const bool captures = stream->capture != NULL;
    if (!captures) {
        atomic_fetch_add(&graph->references, 1);
        for (size_t i = 0; i < graph->count; i++)
            host_add(stream, launched(stream, &graph->work[i]));
        host_add(stream, (struct work){.kind = WORK_DROP, .own = graph});
    }
    host_finish_adding(stream);
    return captures ? cecl_fail(ceclInvalidUsage,
                                "stream %p: captures a graph, which cannot contain another graph",
                                (void *)handle)
                    : ceclSuccess;
}

static ceclResult_t graph_launch(struct cecl_device *dev, void *graph, ceclStream_t handle)
{
    pthread_mutex_lock(&host_process.order);
    const ceclResult_t result = enqueue(dev, graph, handle);
    pthread_mutex_unlock(&host_process.order);
    return result;
}

static ceclResult_t graph_destroy(void *graph)
{
    host_graph_drop(graph);
    return ceclSuccess;
}

static ceclResult_t find(struct cecl_device *dev, ceclStream_t handle, struct cecl_capture *capture)
{
    struct host_stream *stream;
    *capture = (struct cecl_capture){0};
    CECL_TRY(host_stream_find(dev, handle, &stream));
    pthread_mutex_lock(&stream->lock);
    if (stream->capture)
        *capture = (struct cecl_capture){stream->capture->id, stream->capture};
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

static ceclResult_t keep(struct cecl_device *dev, const struct cecl_capture *capture,
                         void (*gone)(void *context), void *context)
{
    struct host_graph *graph = capture->graph;
    struct host_keeper *keeper = malloc(sizeof(*keeper));
    (void)dev;
    if (!keeper)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *keeper = (struct host_keeper){gone, context, graph->keepers};
    graph->keepers = keeper;
    return ceclSuccess;
}

/* ---- events */

static ceclResult_t event_create(struct cecl_device *dev, struct cecl_event **event)
{
    (void)dev;
    *event = calloc(1, sizeof(**event));
    return *event ? ceclSuccess : cecl_fail(ceclOutOfMemory, "no host memory for an event");
}

static void event_destroy(struct cecl_device *dev, struct cecl_event *event)
{
    (void)dev;
    host_place_drop(&event->at);
    free(event);
}

/* Adds a wait for an event, or a record of it: to the graph if the stream captures, otherwise to the
 * stream. */
static ceclResult_t add_event(struct cecl_device *dev, struct cecl_event *event,
                              ceclStream_t handle, enum work_kind kind)
{
    const struct work entry = {.kind = kind, .own = event};
    struct host_stream *stream;
    pthread_mutex_lock(&host_process.order);
    const ceclResult_t result = host_begin_adding(dev, handle, 1, &stream);
    if (result == ceclSuccess) {
        host_add(stream, stream->capture ? entry : launched(stream, &entry));
        host_finish_adding(stream);
    }
    pthread_mutex_unlock(&host_process.order);
    return result;
}

static ceclResult_t event_record(struct cecl_device *dev, struct cecl_event *event,
                                 ceclStream_t stream)
{
    return add_event(dev, event, stream, WORK_EVENT_RECORD);
}

static ceclResult_t event_wait(struct cecl_device *dev, struct cecl_event *event,
                               ceclStream_t stream)
{
    return add_event(dev, event, stream, WORK_EVENT_WAIT);
}

static ceclResult_t event_query(struct cecl_device *dev, struct cecl_event *event)
{
    (void)dev;
    pthread_mutex_lock(&host_process.order);
    const bool reached = host_place_is_reached(&event->at);
    pthread_mutex_unlock(&host_process.order);
    return reached ? ceclSuccess : ceclInProgress;
}

/* If one graph has several records of an event, its launches carry out only the last one. */
static ceclResult_t begin(struct cecl_device *dev, struct cecl_event *event, ceclStream_t stream,
                          const struct cecl_capture *capture)
{
    struct host_graph *graph = capture->graph;
    if (event->capture == capture->id) {
        if (event->end != SIZE_MAX)
            graph->work[event->end].kind = WORK_NOTHING;
        event->end = SIZE_MAX;
        return ceclSuccess;
    }
    CECL_TRY(add_event(dev, event, stream, WORK_EVENT_WAIT));
    event->capture = capture->id;
    event->end = SIZE_MAX;
    return ceclSuccess;
}

static ceclResult_t end(struct cecl_device *dev, struct cecl_event *event, ceclStream_t stream,
                        const struct cecl_capture *capture)
{
    const struct host_graph *graph = capture->graph;
    CECL_TRY(add_event(dev, event, stream, WORK_EVENT_RECORD));
    event->end = graph->count - 1;
    return ceclSuccess;
}

const struct cecl_capture_ops host_capture_ops = {
    .find = find,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_query = event_query,
    .begin = begin,
    .end = end,
    .keep = keep,
    .stream_begin = stream_begin,
    .stream_end = stream_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};
