/* The states of a launch, and how it is given up. */
#include <assert.h>

#include "launch/launcher.h"
#include "util/clock.h"

bool cecl_launch_may(enum cecl_launch_state from, enum cecl_launch_state to)
{
    static const bool may[CECL_LAUNCH_STATES][CECL_LAUNCH_STATES] = {
        [CECL_LAUNCH_DESCRIBED] =
            {[CECL_LAUNCH_TOLD] = true, [CECL_LAUNCH_BOUND] = true, [CECL_LAUNCH_BROKEN] = true},
        [CECL_LAUNCH_TOLD] = {[CECL_LAUNCH_OWED] = true, [CECL_LAUNCH_BROKEN] = true},
        [CECL_LAUNCH_BOUND] =
            {[CECL_LAUNCH_OWED] = true, [CECL_LAUNCH_ENQUEUED] = true, [CECL_LAUNCH_BROKEN] = true},
        [CECL_LAUNCH_OWED] = {[CECL_LAUNCH_ENQUEUED] = true, [CECL_LAUNCH_BROKEN] = true},
    };
    return may[from][to];
}

void cecl_launch_go(struct cecl_launch *launch, enum cecl_launch_state to)
{
    assert(cecl_launch_may((enum cecl_launch_state)launch->state, to));
    launch->state = (uint8_t)to;
}

void cecl_launch_owe(struct cecl_launch *launch)
{
    if (launch->state == CECL_LAUNCH_DESCRIBED || launch->state == CECL_LAUNCH_BOUND)
        cecl_launch_go(launch,
                       launch->state == CECL_LAUNCH_BOUND ? CECL_LAUNCH_OWED : CECL_LAUNCH_TOLD);
}

void cecl_launch_bound(struct cecl_launch *launch)
{
    cecl_launch_go(launch, cecl_launch_is_owed(launch) ? CECL_LAUNCH_OWED : CECL_LAUNCH_BOUND);
}

ceclResult_t cecl_launch_give_up(struct cecl_launch *launch, ceclResult_t result)
{
    ceclComm_t comm = launch->comm;
    const bool is_owed = cecl_launch_is_owed(launch);
    if (!cecl_launch_may((enum cecl_launch_state)launch->state, CECL_LAUNCH_BROKEN) ||
        cecl_launch_is_left(launch))
        return result;
    cecl_launch_go(launch, CECL_LAUNCH_BROKEN);
    launch->is_open = false;
    cecl_registry_made(&comm->registry);
    return is_owed ? cecl_comm_break(comm, result) : cecl_comm_cause(comm, result);
}

bool cecl_launch_goes_on(void *context)
{
    ceclComm_t comm = context;
    const struct cecl_launch *launch = comm->launcher->making;
    return atomic_load(&comm->async_result) == ceclSuccess &&
           (!launch || (cecl_ms_left(launch->deadline) != 0 && cecl_launch_gone(launch) < 0));
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
