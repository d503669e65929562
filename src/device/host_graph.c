/* Events and graphs of the host device. An event marks a place in a stream's work, as on a GPU. A graph is a list of
 * work that a stream has captured; a launch copies the list into the queue of a stream. */
#include <stdlib.h>

#include "device/host.h"
#include "util/grow.h"

#define FIRST_ROOM 16

/* ---- a graph as a list of work */

ceclResult_t host_graph_reserve(struct host_graph *graph, size_t more)
{
    size_t room = graph->room ? graph->room : FIRST_ROOM;
    while (room - graph->count < more)
        room *= 2;
    if (room == graph->room)
        return ceclSuccess;
    if (!cecl_list_grow(&graph->work, room * sizeof(*graph->work)))
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph of %zu entries", room);
    graph->room = room;
    return ceclSuccess;
}

void host_graph_drop(struct host_graph *graph)
{
    if (atomic_fetch_sub(&graph->references, 1) > 1)
        return;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->work[i].kind < WORK_EVENT_WAIT) /* later kinds hold an event, not freed here */
            free(graph->work[i].own);
    while (graph->keepers) {
        struct host_keeper *keeper = graph->keepers;
        graph->keepers = keeper->next;
        keeper->gone(keeper->context);
        free(keeper);
    }
    free(graph->work);
    free(graph);
}

/* ---- events. All that exist are in a list, so that functions recognize an event that was destroyed. */

struct host_event {
    struct host_place at;    /* what the event marks */
    struct host_event *next; /* the next one in the process's list */
};

/* Where the list points to the event; the pointer there is NULL if there is no such event. The caller holds `order`. */
static struct host_event **link_of(ceclEvent_t event)
{
    struct host_event **link = &host_process.events;
    while (*link && *link != (struct host_event *)event)
        link = &(*link)->next;
    return link;
}

static ceclResult_t refuse(ceclEvent_t event)
{
    return cecl_fail(ceclInvalidArgument, "event %p: no event of this process (destroyed?)",
                     (void *)event);
}

ceclResult_t host_event_create(struct cecl_device *dev, ceclEvent_t *out)
{
    struct host_event *event = calloc(1, sizeof(*event));
    if (!event)
        return cecl_fail(ceclOutOfMemory, "no host memory for an event");
    CECL_LOCKED(&host_process.order);
    event->next = host_process.events;
    host_process.events = event;
    *out = (ceclEvent_t)event;
    return ceclSuccess;
}

/* Streams that already wait for the event go on waiting, because each has its own copy of the event's place. */
ceclResult_t host_event_destroy(struct cecl_device *dev, ceclEvent_t handle)
{
    pthread_mutex_lock(&host_process.order);
    struct host_event **link = link_of(handle), *event = *link;
    if (event)
        *link = event->next;
    pthread_mutex_unlock(&host_process.order);
    if (!event)
        return refuse(handle);
    host_place_drop(&event->at);
    free(event);
    return ceclSuccess;
}

/* Returns the work to enqueue for an entry of a graph, with the references that the work needs. If the entry records an
 * event, the event marks the present end of the stream's work from now on. The caller holds `order` and the stream's
 * lock. */
static struct work enqueued(struct host_stream *stream, const struct work *entry)
{
    struct host_event *event = entry->own;
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

/* Adds a wait for an event, or a record of it. in_graph: the stream may capture; if it does, adds to the graph. */
static ceclResult_t add_event(struct cecl_device *dev, ceclEvent_t handle, ceclStream_t to,
                              enum work_kind kind, bool in_graph)
{
    struct host_stream *stream;
    CECL_LOCKED(&host_process.order);
    const struct work entry = {.kind = kind, .own = *link_of(handle)};
    ceclResult_t result = entry.own ? host_begin_adding(dev, to, 1, &stream) : refuse(handle);
    if (result == ceclSuccess) {
        if (!stream->capture)
            host_add(stream, enqueued(stream, &entry));
        else if (in_graph)
            host_add(stream, entry);
        else
            result = host_refuse_capture(stream);
        pthread_mutex_unlock(&stream->lock);
    }
    return result;
}

ceclResult_t host_event_record(struct cecl_device *dev, ceclEvent_t event, ceclStream_t stream)
{
    return add_event(dev, event, stream, WORK_EVENT_RECORD, false);
}

ceclResult_t host_event_wait(struct cecl_device *dev, ceclStream_t stream, ceclEvent_t event)
{
    return add_event(dev, event, stream, WORK_EVENT_WAIT, false);
}

ceclResult_t host_event_query(struct cecl_device *dev, ceclEvent_t handle)
{
    CECL_LOCKED(&host_process.order);
    const struct host_event *event = *link_of(handle);
    const bool reached = event && host_place_is_reached(&event->at);
    return !event ? refuse(handle) : reached ? ceclSuccess : ceclInProgress;
}

ceclResult_t host_order_begin(struct cecl_device *dev, struct cecl_order *order,
                              ceclStream_t stream, const struct cecl_capture *capture)
{
    if (order->capture != capture->id)
        CECL_TRY(add_event(dev, order->event, stream, WORK_EVENT_WAIT, true));
    order->capture = capture->id;
    return ceclSuccess;
}

/* A capture has one stream, and a launch enqueues all records of a graph while it holds `order`. So other streams see
 * only the last record, and this device does not need `spare`. */
ceclResult_t host_order_end(struct cecl_device *dev, struct cecl_order *order, ceclStream_t stream,
                            const struct cecl_capture *capture)
{
    return add_event(dev, order->event, stream, WORK_EVENT_RECORD, true);
}

/* ---- capturing and launching */

ceclResult_t host_graph_keep(struct cecl_device *dev, const struct cecl_capture *capture,
                             void (*gone)(void *context), void *context)
{
    struct host_graph *graph = capture->graph;
    struct host_keeper *keeper = malloc(sizeof(*keeper));
    if (!keeper)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *keeper = (struct host_keeper){gone, context, graph->keepers};
    graph->keepers = keeper;
    return ceclSuccess;
}

ceclResult_t host_capture_begin(struct cecl_device *dev, ceclStream_t handle)
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

ceclResult_t host_capture_end(struct cecl_device *dev, ceclStream_t handle, void **graph)
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

ceclResult_t host_graph_launch(struct cecl_device *dev, void *launched, ceclStream_t handle)
{
    struct host_graph *graph = launched;
    struct host_stream *stream;
    CECL_LOCKED(&host_process.order);
    CECL_TRY(host_begin_adding(dev, handle, graph->count + 1, &stream));
    const bool captures = stream->capture != NULL;
    if (!captures) {
        atomic_fetch_add(&graph->references, 1);
        for (size_t i = 0; i < graph->count; i++)
            host_add(stream, enqueued(stream, &graph->work[i]));
        host_add(stream, (struct work){.kind = WORK_DROP, .own = graph});
    }
    pthread_mutex_unlock(&stream->lock);
    return captures ? cecl_fail(ceclInvalidUsage,
                                "stream %p: captures a graph, which cannot contain another graph",
                                (void *)handle)
                    : ceclSuccess;
}

ceclResult_t host_graph_destroy(void *graph)
{
    host_graph_drop(graph);
    return ceclSuccess;
}
