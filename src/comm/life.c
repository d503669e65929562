/* A communicator's life after it is made: queries, errors, and its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "util/clock.h"
#include "util/fork.h"
#include "util/log.h"

#define TEARDOWN_MS 30000 /* limit of Destroy in ms, where the communicator has none of its own */
#define GRAVES 64         /* ended communicators whose handles are still recognized */

ceclResult_t cecl_comm_check_handle(ceclComm_t comm)
{
    if (!comm)
        return cecl_fail(ceclInvalidArgument, "comm: NULL");
    if (comm->magic != CECL_COMM_MAGIC)
        return cecl_fail(ceclInvalidArgument, "comm %p: not a communicator (destroyed before?)",
                         (void *)comm);
    if (comm->generation != cecl_fork_generation())
        return cecl_fail(ceclInvalidUsage,
                         "comm %p: made before this process was forked; only the process that made "
                         "it can use it",
                         (void *)comm);
    return ceclSuccess;
}

ceclResult_t cecl_comm_check(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    if (comm->finalized)
        return cecl_fail(ceclInvalidUsage,
                         "comm: finalized; only queries, ceclStreamDestroy and ceclCommDestroy or "
                         "ceclCommAbort may follow");
    return cecl_comm_async(comm);
}

ceclResult_t cecl_comm_refuse_second(ceclComm_t comm, const char *name, const char *other)
{
    return cecl_fail(ceclInvalidUsage,
                     "two threads are inside communicator %p (rank %d) at once: %s, while another "
                     "thread is inside %s; make one call at a time on a communicator",
                     (void *)comm, comm->rank, name, other);
}

bool cecl_comm_is_checked(ceclComm_t comm)
{
    return comm && comm->magic == CECL_COMM_MAGIC && comm->config.check && !comm->finalized &&
           comm->generation == cecl_fork_generation() &&
           atomic_load(&comm->async_result) == ceclSuccess;
}

void cecl_comm_lose(ceclComm_t comm)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ceclComm_t lost;

    comm->magic = 0;
    pthread_mutex_lock(&lock);
    comm->next = lost;
    lost = comm;
    pthread_mutex_unlock(&lock);
}

void cecl_comm_bury(ceclComm_t comm)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static ceclComm_t first, last;
    static int count;
    ceclComm_t oldest = NULL;

    memset(comm, 0, sizeof(*comm));
    pthread_mutex_lock(&lock);
    if (last)
        last->next = comm;
    else
        first = comm;
    last = comm;
    if (++count > GRAVES) {
        oldest = first;
        first = oldest->next;
        count--;
    }
    pthread_mutex_unlock(&lock);
    free(oldest);
}

void cecl_comm_set_async(ceclComm_t comm, ceclResult_t result, const char *message)
{
    pthread_mutex_lock(&comm->async_lock);
    if (atomic_load(&comm->async_result) == ceclSuccess) {
        snprintf(comm->async_message, sizeof(comm->async_message), "%s", message);
        atomic_store(&comm->async_result, (int)result);
        cecl_log(CECL_LOG_WARN, comm->rank, "communicator failed: %s", comm->async_message);
        cecl_mesh_wake(comm->mesh); /* the watchdog then notifies the peers and ends waits */
    }
    pthread_mutex_unlock(&comm->async_lock);
}

ceclResult_t cecl_comm_async(ceclComm_t comm)
{
    /* The message is written before the result and never again, so reading it needs no lock. */
    ceclResult_t result = (ceclResult_t)atomic_load(&comm->async_result);
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, comm->async_message);
}

ceclResult_t cecl_comm_cause(ceclComm_t comm, ceclResult_t result)
{
    const bool has_failed = atomic_load(&comm->async_result) != ceclSuccess;
    return result == ceclRemoteError && has_failed ? cecl_comm_async(comm) : result;
}

