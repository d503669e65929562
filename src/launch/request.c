/* Handles of requests, and their end; see request.h. */
#include "launch/request.h"

#include <pthread.h>
#include <stdlib.h>

#include "launch/bounce.h"
#include "launch/launcher.h"

/* ---- handles */

/* Freed handles are used again for new requests, and their memory is never freed, so that the use of a freed
 * handle can be refused. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ceclRequest_t freed;

ceclRequest_t cecl_request_take(void)
{
    pthread_mutex_lock(&lock);
    ceclRequest_t request = freed;
    if (request)
        freed = request->next;
    pthread_mutex_unlock(&lock);
    if (!request)
        return calloc(1, sizeof(*request));
    *request = (struct ceclRequest){0};
    return request;
}

static void put_back(ceclRequest_t request)
{
    request->magic = 0;
    request->comm = NULL;
    pthread_mutex_lock(&lock);
    request->next = freed;
    freed = request;
    pthread_mutex_unlock(&lock);
}

static bool has_ended(ceclRequest_t request)
{
    return !request->comm || request->comm->magic != CECL_COMM_MAGIC;
}

ceclResult_t cecl_request_check(ceclRequest_t request)
{
    if (!request)
        return cecl_fail(ceclInvalidArgument, "request: NULL");
    if (request->magic != CECL_REQUEST_MAGIC || request->is_freed)
        return cecl_fail(ceclInvalidArgument, "request %p: not a request (freed before?)",
                         (void *)request);
    if (has_ended(request))
        return cecl_fail(ceclInvalidUsage,
                         "request %p: its communicator has ended; only ceclRequestFree may follow",
                         (void *)request);
    return ceclSuccess;
}

/* ---- parts of a request */

void cecl_request_enlist(ceclRequest_t request)
{
    struct ceclRequest **at = &request->comm->launcher->requests;
    while (*at)
        at = &(*at)->next;
    *at = request;
    request->next = NULL;
}

static void take_out(ceclRequest_t request)
{
    struct ceclRequest **at = &request->comm->launcher->requests;
    while (*at && *at != request)
        at = &(*at)->next;
    if (*at)
        *at = request->next;
}

static void forget_watched(ceclRequest_t request)
{
    while (request->nwatched > 0)
        free(request->watched[--request->nwatched].ranges);
    free(request->watched);
    request->watched = NULL;
}

/* Frees everything that a request has. No work of it may be pending. */
static void empty(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    cecl_early_end(request, true);
    if (launch && launch->runs)
        cecl_imports_unpin(&launch->comm->registry, &launch->imports);
    if (launch)
        cecl_bounce_drop(launch, atomic_load(&launch->comm->async_result) == ceclSuccess);
    cecl_launch_drop(launch);
    cecl_launch_drop(request->messages);
    request->collectives = request->messages = NULL;
    forget_watched(request);
}

void cecl_request_discard(ceclRequest_t request)
{
    take_out(request);
    empty(request);
    put_back(request);
}

/* ---- freeing */

static bool is_pending(ceclRequest_t request)
{
    return request->is_used && atomic_load(&request->comm->async_result) == ceclSuccess &&
           !cecl_flags_is_over(&request->comm->engine.flags, request->target);
}

/* Whether a freed request must stay until the communicator ends. In a failed communicator pending work may
 * still use it. A request that is not read yet holds its entry of the ring. One that is ready has a slot to which
 * peers may still signal. */
static bool must_stay(ceclRequest_t request)
{
    return !request->is_read || request->is_ready ||
           atomic_load(&request->comm->async_result) != ceclSuccess;
}

ceclResult_t cecl_request_free(ceclRequest_t request)
{
    if (is_pending(request))
        return cecl_fail(ceclInvalidUsage,
                         "request %p: its last start is pending; synchronize its stream first",
                         (void *)request);
    if (request->is_ready && atomic_load(&request->comm->async_result) == ceclSuccess &&
        !cecl_request_is_lost(request))
        return cecl_fail(
            ceclInvalidUsage,
            "request %p: made ready, so peers may write to its buffers; start it first",
            (void *)request);
    if (must_stay(request)) {
        request->is_freed = true;
        return ceclSuccess;
    }
    cecl_request_discard(request);
    return ceclSuccess;
}

bool cecl_request_forget(ceclRequest_t request)
{
    if (!request || request->magic != CECL_REQUEST_MAGIC || request->is_freed ||
        !has_ended(request))
        return false;
    put_back(request);
    return true;
}

static bool has_lost(ceclComm_t comm, const struct cecl_launch *launch)
{
    for (uint32_t i = 0; launch && i < launch->nfull; i++)
        if (cecl_call_check_buffers(&launch->calls[i], &comm->windows) != ceclSuccess)
            return true;
    return false;
}

void cecl_requests_lose_memory(ceclComm_t comm)
{
    char words[CECL_MESSAGE_BYTES];
    /* finding that memory was lost records a message, but is not an error of this call */
    cecl_keep_message(words);
    for (ceclRequest_t request = comm->launcher->requests; request; request = request->next)
        request->is_stale = request->is_stale || has_lost(comm, request->collectives) ||
                            has_lost(comm, request->messages);
    (void)!cecl_fail_with(ceclSuccess, words);
}

/* Frees the parts of a request whose communicator ends. Its launches cannot go back to the store, which is
 * about to be freed. */
static void end(ceclRequest_t request)
{
    cecl_early_end(request, false);
    if (request->collectives) {
        cecl_bounce_drop(request->collectives, false);
        cecl_launch_free(request->collectives);
    }
    if (request->messages)
        cecl_launch_free(request->messages);
    request->collectives = request->messages = NULL;
    forget_watched(request);
    request->comm = NULL;
}

/* Pending work may still use the parts of requests, so these stay if work is pending. */
void cecl_requests_end(ceclComm_t comm, bool drained)
{
    struct cecl_launcher *launcher = comm->launcher;
    while (launcher->requests) {
        ceclRequest_t request = launcher->requests;
        launcher->requests = request->next;
        if (drained)
            end(request);
        request->comm = NULL;
        request->next = NULL;
        if (request->is_freed)
            put_back(request);
    }
}
