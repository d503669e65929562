/* From the arguments of a public call to the stream: a call is described, checked, looked up or
 * else lowered and bound, and issued. This file does not know what a collective does. */
#include "comm/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce/lower.h"
#include "comm/check.h"
#include "comm/trace.h"
#include "tune/choose.h"
#include "util/log.h"

/* Whether a copy engine runs the copies that this call would make within a GPU. A call
 * of strided blocks makes contiguous copies too. */
static bool engine_copies(ceclComm_t comm, const struct cecl_call *call)
{
    const uint32_t wanted =
        CECL_LOCAL_CONTIGUOUS | (call->view.shape.width > 0 ? CECL_LOCAL_ROWS : 0u);
    return (comm->local_copies & wanted) == wanted;
}

/* Whether some ranks' own blocks have still to come into their recvbuffs, and others' have not. */
static bool some_differ(const struct cecl_part *part)
{
    for (int r = 0; part->outside && r < part->call.nranks; r++)
        if (cecl_part_is_outside(part, r) != cecl_part_is_outside(part, 0))
            return true;
    return false;
}

struct cecl_part cecl_comm_part(ceclComm_t comm, const struct cecl_call *call,
                                const struct cecl_told *told, uint32_t index)
{
    struct cecl_part part = {
        .call = *call,
        .means = {.tuning = &comm->tuning,
                  .staging_bytes = (uint64_t)comm->config.staging_bytes,
                  .slots_offset = comm->engine.slots_offset,
                  .slot_bytes = comm->engine.slot_bytes,
                  .host_bytes = comm->hosted.half_bytes,
                  .half = cecl_engine_half(&comm->engine),
                  .engine_copies_locally = engine_copies(comm, call),
                  .shares_gpu = comm->shares_gpu,
                  .inputs_readable = told && told->inputs_readable,
                  .late = told && told->late},
        .earlier = told ? told->earlier : 0,
        .send_at = told && told->nsend_at > 0 ? told->send_at + (size_t)index * (size_t)comm->nranks
                                              : NULL,
        .outside = told && told->noutside > 0
                       ? told->outside + (size_t)index * cecl_outside_words(comm->nranks)
                       : NULL,
    };
    part.means.some_outside = !part.means.late && some_differ(&part);
    if (call->op->carries) {
        part.means.staging_offset = comm->engine.carry_offset;
        part.means.staging_bytes = comm->engine.carry_bytes;
    }
    cecl_choose(call, &part.means, &part.way);
    return part;
}

bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call)
{
    const struct cecl_part part = cecl_comm_part(comm, call, NULL, 0);
    return cecl_way_keeps_to_own_buffers(&part.way);
}

static ceclResult_t lower(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                          const struct cecl_told *told, struct cecl_plan *plan)
{
    struct cecl_part *parts = calloc(count, sizeof(*parts));
    if (!parts)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = cecl_comm_part(comm, &calls[i], told, i);
    const ceclResult_t result = cecl_lower_group(parts, count, plan);
    free(parts);
    return result;
}

/* A reduction needs SMs on some rank. So all ranks refuse it, even ranks that have nothing to
 * reduce. */
static ceclResult_t check_arithmetic(const struct cecl_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].options.sm_policy == CECL_SM_NEVER && calls[i].op->reduces &&
            (calls[i].nranks > 1 || !calls[i].in_place))
            return cecl_fail(ceclInvalidUsage,
                             "CECL_SM_NEVER: this call needs an SM for its arithmetic");
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

/* Makes a plan that the caller frees. */
static ceclResult_t make_plan(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              const struct cecl_told *told, struct cecl_plan *plan)
{
    CECL_TRY(check_arithmetic(calls, count));
    CECL_TRY(lower(comm, calls, count, told, plan));
    if (!needs_forbidden_sm(plan))
        return ceclSuccess;
    const ceclResult_t result =
        cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM: %s", plan->reason);
    cecl_plan_free(plan);
    return result;
}

static ceclResult_t bind_new(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             const struct cecl_told *told, struct cecl_bound **bound)
{
    struct cecl_plan plan;
    CECL_TRY(make_plan(comm, calls, count, told, &plan));
    const ceclResult_t result = cecl_engine_bind(&comm->engine, calls, count, told, &plan, bound);
    if (result == ceclSuccess && cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&plan, stderr);
    cecl_plan_free(&plan);
    return result;
}

