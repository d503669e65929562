/* Divides a call into two plans, because its ranks say early that their recvbuffs may be written: `ready`
 * and the start.
 *
 *     a call:     | barrier 1 | my block -> every peer | barrier 2 | ...
 *
 *     ready:      | signal to all |
 *     the start:  | wait for all | my block -> every peer | barrier 1 | ...
 *
 * If a plan uses staging or reads from peers, barrier 1 says more than "my recvbuff may be written". Such a
 * plan is not divided. */
#include "plan/plan.h"

static bool is_first_barrier(const struct cecl_step *step)
{
    return step->kind <= CECL_STEP_WAIT && step->counter == CECL_LANE_MAIN && step->phase == 1;
}

/* Whether all copies of a step push from this rank's own buffers to recvbuffs. Before the second barrier only
 * such copies are allowed: after it all ranks are in the call. */
static bool pushes(const struct cecl_plan *plan, const struct cecl_step *step)
{
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        if (copy->src.rank != plan->part.call.rank || !cecl_area_is_users(copy->src.area) ||
            copy->dst.area % CECL_AREA_COUNT != CECL_AREA_RECV)
            return false;
    }
    return true;
}

bool cecl_plan_may_be_early(const struct cecl_plan *plan)
{
    bool is_past = false, may = plan->phases[CECL_LANE_MAIN] >= 2 &&
                                plan->phases[CECL_LANE_SIDE] == 0 && plan->nreductions == 0;
    for (uint32_t i = 0; i < plan->nsteps && may && !is_past; i++) {
        const struct cecl_step *step = &plan->steps[i];
        is_past = step->kind == CECL_STEP_WAIT && step->phase >= 2;
        may = step->kind != CECL_STEP_POST && (step->kind != CECL_STEP_COPY || pushes(plan, step));
    }
    for (uint32_t i = 0; i < plan->ncopies && may; i++)
        may = cecl_area_is_users(plan->copies[i].src.area) &&
              cecl_area_is_users(plan->copies[i].dst.area);
    return may;
}

/* Such a call signals no peer when it begins. So the call's first step tells this rank's own host that the
 * stream has reached the call. */
void cecl_plan_make_early(struct cecl_plan *plan, uint32_t counter, uint32_t k)
{
    uint32_t left = 1; /* the plan has room for `begun`, because signals are left out */
    const struct cecl_step begun = {.kind = CECL_STEP_SIGNAL,
                                    .peer = (uint16_t)plan->part.call.rank,
                                    .phase = --plan->phases[CECL_LANE_MAIN],
                                    .counter = CECL_COUNTER_BEGUN};
    uint32_t first = 0;
    while (!(plan->steps[first].kind == CECL_STEP_SIGNAL && is_first_barrier(&plan->steps[first])))
        first++;
    for (uint32_t i = first; i > 0; i--) /* the steps before step `first` are on the side lane */
        plan->steps[i] = plan->steps[i - 1];
    plan->steps[0] = begun;
    for (uint32_t i = 1; i < plan->nsteps; i++) {
        struct cecl_step step = plan->steps[i];
        if (step.kind == CECL_STEP_SIGNAL && is_first_barrier(&step))
            continue;
        if (is_first_barrier(&step)) {
            step.counter = counter;
            step.phase = k;
        } else if (step.kind <= CECL_STEP_WAIT && step.counter == CECL_LANE_MAIN) {
            step.phase--;
        }
        plan->steps[left++] = step;
    }
    plan->nsteps = left;
    plan->chunk_phase--;
}

ceclResult_t cecl_plan_ready(const struct cecl_part *part, uint32_t counter, const uint32_t *k,
                             struct cecl_plan *ready)
{
    cecl_plan_init(ready, part);
    ready->aside = true;
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = (part->call.rank + i) % part->call.nranks;
        cecl_plan_raise(ready, peer, counter, k[peer]);
    }
    return cecl_plan_finish(ready);
}