ceclResult_t cecl_comm_hear_kernels(ceclComm_t comm)
{
    const int late = cecl_flags_gave_up_on(&comm->engine.flags);
    if (late >= 0 && atomic_load(&comm->async_result) == ceclSuccess) {
        cecl_fail(
            ceclTimeout,
            "a small collective has waited more than %d ms (CECL_TIMEOUT_MS) for data of rank "
            "%d, which has begun its call, perhaps another one%s",
            comm->config.timeout_ms, late, cecl_comm_hint(comm));
        cecl_comm_set_async(comm, ceclTimeout, cecl_message());
    }
    return cecl_comm_async(comm);
}

ceclResult_t cecl_comm_break(ceclComm_t comm, ceclResult_t result)
{
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    cecl_comm_set_async(comm, result, words);
    return cecl_comm_async(comm);
}

void cecl_comm_lost_peer(ceclComm_t comm, ceclResult_t result)
{
    if (!cecl_flags_idle(&comm->engine.flags))
        cecl_fail(result, "%s; pending here: %s", cecl_message(), cecl_comm_last_call(comm));
    cecl_comm_set_async(comm, result, cecl_message());
}

void cecl_comm_compare_calls(ceclComm_t comm)
{
    struct cecl_history_difference difference;
    if (!cecl_history_differs(&comm->history, &difference))
        return;
    cecl_fail(ceclInvalidUsage,
              "rank %d made another call than this rank, or this one with another count, type, "
              "operation, root, options or group: call %u of this communicator, %s here%s",
              difference.rank, difference.call, difference.name, cecl_comm_hint(comm));
    cecl_comm_set_async(comm, ceclInvalidUsage, cecl_message());
}

ceclResult_t cecl_comm_hear(ceclComm_t comm)
{
    if (cecl_comm_hear_kernels(comm) == ceclSuccess) {
        const ceclResult_t news = cecl_mesh_news(comm->mesh);
        if (news != ceclSuccess)
            cecl_comm_lost_peer(comm, news);
        else
            cecl_comm_compare_calls(comm);
    }
    return cecl_comm_async(comm);
}

bool cecl_comm_owes_nothing(ceclComm_t comm)
{
    return cecl_comm_hear(comm) == ceclSuccess && cecl_flags_idle(&comm->engine.flags) &&
           !atomic_load(&comm->gave_pointers);
}

ceclResult_t cecl_comm_exchanged(ceclComm_t comm, ceclResult_t result)
{
    if (result == ceclSuccess || !cecl_mesh_broken(comm->mesh))
        return result;
    /* no effect if the watchdog has set a better error before */
    cecl_comm_set_async(comm, result, cecl_message());
    return cecl_comm_async(comm);
}

/* ---- questions */

static ceclResult_t tell(ceclComm_t comm, const char *name, int *out, int value)
{
    (void)comm;
    if (!out)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", name);
    *out = value;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclGetVersion(int *version)
{
    return tell(NULL, "version", version, CECL_VERSION);
}

CECL_API ceclResult_t ceclCommCount(ceclComm_t comm, int *count)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell(comm, "count", count, comm->nranks);
}

CECL_API ceclResult_t ceclCommUserRank(ceclComm_t comm, int *rank)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell(comm, "rank", rank, comm->rank);
}

CECL_API ceclResult_t ceclCommCuDevice(ceclComm_t comm, int *device)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell(comm, "device", device, comm->dev->ordinal);
}

CECL_API ceclResult_t ceclCommGetAsyncError(ceclComm_t comm, ceclResult_t *asyncError)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    if (!asyncError)
        return cecl_fail(ceclInvalidArgument, "asyncError: NULL");
    *asyncError = cecl_comm_hear(comm);
    return ceclSuccess;
}

CECL_API const char *ceclGetLastError(ceclComm_t comm)
{
    if (comm && comm->magic == CECL_COMM_MAGIC && atomic_load(&comm->async_result) != ceclSuccess)
        return comm->async_message;
    return cecl_message();
}

/* ---- the end */

/* Refuses when calls of a group that this thread began wait for its end: they would never be
 * carried out. */
