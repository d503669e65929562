/* What happens when launches fail, and how long the host waits for peers. */
#include "launch/launcher.h"
#include "launch/make.h"
#include "util/clock.h"

void cecl_launches_begin(struct cecl_launches *all, const struct cecl_op *op)
{
    all->first = NULL;
    all->op = op;
    all->pending_ns = UINT64_MAX; /* no limit but the communicator's threshold */
    all->failed = ceclSuccess;
    all->failed_on = NULL;
}

ceclResult_t cecl_launches_note(struct cecl_launches *all, ceclComm_t comm, ceclResult_t result)
{
    if (result != ceclSuccess && all->failed == ceclSuccess) {
        all->failed = result;
        all->failed_on = comm;
        cecl_keep_message(all->words);
    }
    return result;
}

struct cecl_launch *cecl_launches_of(struct cecl_launch *first, const struct ceclComm *comm)
{
    while (first && first->comm != comm)
        first = first->next;
    return first;
}

ceclResult_t cecl_launches_failure(const struct cecl_launches *all, ceclComm_t comm)
{
    if (all->failed == ceclSuccess)
        return ceclSuccess;
    if (!all->failed_on || all->failed_on == comm)
        return cecl_fail_with(all->failed, all->words);
    return cecl_fail(all->failed, "its group failed on another communicator: %.440s", all->words);
}

ceclResult_t cecl_launch_give_up(struct cecl_launch *launch, ceclResult_t result)
{
    ceclComm_t comm = launch->comm;
    if (launch->state != CECL_LAUNCH_BEGUN || cecl_launch_is_left(launch))
        return result;
    launch->state = CECL_LAUNCH_BROKEN;
    cecl_registry_made(&comm->registry);
    return launch->is_owed ? cecl_comm_break(comm, result) : cecl_comm_cause(comm, result);
}

/* ---- waiting */

/* Whether a rank has left, or has made a different call, without publishing this call. Checks the places last: a rank
 * that has published, and only then left or made its next call, has come. */
static bool does_not_come(const struct cecl_launch *launch, int rank)
{
    ceclComm_t comm = launch->comm;
    return (cecl_history_is_ahead(&comm->history, rank) || cecl_mesh_left(comm->mesh, rank)) &&
           cecl_places_missing(&comm->launcher->places, &launch->places, rank) == rank;
}

static int missing_from(const struct cecl_launch *launch, int rank)
{
    return cecl_places_missing(&launch->comm->launcher->places, &launch->places, rank);
}

/* The first rank that has not published this captured call; -1: there is none, or the call is not captured. Only
 * captured calls need all ranks, so only in them the host waits until the time limit. */
static int awaited(const struct cecl_launch *launch)
{
    return launch->is_captured && launch->is_open ? missing_from(launch, 0) : -1;
}

/* The first rank that will not come to this captured call: it has left or made another call. -1: there is none. */
static int gone_of(const struct cecl_launch *launch)
{
    int rank = awaited(launch);
    while (rank >= 0 && !does_not_come(launch, rank))
        rank = missing_from(launch, rank + 1);
    return rank;
}

/* The error of a time limit. Names all ranks, from `missing` on, that have not captured the call. */
static ceclResult_t say_late(const struct cecl_launch *launch, int missing)
{
    struct cecl_rank_list late = {.count = 0};
    for (int r = missing; r >= 0; r = missing_from(launch, r + 1))
        cecl_rank_list_add(&late, r);
    return cecl_comm_add_cure(
        launch->comm,
        cecl_fail(
            ceclTimeout,
            "%s has waited for %s for %d ms (CECL_TIMEOUT_MS); did every rank capture the call?",
            launch->calls[0].op->name, cecl_rank_list_words(&late),
            launch->comm->config.timeout_ms),
        "a thread that has several ranks puts their calls into one group");
}

/* The error of a wait for ranks that have not captured this call. */
static ceclResult_t say_missing(const struct cecl_launch *launch, int missing)
{
    const char *const name = launch->calls[0].op->name;
    const int gone = gone_of(launch);
    if (gone >= 0 && !cecl_mesh_left(launch->comm->mesh, gone))
        return cecl_fail(
            ceclInvalidUsage,
            "rank %d made a different call instead of this captured %s: all ranks must "
            "make calls in the same order%s",
            gone, name, cecl_comm_hint(launch->comm));
    if (gone >= 0)
        return cecl_fail(ceclRemoteError, CECL_COMM_HAS_LEFT("a captured %s waits for it"), gone,
                         name);
    return say_late(launch, missing);
}

ceclResult_t cecl_launch_wait_ended(const struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    const int missing = awaited(launch);
    CECL_TRY(cecl_comm_async(comm));
    return cecl_comm_break(
        comm, missing >= 0 ? say_missing(launch, missing)
                           : cecl_fail(ceclTimeout,
                                       "%s: a rank did not make the calls before this one "
                                       "within %d ms (CECL_TIMEOUT_MS)",
                                       launch->calls[0].op->name, comm->config.timeout_ms));
}

bool cecl_launch_goes_on(void *context)
{
    ceclComm_t comm = context;
    const struct cecl_launch *launch = comm->launcher->making;
    return atomic_load(&comm->async_result) == ceclSuccess &&
           (!launch || (cecl_ms_left(launch->deadline) != 0 && gone_of(launch) < 0));
}

bool cecl_launch_captures(const void *context)
{
    const struct cecl_launch *launch = ((const struct ceclComm *)context)->launcher->making;
    return launch && launch->is_captured;
}

void cecl_launch_bound_waits(struct cecl_launch *launch)
{
    launch->deadline = cecl_deadline(launch->comm->config.timeout_ms);
    launch->comm->launcher->making = launch;
}
