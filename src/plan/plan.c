/* Building plans, and reading finished plans. */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "util/grow.h"

void cecl_plan_init(struct cecl_plan *plan, const struct cecl_part *part)
{
    *plan = (struct cecl_plan){.part = *part};
}

void cecl_plan_reset(struct cecl_plan *plan)
{
    plan->nsteps = plan->ncopies = plan->nreductions = plan->nsources = 0;
    memset(plan->phases, 0, sizeof(plan->phases));
    plan->lane = CECL_LANE_MAIN;
    plan->open_batch = plan->wave = plan->of = 0;
    plan->failed = false;
}

/* Makes room for one more element of an array. `array` is the address of the pointer to the array. If there is no
 * memory, returns false and marks the plan as failed. */
static bool room(struct cecl_plan *plan, void *array, uint32_t used, uint32_t *capacity,
                 size_t element)
{
    if (plan->failed || used < *capacity)
        return !plan->failed;
    const uint32_t wanted = *capacity ? *capacity * 2 : 16; /* 0: the capacity overflowed */
    plan->failed = wanted == 0 || !cecl_list_grow(array, (size_t)wanted * element);
    *capacity = plan->failed ? *capacity : wanted;
    return !plan->failed;
}

void cecl_plan_close_batch(struct cecl_plan *plan)
{
    plan->open_batch = 0;
}

static void add_step(struct cecl_plan *plan, struct cecl_step step)
{
    cecl_plan_close_batch(plan);
    if (!room(plan, &plan->steps, plan->nsteps, &plan->steps_capacity, sizeof(step)))
        return;
    step.lane = plan->lane;
    plan->steps[plan->nsteps++] = step;
}

void cecl_plan_next_wave(struct cecl_plan *plan)
{
    cecl_plan_close_batch(plan);
    plan->wave++;
}

void cecl_plan_raise(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k)
{
    add_step(plan,
             (struct cecl_step){
                 .kind = CECL_STEP_SIGNAL, .peer = (uint16_t)peer, .phase = k, .counter = counter});
}

void cecl_plan_await(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k)
{
    add_step(plan,
             (struct cecl_step){
                 .kind = CECL_STEP_WAIT, .peer = (uint16_t)peer, .phase = k, .counter = counter});
}

uint32_t cecl_plan_signal_all(struct cecl_plan *plan)
{
    const uint32_t phase = ++plan->phases[plan->lane];
    plan->wave = 0;
    for (int i = 1; i < plan->part.call.nranks; i++)
        cecl_plan_raise(plan, cecl_part_peer(&plan->part, i), plan->lane, phase);
    return phase;
}

void cecl_plan_wait_all(struct cecl_plan *plan, uint32_t counter, uint32_t phase)
{
    for (int i = 1; i < plan->part.call.nranks; i++)
        cecl_plan_await(plan, cecl_part_peer(&plan->part, i), counter, phase);
}

void cecl_plan_barrier(struct cecl_plan *plan)
{
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, cecl_plan_signal_all(plan));
}

void cecl_plan_on(struct cecl_plan *plan, int lane)
{
    cecl_plan_close_batch(plan);
    plan->lane = (uint8_t)lane;
}

void cecl_plan_of(struct cecl_plan *plan, uint32_t part)
{
    plan->of = part;
}

static struct cecl_place place_of(const struct cecl_plan *plan, struct cecl_place place)
{
    place.area = cecl_area_of(place.area, plan->of);
    return place;
}

void cecl_plan_after(struct cecl_plan *plan, int lane)
{
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_AFTER, .first = (uint32_t)lane});
}

void cecl_plan_after_other(struct cecl_plan *plan)
{
    cecl_plan_after(plan, plan->lane == CECL_LANE_MAIN ? CECL_LANE_SIDE : CECL_LANE_MAIN);
}

void cecl_plan_splits(struct cecl_plan *plan, uint32_t which)
{
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_SPLITS, .first = which});
}

