/* A graph of the host device as a list of work, and its end. host_capture.c captures and launches it. */
#include <stdlib.h>

#include "device/host_work.h"
#include "util/grow.h"

#define FIRST_ROOM 16

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

void host_graph_add(struct host_graph *graph, struct work work)
{
    graph->work[graph->count++] = work;
}

void host_graph_drop(struct host_graph *graph)
{
    if (atomic_fetch_sub(&graph->references, 1) > 1)
        return;
    for (size_t i = 0; i < graph->count; i++)
        if (!host_work_has_event(&graph->work[i]))
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
