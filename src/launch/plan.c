/* Finds a kept program for a launch, or makes a new one. This file does not know what a collective does. */
#include "launch/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce/capture.h"
#include "ce/lower.h"
#include "plan/way.h"
#include "util/grow.h"
#include "util/log.h"

/* Whether some ranks are outside (cecl_call_is_outside) and others are not. */
static bool some_differ(const struct cecl_part *part)
{
    for (int r = 0; part->outside && r < part->call.nranks; r++)
        if (cecl_part_is_outside(part, r) != cecl_part_is_outside(part, 0))
            return true;
    return false;
}

/* What the communicator gives to each of its calls. */
static struct cecl_means means_of(ceclComm_t comm)
{
    return (struct cecl_means){.tuning = &comm->tuning,
                               .staging_bytes = (uint64_t)comm->config.staging_bytes,
                               .table_offset = comm->engine.table_offset,
                               .table_bytes = comm->engine.table_bytes,
                               .slots_offset = comm->engine.slots_offset,
                               .slot_bytes = comm->engine.slot_bytes,
                               .host_bytes = comm->hosted.half_bytes,
                               .half = cecl_flags_half(&comm->engine.flags),
                               .shares_gpu = comm->shares_gpu};
}

/* A call with its way, and with what the communicator gives to it. `index`: the call's index in its launch. `told`:
 * what ranks told each other about the launch. */
static struct cecl_part part_of(ceclComm_t comm, const struct cecl_call *call,
                                const struct cecl_told *told, uint32_t index)
{
    const size_t at = (size_t)index * (size_t)comm->nranks,
                 bits = (size_t)index * cecl_outside_words(comm->nranks);
    struct cecl_part part = {.call = *call,
                             .means = means_of(comm),
                             .earlier = told->earlier,
                             .send_at = told->nsend_at > 0 ? told->send_at + at : NULL,
                             .outside = told->noutside > 0 ? told->outside + bits : NULL};
    if (call->captured) { /* the kernel chooses the half of the slots when the call runs */
        part.means.slots_offset = comm->engine.captured_slots_offset;
        part.means.half = 0;
    }
    part.means.inputs_readable = told->inputs_readable;
    part.means.late = told->late;
    part.means.some_outside = !part.means.late && some_differ(&part);
    if (call->op->family == CECL_FAMILY_CARRY) {
        part.means.staging_offset = comm->engine.carry_offset;
        part.means.staging_bytes = comm->engine.carry_bytes;
    }
    cecl_choose(call, &part.means, &part.way);
    return part;
}

bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call)
{
    const struct cecl_means means = means_of(comm);
    return cecl_chooses_own_buffers(call, &means);
}

static ceclResult_t lower_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                const struct cecl_told *told, struct cecl_plan *plan)
{
    CECL_OWNED struct cecl_part *parts = calloc(count, sizeof(*parts));
    if (!parts)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = part_of(comm, &calls[i], told, i);
    return cecl_lower_group(parts, count, plan);
}

static bool needs_forbidden_sm(const struct cecl_plan *plan)
{
    for (uint32_t i = 0; i < plan->ncopies; i++) {
        const struct cecl_copy *copy = &plan->copies[i];
        if (cecl_copy_is_local(copy) &&
            cecl_plan_part(plan, cecl_copy_part(copy))->call.options.sm_policy == CECL_SM_NEVER)
            return true;
    }
    return false;
}

ceclResult_t cecl_plan_make(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                            const struct cecl_told *told, struct cecl_plan *plan)
{
    CECL_TRY(lower_calls(comm, calls, count, told, plan));
    if (!needs_forbidden_sm(plan))
        return ceclSuccess;
    const ceclResult_t result =
        cecl_fail(ceclInvalidUsage, "CECL_SM_NEVER: this call needs an SM: %s", plan->reason);
    cecl_plan_free(plan);
    return result;
}

/* ---- kept launches */

static struct cecl_launch **set_of(const struct cecl_launch *launch)
{
    return launch->comm->launcher->kept[(launch->hash >> 40) % CECL_KEPT_SETS];
}

static bool has_calls_of(const struct cecl_launch *kept, const struct cecl_launch *launch)
{
    if (!kept || kept->hash != launch->hash || kept->nfull != launch->nfull)
        return false;
    for (uint32_t i = 0; i < launch->nfull; i++)
        if (!cecl_call_equal(&kept->calls[i], &launch->calls[i]))
            return false;
    return true;
}

/* Index of the set's first kept launch, from `way` on, that has equal calls; CECL_KEPT_WAYS: there is none. */
static int next_like(const struct cecl_launch *launch, int way)
{
    struct cecl_launch *const *set = set_of(launch);
    while (way < CECL_KEPT_WAYS && !has_calls_of(set[way], launch))
        way++;
    return way;
}

