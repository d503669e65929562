/* See one_sided_captured.h, and flags/handed.h. */
#include "launch/one_sided_captured.h"

#include <stdlib.h>

#include "ce/graph.h"
#include "flags/handed.h"
#include "flags/turns.h"
#include "launch/captured.h"
#include "launch/launcher.h"

/* a captured ceclWaitSignal waits for each signal separately */
#define SIGNALS_MOST 256

/* ---- calls that a graph holds */

/* The graph is gone. Called on any thread; must not wait. */
static void gone(void *context)
{
    struct cecl_one_sided_kept *kept = context;
    ceclComm_t comm = kept->comm;
    atomic_store(&kept->is_gone, true);
    atomic_fetch_sub(&comm->captured, 1); /* the communicator may end from here on */
}

static void sweep(struct cecl_one_sided_room *room)
{
    struct cecl_one_sided_kept **at = &room->kept;
    while (*at) {
        struct cecl_one_sided_kept *kept = *at;
        if (!atomic_load(&kept->is_gone)) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        free(kept);
    }
}

/* Lets the graph hold the call, even if the call then cannot be captured. */
static ceclResult_t hold(ceclComm_t comm, const struct cecl_one_sided_args *args, uint64_t bytes,
                         const struct cecl_capture *capture)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    struct cecl_one_sided_kept *kept = malloc(sizeof(*kept));
    sweep(room);
    if (!kept)
        return cecl_fail(ceclOutOfMemory, "no host memory for a captured call");
    const struct cecl_buffer local = cecl_window_find(&comm->windows, args->local);
    *kept = (struct cecl_one_sided_kept){.comm = comm,
                                         .window = bytes > 0 ? args->window : NULL,
                                         .offset = local.offset,
                                         .bytes = cecl_buffer_is_pool(local) ? bytes : 0,
                                         .next = room->kept};
    atomic_fetch_add(&comm->captured, 1);
    const ceclResult_t result = comm->dev->captures->keep(comm->dev, capture, gone, kept);
    if (result != ceclSuccess) {
        atomic_fetch_sub(&comm->captured, 1);
        free(kept);
        return result;
    }
    room->kept = kept;
    atomic_store(&comm->engine.flags.signals.captured, true);
    atomic_store(&comm->last_captured, args->name);
    return ceclSuccess;
}

static bool is_held(const struct cecl_one_sided_room *room, const struct ceclWindow *window)
{
    const struct cecl_one_sided_kept *kept = room->kept;
    while (kept && (kept->window != window || atomic_load(&kept->is_gone)))
        kept = kept->next;
    return kept != NULL;
}

bool cecl_one_sided_is_held(ceclComm_t comm, const struct ceclWindow *window)
{
    const struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    const int64_t deadline = cecl_captured_deadline(comm);
    while (is_held(room, window) && cecl_captured_pause(deadline))
        ;
    return is_held(room, window);
}

static bool uses(const struct cecl_one_sided_room *room, uint64_t start, uint64_t bytes)
{
    const struct cecl_one_sided_kept *kept = room->kept;
    while (kept && (atomic_load(&kept->is_gone) || kept->bytes == 0 ||
                    kept->offset >= start + bytes || start >= kept->offset + kept->bytes))
        kept = kept->next;
    return kept != NULL;
}

ceclResult_t cecl_one_sided_check_free(ceclComm_t comm, uint64_t start, uint64_t bytes)
{
    const struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    const int64_t deadline = cecl_captured_deadline(comm);
    while (uses(room, start, bytes) && cecl_captured_pause(deadline))
        ;
    return !uses(room, start, bytes)
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "ptr: a graph holds a captured one-sided call that uses this memory; "
                           "destroy the graph first");
}

/* ---- describing */

static ceclResult_t count_signals(const struct cecl_one_sided_args *args, uint32_t *count)
{
    uint64_t sum = args->is_signal;
    for (int i = 0; i < args->nwaits; i++)
        sum += (uint64_t)args->waits[i].count;
    *count = (uint32_t)sum;
    return sum <= SIGNALS_MOST
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "waits: %llu signals in total; at most %d expected in a captured call",
                           (unsigned long long)sum, SIGNALS_MOST);
}

