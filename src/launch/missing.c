/* Ranks for which the host waits in vain. */
#include "launch/captured.h"
#include "launch/launcher.h"

/* Whether a rank made another call instead, or has left. It may have made the request just before. */
static bool does_not_come(const struct cecl_launch *launch, int rank)
{
    ceclComm_t comm = launch->comm;
    return (cecl_history_is_ahead(&comm->history, rank) || cecl_mesh_left(comm->mesh, rank)) &&
           cecl_places_missing(launch->ring, &launch->places, rank) == rank;
}

int cecl_launch_gone(const struct cecl_launch *launch)
{
    int rank = launch->is_request ? cecl_places_missing(launch->ring, &launch->places, 0) : -1;
    while (rank >= 0 && !does_not_come(launch, rank))
        rank = cecl_places_missing(launch->ring, &launch->places, rank + 1);
    return rank;
}

/* A wait has ended because of ranks that did not make this request. */
static ceclResult_t say_missing(const struct cecl_launch *launch, int missing)
{
    const char *name = launch->calls[0].op->name;
    const int gone = cecl_launch_gone(launch);
    if (gone >= 0 && !cecl_mesh_left(launch->comm->mesh, gone))
        return cecl_fail(
            ceclInvalidUsage,
            "rank %d made another call, and not this request of %s: ranks make requests "
            "and calls in the same order%s",
            gone, name, cecl_comm_hint(launch->comm));
    if (gone >= 0)
        return cecl_fail(ceclRemoteError,
                         "rank %d has left, and a request of %s waits for it: its process or its "
                         "communicator ended",
                         gone, name);
    return cecl_fail(
        ceclTimeout,
        "%s: rank %d did not come to make this request within %d ms of its first start "
        "here (CECL_TIMEOUT_MS)",
        name, missing, launch->comm->config.timeout_ms);
}

ceclResult_t cecl_launch_wait_ended(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const int missing =
        launch->is_request ? cecl_places_missing(launch->ring, &launch->places, 0) : -1;
    CECL_TRY(cecl_comm_async(comm));
    const ceclResult_t result = launch->is_captured ? cecl_captured_name_missing(launch)
                                : missing >= 0
                                    ? say_missing(launch, missing)
                                    : cecl_fail(ceclTimeout,
                                                "%s: a rank did not make the calls before this one "
                                                "within %d ms (CECL_TIMEOUT_MS)",
                                                launch->calls[0].op->name, comm->config.timeout_ms);
    cecl_comm_set_async(comm, result, cecl_message());
    return cecl_comm_async(comm);
}
