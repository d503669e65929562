/* The store of launches: taking a launch, adding calls to it, dropping it. A repeated call allocates nothing here. */
#include <stdlib.h>

#include "launch/steps.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/grow.h"

void cecl_launch_free(struct cecl_launch *launch)
{
    for (uint32_t i = 0; i < launch->ncalls; i++)
        cecl_call_let_go(&launch->calls[i]);
    cecl_bound_free(launch->program);
    cecl_imports_drop(&launch->imports);
    free(launch->imports.list);
    cecl_launch_free_list(launch->leases.before);
    cecl_launch_free_list(launch->leases.after);
    free(launch->calls);
    free(launch->origins);
    free(launch->layouts);
    free(launch->told.buffers);
    free(launch->told.send_at);
    free(launch->told.outside);
    free(launch->messages);
    free(launch->places_of);
    free(launch->ends);
    free(launch->order);
    free(launch->wishes);
    free(launch);
}

void cecl_launch_free_list(struct cecl_launch *launch)
{
    while (launch) {
        struct cecl_launch *next = launch->next;
        cecl_launch_free(launch);
        launch = next;
    }
}

/* Empties a launch for the store. Its arrays stay. */
static void put_back(struct cecl_launch *launch)
{
    struct cecl_launcher *launcher = launch->comm->launcher;
    while (launch->ncalls > 0)
        cecl_call_let_go(&launch->calls[--launch->ncalls]);
    cecl_bound_free(launch->program);
    launch->program = NULL;
    cecl_imports_drop(&launch->imports);
    launch->nfull = launch->nmessages = launch->nwishes = 0;
    launch->nlayouts = 0;
    launch->next = launcher->spare;
    launcher->spare = launch;
}

bool cecl_launch_is_left(const struct cecl_launch *launch)
{
    const ceclComm_t comm = launch->comm;
    return comm->magic != CECL_COMM_MAGIC || comm->process != cecl_fork_process();
}

/* If the graph that held the launch is gone, takes the launch out of the list of held launches. */
static void let_go_of_graph(struct cecl_launch *launch)
{
    struct cecl_launch **at = &launch->comm->launcher->captured;
    if (!launch->is_held || !launch->is_gone)
        return;
    while (*at && *at != launch)
        at = &(*at)->next_held;
    if (*at)
        *at = launch->next_held;
    cecl_imports_hold(&launch->comm->registry, &launch->imports, false);
    launch->is_held = false;
}

static void drop_list(struct cecl_launch **list)
{
    while (*list) {
        struct cecl_launch *first = *list;
        *list = first->next;
        cecl_launch_drop(first);
    }
}

void cecl_launch_drop(struct cecl_launch *launch)
{
    if (!launch)
        return;
    if (cecl_launch_is_left(launch)) {
        cecl_launch_free(launch);
        return;
    }
    drop_list(&launch->leases.before);
    drop_list(&launch->leases.after);
    cecl_bounce_end(launch);
    if (launch->runs)
        launch->runs->users--;
    launch->runs = NULL;
    let_go_of_graph(launch);
    launch->is_open = false;
    if (launch->comm->launcher->making == launch)
        launch->comm->launcher->making = NULL;
    if (!launch->is_kept && !launch->is_held)
        put_back(launch);
}

void cecl_launch_return(struct cecl_launch *launch)
{
    if (cecl_launch_is_left(launch)) {
        cecl_launch_free(launch);
        return;
    }
    struct cecl_launcher *launcher = launch->comm->launcher;
    launch->next = atomic_load(&launcher->returned);
    while (!atomic_compare_exchange_weak(&launcher->returned, &launch->next, launch))
        ;
}

bool cecl_launch_spare(ceclComm_t comm)
{
    struct cecl_launch *launch = calloc(1, sizeof(*launch));
    if (!launch)
        return false;
    launch->next = comm->launcher->spare;
    comm->launcher->spare = launch;
    return true;
}

void cecl_launch_take_returned(ceclComm_t comm)
{
    if (!atomic_load_explicit(&comm->launcher->returned, memory_order_relaxed))
        return;
    struct cecl_launch *list = atomic_exchange(&comm->launcher->returned, NULL);
    drop_list(&list);
}

/* Finds out whether the stream captures a graph. If the stream is invalid, cecl_launch_check_stream refuses it
 * later. */
static void find_capture(struct cecl_launch *launch, ceclStream_t stream)
{
    struct cecl_device *dev = launch->comm->dev;
    launch->is_asked = dev->ops->stream_check(dev, stream, &launch->capture) == ceclSuccess;
    launch->is_captured = launch->is_asked && launch->capture.id != 0;
}

/* A lone call's stream was checked when the launch was taken. A group's stream may have changed since then: if a graph
 * captured it at the group's first call, the same capture must still go on. */
ceclResult_t cecl_launch_check_stream(const struct cecl_launch *launch)
{
    struct cecl_device *dev = launch->comm->dev;
    struct cecl_capture capture = {.id = 0};
    if (launch->is_asked && !launch->is_grouped)
        return ceclSuccess;
    CECL_TRY(dev->ops->stream_check(dev, launch->stream, launch->is_captured ? &capture : NULL));
    return !launch->is_captured || capture.id == launch->capture.id
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "stream %p: the capture of this call has ended; end the group "
                           "(ceclGroupEnd) before the capture",
                           (void *)launch->stream);
}

