/* Makes, reads and binds requests; see request.h. */
#include <stdlib.h>
#include <string.h>

#include "launch/bounce.h"
#include "launch/check.h"
#include "launch/launcher.h"
#include "launch/make.h"
#include "launch/plan.h"
#include "launch/request.h"
#include "launch/settle.h"
#include "launch/tell.h"

/* ---- memory that a start checks */

struct listing {
    ceclRequest_t request;
    uint32_t room;
    bool failed;
};

static bool watch(void *context, struct cecl_window *window, const struct cecl_use *use)
{
    struct listing *listing = context;
    ceclRequest_t request = listing->request;
    if (request->nwatched == listing->room) {
        const uint32_t room = listing->room ? 2 * listing->room : 4;
        struct cecl_watched *watched = realloc(request->watched, room * sizeof(*watched));
        listing->failed = !watched;
        if (!watched)
            return false;
        request->watched = watched;
        listing->room = room;
    }
    struct cecl_watched *watched = &request->watched[request->nwatched];
    *watched = (struct cecl_watched){.window = window, .use = *use};
    if (use->nranges > 0) {
        watched->ranges = calloc(use->nranges, sizeof(*watched->ranges));
        listing->failed = !watched->ranges;
        if (!watched->ranges)
            return false;
        memcpy(watched->ranges, use->ranges, use->nranges * sizeof(*watched->ranges));
        watched->use.ranges = watched->ranges;
    }
    request->nwatched++;
    return true;
}

/* Lists the memory that each start checks. Carried blocks are listed, too, because they use the caller's
 * private memory. */
static ceclResult_t list_watched(ceclRequest_t request)
{
    const struct cecl_launch *launch = request->collectives;
    struct listing listing = {.request = request};
    const struct cecl_leases *leases = &launch->leases;
    for (uint32_t i = 0; i < launch->nfull; i++)
        cecl_settle_list(launch->comm, &launch->calls[i], watch, &listing);
    for (uint32_t i = 0; i < leases->before.count; i++)
        cecl_settle_list(launch->comm, &leases->before.calls[i], watch, &listing);
    for (uint32_t i = 0; i < leases->after.count; i++)
        cecl_settle_list(launch->comm, &leases->after.calls[i], watch, &listing);
    return listing.failed ? cecl_fail(ceclOutOfMemory, "no host memory for a request")
                          : ceclSuccess;
}

static void note_sizes(ceclRequest_t request, const struct cecl_launch *launch)
{
    for (uint32_t i = 0; launch && i < launch->ncalls; i++) {
        uint64_t sent, received;
        cecl_call_sizes(&launch->calls[i], &sent, &received);
        request->send_bytes += sent;
        request->recv_bytes += received;
    }
}

/* ---- reading and binding */

/* Reads the places of the next request in the ring. Waits until all ranks have published theirs. A request
 * that the caller has freed already was kept only until now, to be read. */
static ceclResult_t read_one(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    struct cecl_launcher *launcher = request->comm->launcher;
    uint64_t pending_ns = 0;
    cecl_launch_bound_waits(launch);
    ceclResult_t result = cecl_tell_learn(launch, &pending_ns);
    launcher->making = NULL;
    if (result == ceclSuccess)
        result = cecl_early_read(request);
    if (result != ceclSuccess)
        return cecl_launch_give_up(launch, result);
    request->is_read = true;
    if (request->is_freed) {
        cecl_request_discard(request);
    }
    return ceclSuccess;
}

/* Whether a request can be read without a wait. */
static bool is_complete(const struct cecl_launch *launch)
{
    return cecl_places_missing(launch->ring, &launch->places, 0) < 0;
}

/* Reads the requests that all ranks have made, so that their entries of the ring are free. If the ring is
 * still full, waits until the peers have made the oldest requests. */
static ceclResult_t make_room(const struct cecl_launch *launch)
{
    struct cecl_launcher *launcher = launch->comm->launcher;
    const struct cecl_places *ring = &launcher->request_places;
    ceclRequest_t next, oldest = launcher->requests;
    for (; oldest; oldest = next) {
        next = oldest->next;
        if (oldest->is_read)
            continue;
        if (!is_complete(oldest->collectives) &&
            ring->published - ring->finished + launch->nfull <= ring->nentries)
            break;
        CECL_TRY(read_one(oldest));
    }
    return ceclSuccess;
}

/* If no peer relies on the request, it stays as it is, and the next start tries again. */
ceclResult_t cecl_request_unbound(ceclRequest_t request, ceclResult_t result)
{
    struct cecl_launch *launch = request->collectives;
    ceclComm_t comm = launch->comm;
    const struct cecl_told *told = &launch->told;
    cecl_registry_made(&comm->registry);
    if (atomic_load(&comm->async_result) == ceclSuccess &&
        cecl_registry_has_lost(&comm->registry, told->buffers, told->nbuffers))
        return cecl_request_refuse_replaced();
    return cecl_launch_is_owed(launch) ? cecl_launch_give_up(launch, result)
                                       : cecl_comm_cause(comm, result);
}

