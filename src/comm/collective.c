/* From the arguments of a public call to the stream: a call is described, checked, looked up or
 * lowered and bound, and issued. What a collective does is no matter of this file. */
#include "comm/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ce/lower.h"
#include "comm/check.h"
#include "comm/trace.h"
#include "tune/choose.h"
#include "util/log.h"

/* Whether a copy engine runs the copies that this call would make within a GPU. A call of
 * strided blocks makes contiguous copies too. */
static bool engine_copies(ceclComm_t comm, const struct cecl_call *call)
{
    const uint32_t wanted =
        CECL_LOCAL_CONTIGUOUS | (call->view.shape.width > 0 ? CECL_LOCAL_ROWS : 0u);
    return (comm->local_copies & wanted) == wanted;
}

struct cecl_part cecl_comm_part(ceclComm_t comm, const struct cecl_call *call)
{
    struct cecl_part part = {
        .call = *call,
        .means = {.tuning = &comm->tuning,
                  .staging_bytes = (uint64_t)comm->config.staging_bytes,
                  .slots_offset = comm->engine.slots_offset,
                  .slot_bytes = comm->engine.slot_bytes,
                  .half = cecl_engine_half(&comm->engine),
                  .engine_copies_locally = engine_copies(comm, call)},
    };
    cecl_choose(call, &part.means, &part.way);
    return part;
}

static ceclResult_t lower(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                          struct cecl_plan *plan)
{
    struct cecl_part *parts = calloc(count, sizeof(*parts));
    if (!parts)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = cecl_comm_part(comm, &calls[i]);
    const ceclResult_t result = cecl_lower_group(parts, count, plan);
    free(parts);
    return result;
}

/* A reduction needs SMs on some rank: all ranks refuse it, those too that have nothing to reduce. */
static ceclResult_t check_arithmetic(const struct cecl_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].options.sm_policy == CECL_SM_NEVER && calls[i].op->reduces &&
            (calls[i].nranks > 1 || !calls[i].in_place))
            return cecl_fail(ceclInvalidUsage,
                             "CECL_SM_NEVER: this call needs an SM: arithmetic does");
    return ceclSuccess;
}

static bool needs_forbidden_sm(const struct cecl_plan *plan)
{
    for (uint32_t i = 0; i < plan->ncopies; i++) {
        const struct cecl_copy *copy = &plan->copies[i];
        if (cecl_copy_needs_sm(plan, copy) &&
            cecl_plan_part(plan, cecl_copy_part(copy))->call.options.sm_policy == CECL_SM_NEVER)
            return true;
    }
    return false;
}

static ceclResult_t make_plan(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              struct cecl_bound **bound)
{
    struct cecl_plan plan;

    CECL_TRY(check_arithmetic(calls, count));
    CECL_TRY(lower(comm, calls, count, &plan));
    ceclResult_t result = ceclSuccess;
    if (needs_forbidden_sm(&plan))
        result =
            cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM: %s", plan.reason);
    if (result == ceclSuccess)
        result = cecl_engine_bind(&comm->engine, calls, count, &plan, bound);
    if (result == ceclSuccess && cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&plan, stderr);
    cecl_plan_free(&plan);
    return result;
}

static ceclResult_t check_buffers(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(cecl_call_check_buffers(&calls[i], &comm->pool));
    return count > 1 ? cecl_calls_check_apart(calls, count, &comm->pool) : ceclSuccess;
}

/* A call without effect moves nothing, alone or in a group: calls are sorted so. */
static uint32_t count_full(const struct cecl_call *calls, uint32_t count)
{
    uint32_t full = 0;
    while (full < count && !cecl_call_is_empty(&calls[full]))
        full++;
    return full;
}

/* The kept plan, or a new one. Where buffers lie is checked when a plan is made, and again after memory
 * was freed. */
static ceclResult_t find_plan(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              struct cecl_bound **bound)
{
    bool stale = false;
    *bound = NULL;
    if (count == 0)
        return ceclSuccess;
    struct cecl_bound *found = cecl_engine_lookup(&comm->engine, calls, count, &stale);
    if (!found || stale)
        CECL_TRY(check_buffers(comm, calls, count));
    if (!found)
        return make_plan(comm, calls, count, bound);
    if (stale)
        cecl_engine_refresh(&comm->engine, found);
    *bound = found;
    return ceclSuccess;
}