void cecl_plan_reduce(struct cecl_plan *plan, struct cecl_place dst, const struct cecl_place *src,
                      uint32_t nsrc, uint64_t bytes)
{
    add_step(plan,
             (struct cecl_step){.kind = CECL_STEP_REDUCE, .first = plan->nreductions, .count = 1});
    if (!room(plan, &plan->reductions, plan->nreductions, &plan->reductions_capacity,
              sizeof(struct cecl_reduce)))
        return;
    plan->reductions[plan->nreductions++] = (struct cecl_reduce){.dst = place_of(plan, dst),
                                                                 .bytes = bytes,
                                                                 .first = plan->nsources,
                                                                 .nsrc = nsrc,
                                                                 .part = plan->of};
    for (uint32_t i = 0; i < nsrc; i++)
        if (room(plan, &plan->sources, plan->nsources, &plan->sources_capacity, sizeof(*src)))
            plan->sources[plan->nsources++] = place_of(plan, src[i]);
}

void cecl_plan_copy(struct cecl_plan *plan, struct cecl_place dst, struct cecl_place src,
                    uint64_t bytes)
{
    cecl_plan_copy_rows(plan,
                        &(struct cecl_copy){.dst = dst, .src = src, .bytes = bytes, .rows = 1});
}

static bool add_copy(struct cecl_plan *plan, const struct cecl_copy *copy)
{
    if (!room(plan, &plan->copies, plan->ncopies, &plan->copies_capacity, sizeof(*copy)))
        return false;
    plan->copies[plan->ncopies] = *copy;
    plan->copies[plan->ncopies].dst = place_of(plan, copy->dst);
    plan->copies[plan->ncopies++].src = place_of(plan, copy->src);
    return true;
}

void cecl_plan_copy_rows(struct cecl_plan *plan, const struct cecl_copy *copy)
{
    if (!plan->open_batch) {
        add_step(plan, (struct cecl_step){
                           .kind = CECL_STEP_COPY, .phase = plan->wave, .first = plan->ncopies});
        plan->open_batch = plan->nsteps;
    }
    if (add_copy(plan, copy))
        plan->steps[plan->open_batch - 1].count++;
}

void cecl_plan_post(struct cecl_plan *plan, int peer, struct cecl_place slot, struct cecl_place src,
                    uint64_t bytes)
{
    plan->phases[CECL_COUNTER_SLOTS] = 1;
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_POST,
                                      .peer = (uint16_t)peer,
                                      .phase = 1,
                                      .first = plan->ncopies});
    add_copy(plan, &(struct cecl_copy){.dst = slot, .src = src, .bytes = bytes, .rows = 1});
}

void cecl_plan_say(struct cecl_plan *plan, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->path, sizeof(plan->path), format, arguments);
    va_end(arguments);
}

void cecl_plan_repeat(struct cecl_plan *plan, const struct cecl_step *step)
{
    cecl_plan_on(plan, step->lane);
    add_step(plan, *step);
}

ceclResult_t cecl_plan_finish(struct cecl_plan *plan)
{
    cecl_plan_close_batch(plan);
    plan->of = 0;
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
    free(plan->reductions);
    free(plan->sources);
    *plan = (struct cecl_plan){0};
}

uint32_t cecl_plan_count(const struct cecl_plan *plan, enum cecl_step_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        count += plan->steps[i].kind == kind;
    return count;
}

uint32_t cecl_plan_kernels(const struct cecl_plan *plan)
{
    return plan->nreductions + cecl_plan_count(plan, CECL_STEP_SPLITS);
}

uint32_t cecl_plan_local_copies(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += cecl_copy_is_local(&plan->copies[i]);
    return count;
}

/* Whether the copies between ranks in a part stay within a GPU that ranks share. A call through memory of the host has
 * no such copies. */
static bool shares_sms(const struct cecl_part *part)
{
    return part->means.shares_gpu && !part->way.by_host &&
           part->call.op->family != CECL_FAMILY_BARRIER;
}

bool cecl_plan_shares_sms(const struct cecl_plan *plan)
{
    bool shares = false;
    for (uint32_t i = 0; i < cecl_plan_parts(plan); i++)
        shares = shares || shares_sms(cecl_plan_part(plan, i));
    return shares && plan->nsteps > 0;
}

uint64_t cecl_plan_bytes(const struct cecl_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        bytes += plan->copies[i].bytes * plan->copies[i].rows;
    return bytes;
}