/* Calls of a group must be apart where peers write, and where this rank carries what they wrote. */
static ceclResult_t check_apart(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    const struct cecl_carried *after = &comm->carrier.after;
    struct cecl_call *all;
    CECL_TRY(cecl_calls_check_apart(calls, count));
    if (after->count == 0)
        return ceclSuccess;
    all = calloc((size_t)count + after->count, sizeof(*all));
    if (!all)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls", count);
    memcpy(all, calls, count * sizeof(*all));
    for (uint32_t i = 0; i < after->count; i++) {
        all[count + i] = after->calls[i];
        all[count + i].send = (struct cecl_buffer){NULL, 0}; /* a bounce buffer */
    }
    const ceclResult_t result = cecl_calls_check_apart(all, count + after->count);
    free(all);
    return result;
}

/* The positions of buffers are checked when the calls are new, and again after memory was freed. */
static ceclResult_t check_buffers(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    if (count == 0 || cecl_engine_has_checked(&comm->engine, calls, count))
        return ceclSuccess;
    for (uint32_t i = 0; i < count; i++)
        CECL_TRY(cecl_call_check_buffers(&calls[i], &comm->windows));
    if (count > 1)
        CECL_TRY(check_apart(comm, calls, count));
    CECL_TRY(check_arithmetic(calls, count));
    cecl_engine_checked(&comm->engine, calls, count);
    return ceclSuccess;
}

/* Counts the calls that move data. Calls are sorted so that those without effect come last. A call
 * without effect moves nothing, alone or in a group. */
static uint32_t count_full(const struct cecl_call *calls, uint32_t count)
{
    uint32_t full = 0;
    while (full < count && !cecl_call_is_empty(&calls[full]))
        full++;
    return full;
}

ceclResult_t cecl_calls_check(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclStream_t stream)
{
    ceclResult_t result = check_buffers(comm, calls, count_full(calls, count));
    if (result == ceclSuccess && comm->nranks > 1 &&
        count > cecl_places_entries(&comm->teller.places))
        result = cecl_fail(ceclInvalidUsage, "a group of %u calls among %d ranks: %u at most",
                           count, comm->nranks, cecl_places_entries(&comm->teller.places));
    if (result == ceclSuccess) /* peers rely on a call once they were told of it */
        result = comm->dev->ops->stream_check(comm->dev, stream);
    return result == ceclSuccess ? cecl_tell_reserve(comm, count) : result;
}

ceclResult_t cecl_calls_tell(ceclComm_t comm, const struct cecl_call *calls, uint32_t count)
{
    const uint32_t full = count_full(calls, count);
    const ceclResult_t result = full > 0 ? cecl_tell_publish(comm, calls, full) : ceclSuccess;
    /* Peers that have agreed to the call will not make it again beside this rank. */
    if (result != ceclSuccess && (comm->config.check || calls[0].op->asks_places))
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

ceclResult_t cecl_calls_plan(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             struct cecl_bound **bound)
{
    const uint32_t full = count_full(calls, count);
    struct cecl_told told;
    *bound = NULL;
    if (full == 0)
        return ceclSuccess;
    CECL_TRY(cecl_tell_learn(comm, calls, full, &told));
    *bound = cecl_engine_lookup(&comm->engine, calls, full, &told);
    const ceclResult_t result = *bound ? ceclSuccess : bind_new(comm, calls, full, &told, bound);
    if (result != ceclSuccess)
        return cecl_tell_break(comm, result);
    comm->engine.held = *bound; /* plans of what is carried must not replace it */
    return ceclSuccess;
}

ceclResult_t cecl_calls_explain_carried(ceclComm_t comm, const struct cecl_carried *carried,
                                        ceclExplanation_t *explanation)
{
    const struct cecl_told told = {0};
    for (uint32_t i = 0; i < carried->count; i++) {
        struct cecl_plan plan;
        ceclExplanation_t more;
        CECL_TRY(make_plan(comm, &carried->calls[i], 1, &told, &plan));
        cecl_plan_explain(&plan, &more);
        cecl_plan_free(&plan);
        explanation->copies += more.copies;
        explanation->localCopies += more.localCopies;
        explanation->bytesSent += more.bytesSent;
        if (explanation->zeroSm && !more.zeroSm)
            memcpy(explanation->reason, more.reason, sizeof(explanation->reason));
        explanation->zeroSm = explanation->zeroSm && more.zeroSm;
    }
    return ceclSuccess;
}

/* Adds what is carried for the calls to their explanation. */
static ceclResult_t explain_carried(ceclComm_t comm, const struct cecl_carried *carried,
                                    ceclExplanation_t *explanation)
{
    CECL_TRY(cecl_calls_explain_carried(comm, carried, explanation));
    if (carried->count > 0 && !strstr(explanation->path, "private")) {
        const size_t length = strlen(explanation->path);
        snprintf(explanation->path + length, sizeof(explanation->path) - length,
                 ", private buffer carried");
    }
    return ceclSuccess;
}

ceclResult_t cecl_calls_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation)
{
    const uint32_t full = count_full(calls, count);
    const struct cecl_told told = cecl_tell_alone(calls, full);
    struct cecl_plan plan;
    CECL_TRY(check_buffers(comm, calls, full));
    if (full == 0) {
        *explanation =
            (ceclExplanation_t){.zeroSm = 1, .path = "nothing to do", .reason = "count is 0"};
        return ceclSuccess;
    }
    CECL_TRY(make_plan(comm, calls, full, &told, &plan));
    cecl_plan_explain(&plan, explanation);
    cecl_plan_free(&plan);
    ceclResult_t result = explain_carried(comm, &comm->carrier.before, explanation);
    if (result == ceclSuccess)
        result = explain_carried(comm, &comm->carrier.after, explanation);
    cecl_carry_reset(comm);
    return result;
}