ceclResult_t cecl_calls_prepare(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclStream_t stream, struct cecl_bound **bound)
{
    ceclResult_t result = find_plan(comm, calls, count_full(calls, count), bound);
    if (!comm->config.check)
        return result;
    if (result == ceclSuccess) /* nobody enqueues unless everybody can */
        result = comm->dev->ops->stream_check(comm->dev, stream);
    return cecl_check_calls(comm, calls, count, result);
}

ceclResult_t cecl_calls_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation)
{
    struct cecl_bound *bound;
    CECL_TRY(find_plan(comm, calls, count_full(calls, count), &bound));
    if (bound)
        *explanation = *cecl_bound_explanation(bound);
    else
        *explanation =
            (ceclExplanation_t){.zeroSm = 1, .path = "nothing to do", .reason = "count is 0"};
    return ceclSuccess;
}

const char *cecl_bound_path(const struct cecl_bound *bound)
{
    return bound ? cecl_bound_explanation(bound)->path : "nothing to do";
}

ceclResult_t cecl_calls_issue(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream)
{
    bool started;
    const ceclResult_t result = cecl_engine_run(&comm->engine, bound, stream, &started);
    if (result != ceclSuccess && started) /* peers wait for what will not come */
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

/* ---- one public call */

/* All that this rank may refuse comes before ranks tell each other places, so that all hear of it. */
static ceclResult_t learn_places(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream,
                                 ceclResult_t result)
{
    const struct cecl_traced traced = cecl_trace_begin(comm, call->op->asks_places);
    if (result == ceclSuccess)
        result = cecl_call_check_buffers(call, &comm->pool);
    if (result == ceclSuccess)
        result = comm->dev->ops->stream_check(comm->dev, stream);
    if (comm->config.check) /* ranks in other calls are found first */
        result = cecl_check_calls(comm, call, 1, result);
    if (!comm->config.check || result == ceclSuccess)
        result = cecl_places_exchange(comm, call, comm->layout, result);
    cecl_trace_end(&traced, 0, 0, "exchange among the hosts", result);
    return result;
}

static ceclResult_t refuse_in_group(const struct cecl_op *op)
{
    return op->asks_places ? cecl_fail(ceclInvalidUsage,
                                       "%s waits for the peers' hosts, which a group cannot: "
                                       "%s may be grouped",
                                       op->name, op->in_group)
                           : ceclSuccess;
}

/* Kept for the end of the group, or carried out; *path tells the timeline. */
static ceclResult_t make_call(const struct cecl_args *args, ceclComm_t comm, ceclStream_t stream,
                              struct cecl_call *call, const char **path)
{
    const struct cecl_scope scope = cecl_comm_scope(comm);
    struct cecl_bound *bound = NULL;
    const struct cecl_op *op = call->op;
    *path = "refused";
    ceclResult_t result = cecl_call_describe(op, &scope, args, call);
    if (cecl_group_is_open()) {
        if (result == ceclSuccess)
            result = refuse_in_group(op);
        *path = result == ceclSuccess ? "kept for the group's end" : *path;
        return cecl_group_add(comm, call, stream, result);
    }
    if (op->asks_places)
        CECL_TRY(learn_places(comm, call, stream, result)); /* every rank knows */
    if (result != ceclSuccess)
        return cecl_check_calls(comm, call, 1, result);
    CECL_TRY(cecl_calls_prepare(comm, call, 1, stream, &bound));
    *path = cecl_bound_path(bound);
    if (!bound)
        return ceclSuccess;
    cecl_comm_called(comm, op->name);
    return cecl_calls_issue(comm, bound, stream);
}

ceclResult_t cecl_collective(enum cecl_op_index index, const struct cecl_args *args,
                             ceclComm_t comm, ceclStream_t stream)
{
    const struct cecl_op *op = &cecl_ops[index];
    struct cecl_call call = {.op = op};
    const char *path;
    const ceclResult_t usable = cecl_comm_check(comm);
    if (usable != ceclSuccess) /* a group with such a call in it is refused as a whole */
        return cecl_group_is_open() ? cecl_group_add(comm, &call, stream, usable) : usable;
    const struct cecl_traced traced = cecl_trace_begin(comm, op->name);
    const ceclResult_t result = make_call(args, comm, stream, &call, &path);
    if (traced.trace) {
        uint64_t send_bytes = 0, recv_bytes = 0;
        if (result == ceclSuccess) /* a refused call may be described in part */
            cecl_call_sizes(&call, &send_bytes, &recv_bytes);
        cecl_trace_end(&traced, send_bytes, recv_bytes, path, result);
    }
    return result;
}