struct cecl_launch *cecl_launch_take(ceclComm_t comm, enum cecl_launch_kind kind,
                                     ceclStream_t stream)
{
    struct cecl_launcher *launcher = comm->launcher;
    cecl_launch_take_returned(comm);
    if (!launcher->spare && !cecl_launch_spare(comm)) {
        cecl_record("no host memory for a call");
        return NULL;
    }
    struct cecl_launch *launch = launcher->spare;
    launcher->spare = launch->next;
    launch->comm = comm;
    launch->next = NULL;
    launch->kind = (uint8_t)kind;
    launch->state = CECL_LAUNCH_BEGUN;
    launch->is_owed = launch->is_grouped = launch->is_held = launch->is_gone = false;
    launch->places = (struct cecl_places_group){0};
    find_capture(launch, stream);
    launch->told.late = launch->told.inputs_readable = false;
    launch->told.earlier = launch->told.nbuffers = launch->told.nsend_at = launch->told.noutside =
        0;
    launch->number = launch->group_calls = 0;
    launch->stream = stream;
    launch->deadline = CECL_NO_DEADLINE;
    return launch;
}

/* ---- calls */

static bool grow_calls(struct cecl_launch *launch)
{
    const uint32_t room = launch->room ? launch->room * 2 : 1;
    const bool grown = cecl_list_grow(&launch->calls, room * sizeof(*launch->calls)) &&
                       cecl_list_grow(&launch->origins, room * sizeof(*launch->origins));
    launch->room = grown ? room : launch->room;
    return grown;
}

/* Resizes the array of layouts, and gives the calls the layouts' new addresses. False: no host memory. */
static bool resize_layouts(struct cecl_launch *launch, size_t room)
{
    if (!cecl_list_grow(&launch->layouts, room * sizeof(*launch->layouts)))
        return false;
    launch->layouts_room = room;
    for (uint32_t i = 0; i < launch->ncalls; i++)
        if (launch->calls[i].layout_words > 0)
            launch->calls[i].view.layout = launch->layouts + launch->origins[i].layout;
    return true;
}

ceclResult_t cecl_launch_add(struct cecl_launch *launch, const struct cecl_call *call,
                             uint32_t *index)
{
    const size_t words = launch->nlayouts + call->layout_words;
    if ((launch->ncalls == launch->room && !grow_calls(launch)) ||
        (words > launch->layouts_room && !resize_layouts(launch, 2 * words)))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls",
                         launch->ncalls + 1);
    uint32_t at = launch->ncalls++;
    if (!cecl_call_is_empty(call)) { /* goes before the calls that do nothing */
        if (at != launch->nfull) {
            launch->calls[at] = launch->calls[launch->nfull];
            launch->origins[at] = launch->origins[launch->nfull];
        }
        at = launch->nfull++;
    }
    launch->origins[at] = (struct cecl_origin){.layout = launch->nlayouts,
                                               .changes = launch->comm->registry.changes,
                                               .number = launch->number};
    /* without layouts `layouts` is NULL, and C forbids adding even 0 to NULL */
    cecl_call_copy(&launch->calls[at], call,
                   call->layout_words > 0 ? launch->layouts + launch->nlayouts : NULL);
    launch->nlayouts = words;
    *index = at;
    return ceclSuccess;
}

ceclResult_t cecl_launch_blame(const struct cecl_launch *launch, uint32_t index,
                               ceclResult_t result)
{
    const uint32_t number = launch->origins[index].number;
    return result == ceclSuccess || number == 0
               ? result
               : cecl_fail(result, "call %u of %u in the group, %s: %s", number,
                           launch->group_calls, launch->calls[index].op->name, cecl_message());
}

void cecl_launch_derive(struct cecl_launch *launch, uint32_t index, const struct cecl_call *derived)
{
    const struct cecl_call former = launch->calls[index];
    uint64_t *layout =
        derived->layout_words > 0 ? launch->layouts + launch->origins[index].layout : NULL;
    if (derived->view.layout == layout) {
        launch->calls[index] = *derived;
        cecl_call_hold(derived);
    } else {
        cecl_call_copy(&launch->calls[index], derived, layout);
    }
    cecl_call_let_go(&former);
}

/* ---- places that ranks tell */

static bool resize_told(struct cecl_launch *launch, uint32_t room)
{
    struct cecl_told *told = &launch->told;
    const int nranks = launch->comm->nranks;
    const size_t words = (size_t)room * (size_t)nranks;
    const size_t outside = room * cecl_outside_words(nranks);
    const bool resized = cecl_list_grow(&told->buffers, 2 * words * sizeof(*told->buffers)) &&
                         cecl_list_grow(&told->send_at, words * sizeof(*told->send_at)) &&
                         cecl_list_grow(&told->outside, outside * sizeof(*told->outside));
    if (resized || room < launch->told_room)
        launch->told_room = room; /* if only some arrays could shrink, the others stay larger */
    return resized;
}

ceclResult_t cecl_launch_reserve_told(struct cecl_launch *launch)
{
    return launch->nfull <= launch->told_room || resize_told(launch, launch->nfull)
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for the places of %u calls",
                           launch->nfull);
}

/* If a smaller array cannot be allocated, the larger one stays. */
void cecl_launch_trim(struct cecl_launch *launch)
{
    if (launch->room > launch->ncalls && launch->ncalls > 0 &&
        cecl_list_grow(&launch->calls, launch->ncalls * sizeof(*launch->calls)))
        launch->room = launch->ncalls;
    if (launch->layouts_room > launch->nlayouts && launch->nlayouts > 0)
        (void)!resize_layouts(launch, launch->nlayouts);
    if (launch->told_room > launch->nfull && launch->nfull > 0)
        (void)!resize_told(launch, launch->nfull);
}
