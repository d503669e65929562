/* Makes and frees launchers; see launcher.h. */
#include "launch/steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "launch/exchange.h"
#include "launch/messages.h"
#include "util/grow.h"
#include "util/log.h"

#define GONE_MS 2000

bool cecl_launcher_new(ceclComm_t comm)
{
    struct cecl_launcher *launcher = calloc(1, sizeof(*launcher));
    comm->launcher = launcher;
    if (!launcher)
        return false;
    launcher->gone_ms = GONE_MS;
    launcher->layout = calloc(CECL_LAYOUT_WORDS_MAX(comm->nranks), sizeof(*launcher->layout));
    launcher->exchange = cecl_exchange_room(comm->nranks);
    return cecl_launch_spare(comm) && launcher->layout && launcher->exchange;
}

ceclResult_t cecl_launcher_open(ceclComm_t comm)
{
    struct cecl_places *places = &comm->launcher->places;
    cecl_places_open(places, cecl_shared_at(&comm->shared, CECL_SHARED_PLACES), comm->rank,
                     comm->nranks);
    places->most_spent_ns = cecl_tuning_get(&comm->tuning, CECL_TUNE_LATE_PENDING_SUM_NS);
    return cecl_messenger_open(comm);
}

ceclResult_t cecl_once_reserve(struct cecl_once *once, uint32_t ngiven)
{
    if (ngiven > once->given_room && cecl_list_grow(&once->given, ngiven * sizeof(*once->given)))
        once->given_room = ngiven;
    return ngiven <= once->given_room
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for %u values of a call", ngiven);
}

/* Sets the plan's fields each time, because a lowering that runs out of host memory frees and zeroes the plan. */
struct cecl_plan *cecl_once_plan(ceclComm_t comm, bool captured, bool aside)
{
    struct cecl_plan *plan = &comm->launcher->once.plan;
    plan->part.call.rank = comm->rank;
    plan->part.call.nranks = comm->nranks;
    plan->part.call.captured = captured;
    plan->aside = aside;
    return plan;
}

ceclResult_t cecl_once_bind(ceclComm_t comm, const struct cecl_ends *ends)
{
    struct cecl_once *once = &comm->launcher->once;
    if (cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&once->plan, stderr);
    CECL_TRY(cecl_bound_reserve(&once->bound, &once->plan));
    once->bound.ends = ends;
    once->bound.given = once->given;
    return cecl_bind_plan(&comm->engine, &once->plan, &once->bound);
}

void cecl_launcher_free(ceclComm_t comm, bool drained)
{
    struct cecl_launcher *launcher = comm->launcher;
    if (!launcher || !drained) /* pending work may still use the launcher's memory */
        return;
    cecl_launch_free_list(launcher->spare);
    cecl_launch_free_list(atomic_load(&launcher->returned));
    for (int s = 0; s < CECL_KEPT_SETS; s++)
        for (int w = 0; w < CECL_KEPT_WAYS; w++)
            if (launcher->kept[s][w])
                cecl_launch_free(launcher->kept[s][w]);
    free(launcher->one_sided.waits);
    cecl_plan_free(&launcher->once.plan);
    free(launcher->once.bound.memory);
    free(launcher->once.given);
    if (comm->dev) {
        cecl_bounces_close(comm);
        cecl_messenger_close(comm);
    }
    free(launcher->layout);
    free(launcher->exchange);
    free(launcher);
    comm->launcher = NULL;
}
