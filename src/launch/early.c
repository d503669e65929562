/* Requests that are made ready: each rank signals before the start that its recvbuffs may be written.
 *
 *     ready    a signal to every peer, on the caller's stream. It waits for no call, and no call waits for
 *              it.
 *     start    runs a second program, which waits for these signals instead of the first barrier
 *              (plan/early.c). The signals usually arrived long before, so the start does not wait.
 *
 * Each rank waits for words in a slot of its own (flags/early.h). Requests that are made ready together use
 * the first request's slot, so one exchange of signals serves all of them.
 *
 * If a rank has no slot, or if the plan must keep its first barrier, making the request ready has no
 * effect: the request's start exchanges flags as any other start does. All ranks decide this alike. */
#include "ce/bound.h"
#include "launch/check.h"
#include "launch/launcher.h"
#include "launch/plan.h"
#include "launch/request.h"

/* ---- programs */

/* Makes a plan in which ranks push, even if the calls ask for another direction. */
static ceclResult_t make_plan(struct cecl_launch *launch, struct cecl_plan *plan)
{
    const uint8_t direction = launch->calls[0].options.direction;
    for (uint32_t i = 0; i < launch->nfull; i++)
        launch->calls[i].options.direction = CECL_DIRECTION_PUSH;
    const ceclResult_t result =
        cecl_plan_make(launch->comm, launch->calls, launch->nfull, &launch->told, plan);
    for (uint32_t i = 0; i < launch->nfull; i++)
        launch->calls[i].options.direction = direction;
    return result;
}

static ceclResult_t bind_signals(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    const struct cecl_part part = {.call = launch->calls[0]};
    uint32_t k[CECL_MAX_RANKS];
    struct cecl_plan plan;
    for (uint32_t r = 0; r < (uint32_t)launch->comm->nranks; r++)
        k[r] = 1 + 2 * r; /* the index of rank r's value in `given`; the slot is just before it */
    CECL_TRY(cecl_plan_ready(&part, CECL_COUNTER_EARLY, k, &plan));
    const ceclResult_t result = cecl_engine_bind(&launch->comm->engine, launch->calls,
                                                 &launch->told, &plan, &request->early.signals);
    cecl_plan_free(&plan);
    return result;
}

static ceclResult_t bind_program(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    struct cecl_early_part *early = &request->early;
    struct cecl_plan plan;
    CECL_TRY(make_plan(launch, &plan));
    early->may = cecl_plan_may_be_early(&plan);
    ceclResult_t result = ceclSuccess;
    if (early->may) {
        cecl_plan_make_early(&plan, CECL_COUNTER_EARLY, 1);
        result = cecl_engine_bind(&launch->comm->engine, launch->calls, &launch->told, &plan,
                                  &early->program);
    }
    cecl_plan_free(&plan);
    return result;
}

/* Makes the programs of an early start. May wait for new memory of peers, as the first start does. */
static ceclResult_t prepare(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    struct cecl_early_part *early = &request->early;
    if (!request->is_bound)
        CECL_TRY(cecl_request_bind(request));
    if (!early->may || early->program)
        return ceclSuccess;
    cecl_launch_bound_waits(launch);
    ceclResult_t result = bind_program(request);
    if (result == ceclSuccess && early->may)
        result = bind_signals(request);
    launch->comm->launcher->making = NULL;
    if (result != ceclSuccess)
        return cecl_request_unbound(request, result);
    cecl_registry_made(&launch->comm->registry);
    return ceclSuccess;
}

/* ---- making ready */

static ceclResult_t signal_all(ceclRequest_t request, ceclStream_t stream)
{
    struct cecl_engine *engine = &request->comm->engine;
    const struct cecl_device_ops *ops = engine->dev->ops;
    struct cecl_early_part *early = &request->early;
    struct cecl_bound *signals = early->signals;
    ceclStream_t work;
    CECL_TRY(ops->stream_fork(engine->dev, stream, &work));
    early->count++;
    early->value++;
    for (int r = 0; r < engine->nranks; r++) {
        early->given[2 * r] = early->slots[r] >> 32;
        early->given[2 * r + 1] = (uint32_t)early->slots[r] + early->count;
    }
    cecl_cells_fill(signals->cells, signals->ncells, engine->flags.epoch, early->given);
    const ceclResult_t result = cecl_bound_issue(engine, signals, work),
                       joined = ops->stream_join(engine->dev, stream, work);
    return result != ceclSuccess ? result : joined;
}

static ceclResult_t check_one(ceclRequest_t request, ceclRequest_t first)
{
    if (request->comm != first->comm)
        return cecl_fail(ceclInvalidUsage,
                         "request %p: on a different communicator than requests[0]",
                         (void *)request);
    if (request->messages || !request->collectives || !cecl_early_gathers(request->collectives))
        return cecl_fail(ceclInvalidUsage,
                         "request %p: ceclReady takes only requests of ceclAllGather, "
                         "ceclAllGatherStrided and ceclAllGatherv",
                         (void *)request);
    if (request->is_ready)
        return cecl_fail(ceclInvalidUsage,
                         "request %p: already made ready, and not started since; start it first",
                         (void *)request);
    return cecl_request_check_memory(request);
}

static ceclResult_t check(ceclRequest_t *requests, int count, ceclStream_t stream)
{
    ceclComm_t comm = requests[0]->comm;
    for (int i = 0; i < count; i++)
        CECL_TRY(check_one(requests[i], requests[0]));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (requests[i] == requests[j])
                return cecl_fail(ceclInvalidArgument,
                                 "requests[%d] and requests[%d] are the same request", i, j);
    return comm->dev->ops->stream_check(comm->dev, stream, NULL);
}

static ceclResult_t compare(ceclRequest_t *requests, int count, ceclResult_t local)
{
    struct cecl_call ready = {.op = &cecl_ops[CECL_OP_READY]};
    for (int i = 0; i < count; i++)
        ready.count = ready.count * 31 + requests[i]->number;
    return cecl_check_call(requests[0]->comm, &ready, local);
}

ceclResult_t cecl_requests_ready(ceclRequest_t *requests, int count, ceclStream_t stream)
{
    ceclComm_t comm = requests[0]->comm;
    ceclResult_t result = check(requests, count, stream);
    if (comm->config.check)
        result = compare(requests, count, result);
    CECL_TRY(result);
    bool may = true;
    for (int i = 0; i < count; i++) {
        CECL_TRY(prepare(requests[i]));
        may = may && requests[i]->early.may;
    }
    const struct cecl_early_part *first = &requests[0]->early;
    if (may) {
        result = signal_all(requests[0], stream);
        if (result != ceclSuccess) /* some peers may have a signal, and others not */
            return cecl_comm_break(comm, result);
    }
    for (int i = 0; i < count; i++) {
        requests[i]->is_ready = true;
        requests[i]->early.awaited[0] = first->slot;
        requests[i]->early.awaited[1] = first->value;
        requests[i]->early.is_awaited = may;
    }
    return ceclSuccess;
}