static ceclResult_t check_group(ceclComm_t comm)
{
    const uint32_t waiting = cecl_group_waiting(comm);
    if (waiting > 0)
        return cecl_fail(ceclInvalidUsage,
                         "%u calls on this communicator wait for ceclGroupEnd, which this thread "
                         "has not called: they are not carried out",
                         waiting);
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommFinalize(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(check_group(comm));
    ceclResult_t result = cecl_watch_drain(comm, CECL_NO_DEADLINE);
    if (result == ceclSuccess)
        result = comm->dev->ops->streams_drain(comm->dev, CECL_NO_DEADLINE);
    if (result == ceclSuccess)
        comm->finalized = true;
    return result;
}

bool cecl_comm_end_pending(ceclComm_t comm, int64_t deadline)
{
    bool ended;
    do {
        cecl_watch_release(comm);
        (void)!cecl_watch_drain(comm, cecl_deadline(20));
        ended = cecl_flags_idle(&comm->engine.flags);
    } while (!ended && cecl_ms_left(deadline) != 0);
    return ended;
}

/* Ends the waits of what is pending, and frees. Memory that the device may still touch stays
 * mapped, because a leak is better than a fault. */
static void release_and_free(ceclComm_t comm)
{
    const int64_t deadline = cecl_deadline(CECL_RELEASED_MS);
    const bool drained = cecl_comm_end_pending(comm, deadline) &&
                         comm->dev->ops->streams_drain(comm->dev, deadline) == ceclSuccess;
    if (!drained)
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "work did not end %d ms after its release; its memory stays mapped",
                 CECL_RELEASED_MS);
    cecl_comm_free(comm, drained);
}

/* Ends `comm` in order, as far as that is possible. */
static ceclResult_t destroy(ceclComm_t comm)
{
    const int64_t bound = comm->config.timeout_ms > 0 ? comm->config.timeout_ms : TEARDOWN_MS;
    const int64_t deadline = cecl_deadline(bound + CECL_WATCH_SLACK_MS);
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = cecl_comm_async(comm);
    if (result == ceclSuccess) /* the watchdog is asked first, because it can name a late peer */
        result = cecl_watch_drain(comm, deadline);
    if (result != ceclSuccess) {
        cecl_keep_message(words);
        cecl_comm_set_async(comm, result, words);
        release_and_free(comm);
        return cecl_fail_with(result, words);
    }
    /* copies within this rank concern no peer */
    result = comm->dev->ops->streams_drain(comm->dev, deadline);
    cecl_keep_message(words);
    if (result != ceclSuccess)
        cecl_log(CECL_LOG_WARN, comm->rank, "%s: the communicator's memory stays mapped", words);
    cecl_comm_free(comm, result == ceclSuccess);
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

CECL_API ceclResult_t ceclCommDestroy(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    char words[CECL_MESSAGE_BYTES];
    const ceclResult_t grouped = check_group(comm);
    cecl_keep_message(words);
    cecl_group_forget(comm);
    CECL_TRY(destroy(comm));
    return grouped == ceclSuccess ? ceclSuccess : cecl_fail_with(grouped, words);
}

CECL_API ceclResult_t ceclCommRevoke(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    cecl_comm_set_async(comm, ceclRemoteError, "ceclCommRevoke was called");
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommAbort(ceclComm_t comm)
{
    CECL_TRY(cecl_comm_check_handle(comm));
    cecl_group_forget(comm);
    if (cecl_comm_owes_nothing(comm)) {
        const int64_t deadline = cecl_deadline(CECL_RELEASED_MS);
        cecl_comm_free(comm, comm->dev->ops->streams_drain(comm->dev, deadline) == ceclSuccess);
        return ceclSuccess;
    }
    cecl_comm_set_async(comm, ceclRemoteError, "ceclCommAbort was called");
    release_and_free(comm);
    return ceclSuccess;
}

void cecl_comm_take_back(ceclComm_t comm)
{
    cecl_comm_set_async(comm, ceclRemoteError, "another communicator of the group was not made");
    release_and_free(comm);
}