const char *cecl_bound_path(const struct cecl_bound *bound)
{
    return bound ? cecl_bound_explanation(bound)->path : "nothing to do";
}

/* Enqueues a bound plan. */
static ceclResult_t run(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream)
{
    bool started;
    const ceclResult_t result = cecl_engine_run(&comm->engine, bound, stream, &started);
    cecl_bound_used(&comm->engine, bound);
    if (result != ceclSuccess && !started && cecl_comm_async(comm) != ceclSuccess)
        return cecl_comm_async(comm);     /* the watchdog came in between */
    if (result != ceclSuccess && started) /* peers now wait for signals that will not come */
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

/* Most blocks that are carried by one plan. */
#define CARRIED_MOST 64u

ceclResult_t cecl_calls_carry(ceclComm_t comm, const struct cecl_carried *carried,
                              ceclStream_t stream)
{
    const struct cecl_told told = {0};
    for (uint32_t first = 0; first < carried->count; first += CARRIED_MOST) {
        const struct cecl_call *calls = &carried->calls[first];
        const uint32_t left = carried->count - first,
                       count = left < CARRIED_MOST ? left : CARRIED_MOST;
        struct cecl_bound *bound = cecl_engine_lookup(&comm->engine, calls, count, &told);
        if (!bound)
            CECL_TRY(bind_new(comm, calls, count, &told, &bound));
        CECL_TRY(run(comm, bound, stream));
    }
    return ceclSuccess;
}

/* Peers rely on the call: a part of it that cannot be enqueued fails the communicator. */
static ceclResult_t carry_or_fail(ceclComm_t comm, const struct cecl_carried *carried,
                                  ceclStream_t stream)
{
    const ceclResult_t result = cecl_calls_carry(comm, carried, stream);
    if (result != ceclSuccess)
        cecl_comm_set_async(comm, result, cecl_message());
    return result;
}

static ceclResult_t issue(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream)
{
    const struct cecl_carrier *carrier = &comm->carrier;
    if (carrier->before.count > 0)
        CECL_TRY(carry_or_fail(comm, &carrier->before, stream));
    const bool owed = comm->teller.owes;
    comm->teller.owes = false;
    cecl_history_note(&comm->history, cecl_bound_signature(bound), cecl_comm_last_call(comm));
    const ceclResult_t result = run(comm, bound, stream);
    if (result != ceclSuccess) {
        if (owed) /* peers were told of the call, and rely on it */
            cecl_comm_set_async(comm, result, cecl_message());
        return result;
    }
    if (carrier->after.count > 0)
        CECL_TRY(carry_or_fail(comm, &carrier->after, stream));
    if (!comm->pairs.owes) /* messages of the same group may use bounce buffers, too */
        cecl_carry_reset(comm);
    comm->engine.held = NULL;
    return ceclSuccess;
}

ceclResult_t cecl_calls_issue(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream)
{
    const ceclResult_t result = issue(comm, bound, stream);
    if (result != ceclSuccess)
        cecl_registry_made(&comm->registry);
    return result;
}

/* ---- one public call */

/* Everything that this rank may refuse is checked before ranks exchange places, so that all ranks
 * learn of a refusal. */
static ceclResult_t learn_places(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream,
                                 ceclResult_t result)
{
    const struct cecl_traced traced = cecl_trace_begin(comm, call->op->asks_places);
    if (result == ceclSuccess)
        result = cecl_call_check_buffers(call, &comm->windows);
    if (result == ceclSuccess)
        result = comm->dev->ops->stream_check(comm->dev, stream);
    if (result == ceclSuccess)
        result = cecl_tell_reserve(comm, 1);
    if (comm->config.check) /* first find ranks that make another call */
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

/* Describes a call, and does so again until settling its buffers changes no window. */
static ceclResult_t describe(ceclComm_t comm, const struct cecl_args *args, struct cecl_call *call)
{
    const struct cecl_scope scope = cecl_comm_scope(comm);
    const struct cecl_op *op = call->op;
    struct cecl_args used = *args;
    bool changed = true, replaced = false;
    while (changed) {
        CECL_TRY(cecl_call_describe(op, &scope, &used, call));
        CECL_TRY(cecl_tell_settle(comm, call, &changed));
    }
    CECL_TRY(cecl_carry_replace(comm, call, &used, &replaced));
    return replaced ? cecl_call_describe(op, &scope, &used, call) : ceclSuccess;
}

ceclResult_t cecl_comm_describe(ceclComm_t comm, const struct cecl_args *args,
                                struct cecl_call *call)
{
    const ceclResult_t result = describe(comm, args, call);
    if (result != ceclSuccess) /* the registry may have forgotten their windows */
        call->send = call->recv = (struct cecl_buffer){NULL, 0};
    cecl_call_hold(call);
    return result;
}

/* Keeps the call for the end of the group, or carries it out. *path: how, for the timeline. */
static ceclResult_t make_call(const struct cecl_args *args, ceclComm_t comm, ceclStream_t stream,
                              struct cecl_call *call, const char **path)
{
    struct cecl_bound *bound = NULL;
    const struct cecl_op *op = call->op;
    *path = "refused";
    if (!cecl_group_has_calls(comm)) /* what an earlier call left that was refused */
        cecl_carry_reset(comm);
    ceclResult_t result = cecl_comm_describe(comm, args, call);
    if (cecl_group_is_open()) {
        if (result == ceclSuccess)
            result = refuse_in_group(op);
        *path = result == ceclSuccess ? "kept for the group's end" : *path;
        return cecl_group_add(comm, call, stream, result);
    }
    if (op->pair) { /* its peer alone makes the call, so ranks compare nothing */
        CECL_TRY(result);
        CECL_TRY(cecl_pairs_call(comm, call, stream));
        *path = comm->pairs.path;
        return ceclSuccess;
    }
    if (op->asks_places)
        CECL_TRY(learn_places(comm, call, stream, result)); /* every rank knows the verdict */
    if (result != ceclSuccess)
        return cecl_check_calls(comm, call, 1, result);
    CECL_TRY(cecl_check_calls(comm, call, 1, cecl_calls_check(comm, call, 1, stream)));
    CECL_TRY(cecl_calls_tell(comm, call, 1));
    CECL_TRY(cecl_calls_plan(comm, call, 1, &bound));
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
    if (usable != ceclSuccess) /* a group that contains such a call is refused as a whole */
        return cecl_group_is_open() ? cecl_group_add(comm, &call, stream, usable) : usable;
    const ceclResult_t entered = cecl_comm_enter(comm, op->name);
    if (entered != ceclSuccess)
        return cecl_group_is_open() ? cecl_group_refuse(entered) : entered;
    const struct cecl_traced traced = cecl_trace_begin(comm, op->name);
    const ceclResult_t result = make_call(args, comm, stream, &call, &path);
    if (traced.trace) {
        uint64_t send_bytes = 0, recv_bytes = 0;
        if (result == ceclSuccess) /* a refused call may be described in part */
            cecl_call_sizes(&call, &send_bytes, &recv_bytes);
        cecl_trace_end(&traced, send_bytes, recv_bytes, path, result);
    }
    cecl_call_let_go(&call);
    cecl_comm_leave(comm);
    return result;
}