static ceclResult_t bind(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    cecl_launch_bound_waits(launch);
    const ceclResult_t result = cecl_launch_bind_own(launch);
    launch->comm->launcher->making = NULL;
    if (result != ceclSuccess)
        return cecl_request_unbound(request, result);
    cecl_imports_pin(&launch->comm->registry, &launch->imports);
    cecl_registry_made(&launch->comm->registry);
    request->signature = (launch->signature ^ request->number) * 0x9e3779b1u;
    request->is_bound = true;
    return ceclSuccess;
}

ceclResult_t cecl_request_bind(ceclRequest_t request)
{
    ceclRequest_t next, at = request->comm->launcher->requests;
    for (; !request->is_read; at = next) {
        next = at->next;
        if (!at->is_read)
            CECL_TRY(read_one(at));
    }
    return bind(request);
}

/* ---- making */

/* Under CECL_CHECK ranks first compare whether all of them make a request. */
static ceclResult_t compare_kind(ceclComm_t comm, uint32_t ncalls)
{
    const struct cecl_call init = {.op = &cecl_ops[CECL_OP_INIT], .count = ncalls};
    return cecl_check_call(comm, &init, ceclSuccess);
}

static ceclResult_t check_collectives(struct cecl_launch *launch, const struct cecl_call *call,
                                      ceclResult_t local)
{
    ceclComm_t comm = launch->comm;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    CECL_TRY(compare_kind(comm, call ? 1 : launch->ncalls));
    local = cecl_fail_with(local, words);
    if (call)
        return cecl_launch_check_alone(launch, call, local);
    if (local == ceclSuccess)
        local = cecl_settle_again(launch, comm);
    if (local == ceclSuccess)
        local = cecl_launch_check(launch);
    return cecl_check_calls(comm, launch->calls, launch->ncalls, local);
}

/* Checks only the buffers of messages, because each start checks the messages. */
static ceclResult_t check_messages(const struct cecl_launch *launch)
{
    for (uint32_t i = 0; i < launch->ncalls; i++)
        CECL_TRY(cecl_call_check_buffers(&launch->calls[i], &launch->comm->windows));
    return ceclSuccess;
}

static ceclResult_t make_collectives(ceclRequest_t request, const struct cecl_call *call,
                                     ceclResult_t local)
{
    struct cecl_launch *launch = request->collectives;
    struct cecl_launcher *launcher = launch->comm->launcher;
    launch->is_request = true;
    launch->ring = &launcher->request_places;
    CECL_TRY(check_collectives(launch, call, local));
    CECL_TRY(cecl_bounce_keep(launch));
    CECL_TRY(list_watched(request));
    CECL_TRY(make_room(launch));
    cecl_early_begin(request);
    CECL_TRY(cecl_launch_tell(launch, false));
    launcher->making = NULL;
    launch->comm->registry.telling_ns =
        0; /* so that the next call does not wait longer for peers */
    request->number = ++launcher->nrequests;
    if (launch
            ->is_open) /* over hosts the ranks have met, and the next call overwrites these records */
        return cecl_mesh_spans_hosts(launch->comm->mesh) ? read_one(request) : ceclSuccess;
    launch->told = cecl_tell_alone(launch->calls, launch->nfull); /* nothing to read */
    request->is_read = true;
    return ceclSuccess;
}

static ceclResult_t make(ceclRequest_t request, const struct cecl_call *call, ceclResult_t local)
{
    note_sizes(request, local == ceclSuccess ? request->collectives : NULL);
    note_sizes(request, local == ceclSuccess ? request->messages : NULL);
    if (request->messages && local == ceclSuccess)
        local = check_messages(request->messages);
    if (request->collectives)
        local = make_collectives(request, call, local);
    /* the request keeps its launches, so the store gets a new one for the next lone call */
    if (local == ceclSuccess && !cecl_launch_spare(request->comm))
        local = cecl_fail(ceclOutOfMemory, "no host memory for a request");
    return local;
}

ceclResult_t cecl_request_make(ceclComm_t comm, struct cecl_launch *collectives,
                               struct cecl_launch *messages, const struct cecl_call *call,
                               ceclResult_t local, ceclRequest_t *made)
{
    ceclRequest_t request = cecl_request_take();
    if (!request) {
        cecl_launch_drop(collectives);
        cecl_launch_drop(messages);
        return cecl_fail(ceclOutOfMemory, "no host memory for a request");
    }
    request->magic = CECL_REQUEST_MAGIC;
    request->comm = comm;
    request->collectives = collectives;
    request->messages = messages;
    request->is_grouped = call == NULL;
    request->early.slot = UINT32_MAX; /* no slot yet */
    request->is_read = request->is_bound = !collectives;
    ceclResult_t result = make(request, call, local);
    if (result != ceclSuccess) {
        if (collectives)
            result = cecl_launch_give_up(collectives, result);
        cecl_request_discard(request);
        return result;
    }
    cecl_request_enlist(request);
    *made = request;
    return ceclSuccess;
}
