/* The public functions that ask about a communicator, and those that end it. */

#include "api/life.h"
#include "launch/group.h"
#include "net/net.h"
#include "util/clock.h"
#include "util/log.h"

#define TEARDOWN_MS 30000 /* ceclCommDestroy's time limit, if the communicator has none */

/* ---- questions */

static ceclResult_t tell(const char *name, int *out, int value)
{
    CECL_TRY(cecl_check_given(name, out));
    *out = value;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclGetVersion(int *version)
{
    CECL_PUBLIC;
    return tell("version", version, CECL_VERSION);
}

CECL_API ceclResult_t ceclCommCount(ceclComm_t comm, int *count)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell("count", count, comm->nranks);
}

CECL_API ceclResult_t ceclCommUserRank(ceclComm_t comm, int *rank)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell("rank", rank, comm->rank);
}

CECL_API ceclResult_t ceclCommCuDevice(ceclComm_t comm, int *device)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    return tell("device", device, comm->dev->ordinal);
}

CECL_API ceclResult_t ceclCommNodes(ceclComm_t comm, int *nodes)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(cecl_check_given("nodes", nodes));
    for (int rank = 0; rank < comm->nranks; rank++)
        nodes[rank] = comm->net ? comm->net->host[rank] : 0;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommGetAsyncError(ceclComm_t comm, ceclResult_t *asyncError)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(cecl_check_given("asyncError", asyncError));
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

CECL_API ceclResult_t ceclCommFinalize(ceclComm_t comm)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_group_check_waiting(comm, "finalize after it"));
    CECL_INSIDE(comm, "ceclCommFinalize");
    CECL_TRY(cecl_watch_drain(comm, CECL_NO_DEADLINE));
    CECL_TRY(comm->dev->ops->streams_drain(comm->dev, CECL_NO_DEADLINE));
    comm->finalized = true;
    return ceclSuccess;
}

bool cecl_comm_end_pending(ceclComm_t comm, int64_t deadline)
{
    bool ended;
    do {
        cecl_watch_release(comm);
        (void)!cecl_watch_drain(comm, cecl_deadline(20));
        ended = cecl_comm_is_done(comm);
    } while (!ended && cecl_ms_left(deadline) != 0);
    return ended;
}

/* Ends the waits of pending work, and frees the communicator. If work is still pending after CECL_RELEASED_MS, the
 * memory that the work may use stays mapped. */
static void release_and_free(ceclComm_t comm)
{
    const int64_t deadline = cecl_deadline(CECL_RELEASED_MS);
    const bool drained = cecl_comm_end_pending(comm, deadline) &&
                         comm->dev->ops->streams_drain(comm->dev, deadline) == ceclSuccess;
    if (!drained)
        cecl_log(CECL_LOG_WARN, comm->rank,
                 "work did not end within %d ms after its release; its memory stays mapped",
                 CECL_RELEASED_MS);
    cecl_comm_free(comm, drained);
}

/* Ends `comm`: waits for pending work, says goodbye to the peers, and frees the communicator. */
static ceclResult_t destroy(ceclComm_t comm)
{
    const int64_t bound = comm->config.timeout_ms > 0 ? comm->config.timeout_ms : TEARDOWN_MS;
    const int64_t deadline = cecl_deadline(bound + CECL_WATCH_SLACK_MS);
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t result = cecl_comm_async(comm);
    if (result == ceclSuccess) /* this wait comes first: its message can name a late peer */
        result = cecl_watch_drain(comm, deadline);
    if (result != ceclSuccess) {
        cecl_keep_message(words);
        cecl_comm_set_async(comm, result, words);
        release_and_free(comm);
        return cecl_fail_with(result, words);
    }
    /* now no call that waits for peers is pending, only other work on this communicator's streams */
    result = comm->dev->ops->streams_drain(comm->dev, deadline);
    cecl_keep_message(words);
    if (result != ceclSuccess)
        cecl_log(CECL_LOG_WARN, comm->rank, "%s: the communicator's memory stays mapped", words);
    const uint32_t held = cecl_comm_free(comm, result == ceclSuccess);
    if (result == ceclSuccess && held > 0)
        return cecl_fail(ceclInvalidUsage,
                         "graphs hold %u captured calls of the communicator, which has ended: its "
                         "memory stays mapped; destroy the graphs before the communicator",
                         held);
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

CECL_API ceclResult_t ceclCommDestroy(ceclComm_t comm)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    char words[CECL_MESSAGE_BYTES];
    const ceclResult_t grouped = cecl_group_check_waiting(comm, "they are not carried out");
    cecl_keep_message(words);
    cecl_group_forget(comm);
    CECL_TRY(destroy(comm));
    return grouped == ceclSuccess ? ceclSuccess : cecl_fail_with(grouped, words);
}

CECL_API ceclResult_t ceclCommRevoke(ceclComm_t comm)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    cecl_comm_set_async(
        comm, ceclRemoteError,
        "ceclCommRevoke was called (in NCCL's place: by ncclCommAbort, ncclCommRevoke, or "
        "after an error that this rank logged)");
    return ceclSuccess;
}

CECL_API ceclResult_t ceclCommAbort(ceclComm_t comm)
{
    CECL_PUBLIC;
    CECL_TRY(cecl_comm_check_handle(comm));
    cecl_group_forget(comm);
    /* if no call is pending, peers have all that they need from this rank, so only their later calls with it fail */
    if (cecl_comm_hear(comm) == ceclSuccess && cecl_comm_is_done(comm) &&
        !atomic_load(&comm->gave_pointers)) {
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
