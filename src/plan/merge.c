/* Joins the plans of several calls, either between the same barriers or one after the other. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Adds the copies of a step to the open batch. */
static void merge_batch(struct cecl_plan *merged, const struct cecl_plan *plan, uint32_t part,
                        const struct cecl_step *batch)
{
    cecl_plan_of(merged, part);
    for (uint32_t i = 0; i < batch->count; i++)
        cecl_plan_copy_rows(merged, &plan->copies[batch->first + i]);
}

static void append_reductions(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part,
                              const struct cecl_step *step)
{
    cecl_plan_of(plan, part);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_reduce *reduction = &other->reductions[step->first + i];
        cecl_plan_reduce(plan, reduction->dst, &other->sources[reduction->first], reduction->nsrc,
                         reduction->bytes);
    }
}

/* A plan that is being merged, and how many of its steps are merged already. */
struct merging {
    const struct cecl_plan *plan;
    uint32_t part, step;
};

/* Merges a part's batches of the current wave, and advances past them. Stops at barrier `phase` + 1, at a reduction, or
 * at a batch of a later wave, in which case it returns true. */
static bool merge_wave(struct cecl_plan *merged, struct merging *from, uint32_t phase)
{
    for (; from->step < from->plan->nsteps; from->step++) {
        const struct cecl_step *now = &from->plan->steps[from->step];
        if (now->kind == CECL_STEP_REDUCE)
            return false;
        if (now->kind == CECL_STEP_COPY && now->phase > merged->wave)
            return true;
        if (now->kind == CECL_STEP_COPY)
            merge_batch(merged, from->plan, from->part, now);
        else if (now->phase > phase)
            return false;
    }
    return false;
}

/* Merges the reductions that come next in a part, each followed by the copies of results that its kernel makes. Returns
 * whether it has merged any. */
static bool merge_reductions(struct cecl_plan *merged, struct merging *from)
{
    const struct cecl_plan *plan = from->plan;
    const uint32_t first = from->step;
    for (; from->step < plan->nsteps; from->step++) {
        const struct cecl_step *now = &plan->steps[from->step];
        if (now->kind == CECL_STEP_REDUCE)
            append_reductions(merged, plan, from->part, now);
        else if (now->kind == CECL_STEP_COPY && from->step > first &&
                 cecl_way_kernels_send(&plan->part.way))
            merge_batch(merged, plan, from->part, now);
        else
            break;
    }
    cecl_plan_close_batch(merged);
    return from->step > first;
}

/* Merges the steps of all parts before barrier `phase` + 1: first the copies before any reduction, then all reductions,
 * then the copies of results. */
static void merge_segment(struct cecl_plan *merged, struct merging *from, uint32_t count,
                          uint32_t phase)
{
    bool reduces = true;
    while (reduces) {
        reduces = false;
        for (bool more = true; more; cecl_plan_next_wave(merged)) {
            more = false;
            for (uint32_t i = 0; i < count; i++)
                more = merge_wave(merged, &from[i], phase) || more;
        }
        for (uint32_t i = 0; i < count; i++)
            reduces = merge_reductions(merged, &from[i]) || reduces;
    }
}

void cecl_plan_init_group(struct cecl_plan *group, const struct cecl_part *parts, uint32_t nparts)
{
    cecl_plan_init(group, &parts[0]);
    group->parts = malloc(nparts * sizeof(*group->parts));
    group->failed = !group->parts;
    group->nparts = nparts;
    if (group->parts)
        memcpy(group->parts, parts, nparts * sizeof(*parts));
}

void cecl_plan_merge(struct cecl_plan *group, const struct cecl_plan *plans, const uint32_t *which,
                     uint32_t count)
{
    struct merging *from = calloc(count, sizeof(*from));
    uint32_t phases = 0;
    group->failed = group->failed || !from;
    for (uint32_t i = 0; i < count && !group->failed; i++) {
        from[i] = (struct merging){.plan = &plans[which[i]], .part = which[i]};
        const uint32_t mine = from[i].plan->phases[CECL_LANE_MAIN];
        phases = mine > phases ? mine : phases;
    }
    for (uint32_t phase = 0; phase <= phases && !group->failed; phase++) {
        merge_segment(group, from, count, phase);
        if (phase < phases)
            cecl_plan_barrier(group);
    }
    free(from);
}

void cecl_plan_append(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part)
{
    uint32_t before[CECL_PHASED];
    memcpy(before, plan->phases, sizeof(before));
    for (uint32_t s = 0; s < other->nsteps; s++) {
        struct cecl_step step = other->steps[s];
        cecl_plan_on(plan, step.lane);
        switch ((enum cecl_step_kind)step.kind) {
        case CECL_STEP_SIGNAL:
        case CECL_STEP_WAIT:
            step.phase += before[step.counter];
            cecl_plan_repeat(plan, &step);
            break;
        case CECL_STEP_AFTER: cecl_plan_repeat(plan, &step); break;
        case CECL_STEP_SPLITS: /* calls by splits and small calls are never merged in a group */
        case CECL_STEP_POST: plan->failed = true; break;
        case CECL_STEP_COPY:
            cecl_plan_close_batch(plan); /* batches of different waves stay apart */
            plan->wave = step.phase;
            merge_batch(plan, other, part, &step);
            break;
        case CECL_STEP_REDUCE: append_reductions(plan, other, part, &step); break;
        }
    }
    cecl_plan_on(plan, CECL_LANE_MAIN);
    for (int counter = 0; counter < CECL_PHASED; counter++)
        plan->phases[counter] = before[counter] + other->phases[counter];
}
