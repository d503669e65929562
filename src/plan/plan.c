/* Building plans, and questions to a built one. Knows what steps are, nothing of what they are for.
 * */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

void cecl_plan_init(struct cecl_plan *plan, const struct cecl_call *call)
{
    *plan = (struct cecl_plan){.call = *call};
}

/* Makes room for one more element; false, and remembered, without memory. */
static bool room(struct cecl_plan *plan, void **array, uint32_t used, uint32_t *capacity,
                 size_t element)
{
    if (plan->failed || used < *capacity)
        return !plan->failed;
    const uint32_t wanted = *capacity ? *capacity * 2 : 16;
    void *grown = realloc(*array, (size_t)wanted * element);
    if (!grown) {
        plan->failed = true;
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

static void add_step(struct cecl_plan *plan, struct cecl_step step)
{
    void *steps = plan->steps;
    if (room(plan, &steps, plan->nsteps, &plan->steps_capacity, sizeof(step))) {
        plan->steps = steps;
        plan->steps[plan->nsteps++] = step;
    }
}

void cecl_plan_close_batch(struct cecl_plan *plan)
{
    plan->open_batch = 0;
}

void cecl_plan_signal(struct cecl_plan *plan, int peer, uint32_t phase)
{
    cecl_plan_close_batch(plan);
    add_step(plan,
             (struct cecl_step){.kind = CECL_STEP_SIGNAL, .peer = (uint16_t)peer, .phase = phase});
}

void cecl_plan_wait(struct cecl_plan *plan, int peer, uint32_t phase)
{
    cecl_plan_close_batch(plan);
    add_step(plan,
             (struct cecl_step){.kind = CECL_STEP_WAIT, .peer = (uint16_t)peer, .phase = phase});
}

void cecl_plan_barrier(struct cecl_plan *plan)
{
    const int n = plan->call.nranks, me = plan->call.rank;
    plan->phases++;
    for (int i = 1; i < n; i++)
        cecl_plan_signal(plan, (me + i) % n, plan->phases);
    for (int i = 1; i < n; i++)
        cecl_plan_wait(plan, (me + i) % n, plan->phases);
}

void cecl_plan_copy(struct cecl_plan *plan, struct cecl_place dst, struct cecl_place src,
                    uint64_t bytes)
{
    cecl_plan_copy_rows(plan,
                        &(struct cecl_copy){.dst = dst, .src = src, .bytes = bytes, .rows = 1});
}

void cecl_plan_copy_rows(struct cecl_plan *plan, const struct cecl_copy *copy)
{
    void *copies = plan->copies;
    if (!plan->open_batch) {
        add_step(plan, (struct cecl_step){.kind = CECL_STEP_COPY, .first = plan->ncopies});
        plan->open_batch = plan->nsteps;
    }
    if (room(plan, &copies, plan->ncopies, &plan->copies_capacity, sizeof(struct cecl_copy))) {
        plan->copies = copies;
        plan->copies[plan->ncopies++] = *copy;
        plan->steps[plan->open_batch - 1].count++;
    }
}

static void merge_batch(struct cecl_plan *merged, const struct cecl_plan *plan, uint32_t part,
                        const struct cecl_step *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct cecl_copy copy = plan->copies[batch->first + i];
        copy.dst.window = cecl_window_of(copy.dst.window, part);
        copy.src.window = cecl_window_of(copy.src.window, part);
        cecl_plan_copy_rows(merged, &copy);
    }
}

/* Adds the next batch of a part that stands before barrier `phase` + 1, from *step on, and moves
 * that; whether there was one. */
static bool merge_next(struct cecl_plan *merged, const struct cecl_plan *plan, uint32_t part,
                       uint32_t phase, uint32_t *step)
{
    while (*step < plan->nsteps) {
        const struct cecl_step *now = &plan->steps[*step];
        if (now->kind != CECL_STEP_COPY && now->phase > phase)
            return false;
        ++*step;
        if (now->kind == CECL_STEP_COPY) {
            merge_batch(merged, plan, part, now);
            return true;
        }
    }
    return false;
}

/* What stands before barrier `phase` + 1. Batches of one part have an order, which they keep: the
 * n-th of all parts become one. */
static void merge_segment(struct cecl_plan *merged, const struct cecl_plan *plans, uint32_t nplans,
                          uint32_t phase, uint32_t *steps)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < nplans; i++)
            more = merge_next(merged, &plans[i], i, phase, &steps[i]) || more;
        cecl_plan_close_batch(merged);
    }
}

ceclResult_t cecl_plan_merge(const struct cecl_plan *plans, uint32_t nplans,
                             struct cecl_plan *merged)
{
    uint32_t phases = 0, *steps = calloc(nplans, sizeof(*steps)); /* how far each is merged */
    cecl_plan_init(merged, &plans[0].call);
    merged->parts = malloc(nplans * sizeof(*merged->parts));
    merged->failed = !merged->parts || !steps;
    merged->nparts = nplans;
    for (uint32_t i = 0; i < nplans && !merged->failed; i++) {
        merged->parts[i] = plans[i].call;
        phases = plans[i].phases > phases ? plans[i].phases : phases;
    }
    for (uint32_t phase = 0; phase <= phases && !merged->failed; phase++) {
        merge_segment(merged, plans, nplans, phase, steps);
        if (phase < phases)
            cecl_plan_barrier(merged);
    }
    free(steps);
    return cecl_plan_finish(merged);
}

ceclResult_t cecl_plan_finish(struct cecl_plan *plan)
{
    cecl_plan_close_batch(plan);
    if (!plan->failed)
        return ceclSuccess;
    cecl_plan_free(plan);
    return cecl_fail(ceclOutOfMemory, "no host memory for a plan");
}

void cecl_plan_free(struct cecl_plan *plan)
{
    free(plan->parts);
    free(plan->steps);
    free(plan->copies);
    *plan = (struct cecl_plan){0};
}

uint32_t cecl_plan_local_copies(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += plan->copies[i].dst.rank == plan->copies[i].src.rank;
    return count;
}

uint64_t cecl_plan_bytes(const struct cecl_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        bytes += plan->copies[i].bytes * plan->copies[i].rows;
    return bytes;
}