/* Makes room for a call with `count` signals. */
static ceclResult_t reserve(ceclComm_t comm, uint32_t count)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    CECL_TRY(cecl_one_sided_reserve(room, 4 * count, 0));
    if (!room->order)
        room->order = calloc(2 * CECL_SIGNALS * (size_t)comm->nranks, sizeof(struct cecl_event *));
    if (!room->handed)
        room->handed = malloc(SIGNALS_MOST * sizeof(*room->handed));
    if (!room->events)
        room->events = malloc(SIGNALS_MOST * sizeof(struct cecl_event *));
    return room->order && room->handed && room->events
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for a captured call");
}

static struct cecl_one_sided_handed handed(ceclComm_t comm, int peer, int number, bool sends)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    const struct cecl_flags *flags = &comm->engine.flags;
    const uint32_t slot = cecl_handed_hold(flags, peer, number, sends),
                   awaited = sends ? CECL_COUNTER_TAKEN : CECL_COUNTER_HANDED,
                   told = sends ? CECL_COUNTER_HANDED : CECL_COUNTER_TAKEN;
    return (struct cecl_one_sided_handed){
        .peer = peer,
        .begun = cecl_one_sided_give(room, CECL_COUNTER_HOLDS, slot, CECL_REPLAY_BEGUN),
        .awaited = cecl_one_sided_give(room, awaited, (uint32_t)number, 1),
        .told = cecl_one_sided_give(room, told, (uint32_t)number, 1),
        .ended = cecl_one_sided_give(room, CECL_COUNTER_HOLDS, slot, CECL_REPLAY_ENDED)};
}

/* Notes the event that orders the signals of one number to a peer, or the waits for signals of one number
 * from a peer. */
static ceclResult_t add_event(ceclComm_t comm, int peer, int number, bool sends, uint32_t *nevents)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    struct cecl_event **event =
        &room->order[(sends ? CECL_SIGNALS * comm->nranks : 0) + number * comm->nranks + peer];
    if (!*event)
        CECL_TRY(cecl_graph_make_event(&comm->engine, event));
    for (uint32_t i = 0; i < *nevents; i++)
        if (room->events[i] == *event)
            return ceclSuccess;
    room->events[(*nevents)++] = *event;
    return ceclSuccess;
}

static ceclResult_t describe(ceclComm_t comm, const struct cecl_one_sided_args *args,
                             struct cecl_one_sided *call, uint32_t *nevents)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    room->ngiven = 0;
    call->handed = room->handed;
    if (args->is_signal) {
        room->handed[call->nhanded++] = handed(comm, args->peer, args->signal, true);
        CECL_TRY(add_event(comm, args->peer, args->signal, true, nevents));
    }
    for (int i = 0; i < args->nwaits; i++) {
        const ceclSignalWait_t *wait = &args->waits[i];
        for (int n = 0; n < wait->count; n++)
            room->handed[call->nhanded++] = handed(comm, wait->peer, wait->signal, false);
        CECL_TRY(add_event(comm, wait->peer, wait->signal, false, nevents));
    }
    return ceclSuccess;
}

/* ---- */

ceclResult_t cecl_one_sided_capture(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                    uint64_t bytes, ceclStream_t stream,
                                    const struct cecl_capture *capture)
{
    struct cecl_one_sided_room *room = &comm->launcher->one_sided;
    struct cecl_one_sided call = {
        .peer = args->peer, .gets = args->gets, .bytes = args->is_copy ? bytes : 0};
    uint32_t count, nevents = 0;
    CECL_TRY(count_signals(args, &count));
    CECL_TRY(reserve(comm, count));
    CECL_TRY(describe(comm, args, &call, &nevents));
    CECL_TRY(cecl_one_sided_bind(comm, args, bytes, &call));
    CECL_TRY(hold(comm, args, bytes, capture));
    const ceclResult_t result = cecl_graph_capture_aside(&comm->engine, &room->bound, stream,
                                                         capture, room->events, nevents);
    /* a graph with only a part of the call would send wrong signals */
    return result == ceclSuccess ? ceclSuccess : cecl_comm_break(comm, result);
}