static bool are_equal(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static bool was_told_as(const struct cecl_told *a, const struct cecl_told *b)
{
    return a->late == b->late && a->inputs_readable == b->inputs_readable &&
           a->earlier == b->earlier && a->nbuffers == b->nbuffers && a->nsend_at == b->nsend_at &&
           a->noutside == b->noutside &&
           are_equal(a->buffers, b->buffers, b->nbuffers * sizeof(*b->buffers)) &&
           are_equal(a->send_at, b->send_at, b->nsend_at * sizeof(*b->send_at)) &&
           are_equal(a->outside, b->outside, b->noutside * sizeof(*b->outside));
}

/* The kept launch that has equal calls, and for which ranks told each other the same as for this one. Keeps open the
 * peers' memory that the kept program uses, while the call is made. */
static struct cecl_launch *kept_for(const struct cecl_launch *launch)
{
    struct cecl_launch *const *set = set_of(launch);
    for (int way = launch->like; way < CECL_KEPT_WAYS; way = next_like(launch, way + 1))
        if (was_told_as(&set[way]->told, &launch->told) &&
            cecl_imports_name(&launch->comm->registry, &set[way]->imports))
            return set[way];
    return NULL;
}

/* Keeps a launch that has a program. If the set is full, drops another kept launch. */
static void keep_launch(struct cecl_launch *launch)
{
    struct cecl_launch **set = set_of(launch), **place = NULL;
    unsigned *victim = &launch->comm->launcher->victim[(launch->hash >> 40) % CECL_KEPT_SETS];
    for (int w = 0; w < CECL_KEPT_WAYS && !place; w++)
        if (!set[w])
            place = &set[w];
    /* drops no launch whose program is about to run */
    for (int w = 0; w < CECL_KEPT_WAYS && !place; w++) {
        struct cecl_launch **next = &set[(*victim)++ % CECL_KEPT_WAYS];
        if ((*next)->users == 0)
            place = next;
    }
    if (!place)
        return;
    if (*place) {
        (*place)->is_kept = false;
        cecl_launch_drop(*place);
    } else if (!cecl_launch_spare(launch->comm)) {
        return; /* a kept launch leaves the store, so the store needs a new one for the next lone call */
    }
    *place = launch;
    launch->is_kept = true;
}

/* A number that grows whenever checked memory may have been freed. */
static uint64_t generation_of(ceclComm_t comm)
{
    return comm->pool.generation + comm->registry.changes;
}

/* Whether the caller's recvbuffs behind bounce buffers are the same in both launches. If not, the check of the kept
 * launch's buffers says nothing about the new ones, which may overlap. */
static bool carries_to_same(const struct cecl_launch *kept, const struct cecl_launch *launch)
{
    for (uint32_t i = 0; i < launch->nfull; i++)
        if (kept->origins[i].recv != launch->origins[i].recv)
            return false;
    return true;
}

bool cecl_kept_find(struct cecl_launch *launch)
{
    launch->hash = launch->nfull;
    for (uint32_t i = 0; i < launch->nfull; i++)
        launch->hash = cecl_call_hash(launch->hash, &launch->calls[i]);
    launch->like = next_like(launch, 0);
    if (launch->like == CECL_KEPT_WAYS)
        return false;
    const struct cecl_launch *kept = set_of(launch)[launch->like];
    return kept->checked == generation_of(launch->comm) && carries_to_same(kept, launch);
}

void cecl_kept_checked(struct cecl_launch *launch)
{
    launch->checked = generation_of(launch->comm);
    if (launch->like == CECL_KEPT_WAYS)
        return;
    struct cecl_launch *kept = set_of(launch)[launch->like];
    kept->checked = launch->checked;
    for (uint32_t i = 0; i < launch->nfull; i++)
        kept->origins[i].recv = launch->origins[i].recv;
}

/* ---- the program of a launch */

/* Adds to launch->imports the peers' windows that the program uses. told.buffers has two buffers for each rank and
 * call. */
static ceclResult_t collect_imports(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    for (size_t i = 0; i < launch->told.nbuffers; i++)
        CECL_TRY(cecl_imports_add(&comm->registry, (int)(i / 2 % (size_t)comm->nranks),
                                  launch->told.buffers[i].window, &launch->imports));
    return ceclSuccess;
}

static ceclResult_t bind_new(struct cecl_launch *launch)
{
    ceclComm_t comm = launch->comm;
    struct cecl_plan plan;
    cecl_launch_trim(launch); /* the program points into the launch's arrays, which must not move */
    CECL_TRY(cecl_plan_make(comm, launch->calls, launch->nfull, &launch->told, &plan));
    /* copies within this rank get no number, because no peer takes part */
    if (launch->is_captured)
        CECL_TRY(cecl_plan_capture(&plan, comm->dev->meets,
                                   launch->kind == CECL_LAUNCH_COLLECTIVES
                                       ? cecl_replays_number(comm, launch->calls[0].op->name)
                                       : 0));
    const ceclResult_t result =
        cecl_engine_bind(&comm->engine, launch->calls, &launch->told, &plan, &launch->program);
    if (result == ceclSuccess && cecl_log_on(CECL_LOG_PLAN))
        cecl_plan_print(&plan, stderr);
    const bool meets = cecl_plan_meets(&plan);
    cecl_plan_free(&plan);
    CECL_TRY(result);
    launch->signature = cecl_calls_signature(launch->calls, launch->nfull);
    comm->launcher->plans_made++;
    /* if ranks do not meet in the call, its program uses no peers' buffers: they may be freed already */
    return meets ? collect_imports(launch) : ceclSuccess;
}

ceclResult_t cecl_launch_bind(struct cecl_launch *launch)
{
    if (launch->nfull > 0) {
        launch->runs = launch->is_captured ? NULL : kept_for(launch);
        if (!launch->runs) {
            CECL_TRY(bind_new(launch));
            launch->runs = launch;
            if (!launch->is_captured) /* the graph holds a captured launch */
                keep_launch(launch);
        }
        launch->runs->users++;
    }
    return ceclSuccess;
}
