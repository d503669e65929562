/* Building plans, and reading finished plans. */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cecl_plan_init(struct cecl_plan *plan, const struct cecl_part *part)
{
    *plan = (struct cecl_plan){.part = *part};
}

void cecl_plan_reset(struct cecl_plan *plan)
{
    plan->nsteps = plan->ncopies = plan->nreductions = plan->nsources = 0;
    plan->ntransfers = plan->nexchanges = plan->open_exchange = 0;
    memset(plan->phases, 0, sizeof(plan->phases));
    plan->lane = CECL_LANE_MAIN;
    plan->open_batch = plan->wave = 0;
    plan->chunks = plan->chunk_phase = 0;
    plan->failed = false;
}

/* Makes room for one more element of an array, whose pointer is at `array`. If there is no memory,
 * returns false and marks the plan as failed. */
static bool room(struct cecl_plan *plan, void *array, uint32_t used, uint32_t *capacity,
                 size_t element)
{
    void *at;
    if (plan->failed || used < *capacity)
        return !plan->failed;
    memcpy(&at, array, sizeof(at));
    const uint32_t wanted = *capacity ? *capacity * 2 : 16;
    /* 0: the capacity overflowed */
    at = wanted ? realloc(at, (size_t)wanted * element) : NULL;
    plan->failed = !at;
    if (plan->failed)
        return false;
    memcpy(array, &at, sizeof(at));
    *capacity = wanted;
    return true;
}

static void add_step(struct cecl_plan *plan, struct cecl_step step)
{
    if (!room(plan, &plan->steps, plan->nsteps, &plan->steps_capacity, sizeof(step)))
        return;
    step.lane = plan->lane;
    plan->steps[plan->nsteps++] = step;
}

void cecl_plan_close_batch(struct cecl_plan *plan)
{
    plan->open_batch = 0;
}

void cecl_plan_next_wave(struct cecl_plan *plan)
{
    cecl_plan_close_batch(plan);
    plan->wave++;
}

void cecl_plan_raise(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k)
{
    cecl_plan_close_batch(plan);
    add_step(plan,
             (struct cecl_step){
                 .kind = CECL_STEP_SIGNAL, .peer = (uint16_t)peer, .phase = k, .counter = counter});
}

void cecl_plan_await(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k)
{
    cecl_plan_close_batch(plan);
    add_step(plan,
             (struct cecl_step){
                 .kind = CECL_STEP_WAIT, .peer = (uint16_t)peer, .phase = k, .counter = counter});
}

uint32_t cecl_plan_signal_all(struct cecl_plan *plan)
{
    const uint32_t phase = ++plan->phases[plan->lane];
    plan->wave = 0;
    for (int i = 1; i < cecl_part_peers(&plan->part); i++)
        cecl_plan_raise(plan, cecl_part_peer(&plan->part, i), plan->lane, phase);
    return phase;
}

void cecl_plan_wait_all(struct cecl_plan *plan, uint32_t counter, uint32_t phase)
{
    for (int i = 1; i < cecl_part_peers(&plan->part); i++)
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

void cecl_plan_after(struct cecl_plan *plan, int lane)
{
    cecl_plan_close_batch(plan);
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_AFTER, .first = (uint32_t)lane});
}

void cecl_plan_after_other(struct cecl_plan *plan)
{
    cecl_plan_after(plan, plan->lane == CECL_LANE_MAIN ? CECL_LANE_SIDE : CECL_LANE_MAIN);
}

void cecl_plan_splits(struct cecl_plan *plan, uint32_t which)
{
    cecl_plan_close_batch(plan);
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_SPLITS, .first = which});
}

void cecl_plan_reduce(struct cecl_plan *plan, struct cecl_place dst, const struct cecl_place *src,
                      uint32_t nsrc, uint64_t bytes)
{
    cecl_plan_close_batch(plan);
    add_step(plan,
             (struct cecl_step){.kind = CECL_STEP_REDUCE, .first = plan->nreductions, .count = 1});
    if (!room(plan, &plan->reductions, plan->nreductions, &plan->reductions_capacity,
              sizeof(struct cecl_reduce)))
        return;
    plan->reductions[plan->nreductions++] =
        (struct cecl_reduce){.dst = dst, .bytes = bytes, .first = plan->nsources, .nsrc = nsrc};
    for (uint32_t i = 0; i < nsrc; i++)
        if (room(plan, &plan->sources, plan->nsources, &plan->sources_capacity, sizeof(*src)))
            plan->sources[plan->nsources++] = src[i];
}

void cecl_plan_reduce_partly(struct cecl_plan *plan, struct cecl_place dst,
                             const struct cecl_place *src, uint32_t nsrc, uint64_t bytes)
{
    cecl_plan_reduce(plan, dst, src, nsrc, bytes);
    if (!plan->failed)
        plan->reductions[plan->nreductions - 1].partial = true;
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
    plan->copies[plan->ncopies++] = *copy;
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
    cecl_plan_close_batch(plan);
    plan->phases[CECL_COUNTER_SLOTS] = 1;
    add_step(plan, (struct cecl_step){.kind = CECL_STEP_POST,
                                      .peer = (uint16_t)peer,
                                      .phase = 1,
                                      .first = plan->ncopies});
    add_copy(plan, &(struct cecl_copy){.dst = slot, .src = src, .bytes = bytes, .rows = 1});
}

static void add_transfer(struct cecl_plan *plan, const struct cecl_transfer *transfer)
{
    const uint8_t lane = plan->lane;
    if (transfer->bytes == 0)
        return;
    if (!plan->open_exchange) {
        cecl_plan_on(plan, CECL_LANE_NET);
        add_step(plan, (struct cecl_step){.kind = CECL_STEP_EXCHANGE,
                                          .peer = (uint16_t)plan->part.call.rank,
                                          .phase = ++plan->nexchanges,
                                          .first = plan->ntransfers});
        cecl_plan_on(plan, lane);
        plan->open_exchange = plan->nsteps;
    }
    if (!room(plan, &plan->transfers, plan->ntransfers, &plan->transfers_capacity,
              sizeof(*transfer)))
        return;
    plan->transfers[plan->ntransfers++] = *transfer;
    plan->steps[plan->open_exchange - 1].count++;
}

void cecl_plan_send(struct cecl_plan *plan, int peer, struct cecl_place at, uint64_t bytes)
{
    add_transfer(plan, &(struct cecl_transfer){
                           .at = at, .bytes = bytes, .peer = (uint16_t)peer, .sends = true});
}

void cecl_plan_receive(struct cecl_plan *plan, int peer, struct cecl_place at, uint64_t bytes)
{
    add_transfer(plan, &(struct cecl_transfer){.at = at, .bytes = bytes, .peer = (uint16_t)peer});
}

uint32_t cecl_plan_close_exchange(struct cecl_plan *plan)
{
    plan->open_exchange = 0;
    return plan->nexchanges;
}

void cecl_plan_after_exchange(struct cecl_plan *plan, uint32_t k)
{
    if (k > 0)
        cecl_plan_await(plan, plan->part.call.rank, CECL_COUNTER_NET, k);
}

void cecl_plan_say(struct cecl_plan *plan, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->path, sizeof(plan->path), format, arguments);
    va_end(arguments);
}

static struct cecl_place place_in_part(struct cecl_place place, uint32_t part)
{
    place.area = cecl_area_of(place.area, part);
    return place;
}

/* Adds the copies of a step to the open batch. */
static void merge_batch(struct cecl_plan *merged, const struct cecl_plan *plan, uint32_t part,
                        const struct cecl_step *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct cecl_copy copy = plan->copies[batch->first + i];
        copy.dst = place_in_part(copy.dst, part);
        copy.src = place_in_part(copy.src, part);
        cecl_plan_copy_rows(merged, &copy);
    }
}

static void append_reduction(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part,
                             const struct cecl_reduce *reduction)
{
    struct cecl_place sources[CECL_MAX_RANKS];
    for (uint32_t i = 0; i < reduction->nsrc; i++)
        sources[i] = place_in_part(other->sources[reduction->first + i], part);
    cecl_plan_reduce(plan, place_in_part(reduction->dst, part), sources, reduction->nsrc,
                     reduction->bytes);
    if (plan->failed)
        return;
    plan->reductions[plan->nreductions - 1].part = part;
    plan->reductions[plan->nreductions - 1].partial = reduction->partial;
}

static void append_reductions(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part,
                              const struct cecl_step *step)
{
    for (uint32_t i = 0; i < step->count; i++)
        append_reduction(plan, other, part, &other->reductions[step->first + i]);
}

/* A part of a plan that is merged, and how many of its steps are. */
struct merging {
    const struct cecl_plan *plan;
    uint32_t part, step;
};

/* Merges the batches of a part that come before barrier `phase` + 1 and before a reduction, and have this
 * wave, and advances past them. Returns whether batches of later waves are left. */
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

/* Merges the reductions that a part has come to, with the copies of results that their kernels make.
 * Returns whether there were any. */
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

/* Merges the steps before barrier `phase` + 1: what is sent before any reduction, all reductions, and the
 * results. */
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

void cecl_plan_init_group(struct cecl_plan *group, const struct cecl_plan *plans, uint32_t nplans)
{
    cecl_plan_init(group, &plans[0].part);
    group->parts = malloc(nplans * sizeof(*group->parts));
    group->failed = !group->parts;
    group->nparts = nplans;
    for (uint32_t i = 0; i < nplans && !group->failed; i++)
        group->parts[i] = plans[i].part;
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

void cecl_plan_repeat(struct cecl_plan *plan, const struct cecl_step *step)
{
    cecl_plan_on(plan, step->lane);
    add_step(plan, *step);
}

static void append_exchange(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part,
                            const struct cecl_step *step)
{
    for (uint32_t i = 0; i < step->count; i++) {
        struct cecl_transfer transfer = other->transfers[step->first + i];
        transfer.at = place_in_part(transfer.at, part);
        add_transfer(plan, &transfer);
    }
    cecl_plan_close_exchange(plan);
}

void cecl_plan_append(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part)
{
    const uint32_t exchanges = plan->nexchanges;
    uint32_t before[CECL_PHASED];
    memcpy(before, plan->phases, sizeof(before));
    for (uint32_t s = 0; s < other->nsteps; s++) {
        struct cecl_step step = other->steps[s];
        cecl_plan_on(plan, step.lane);
        switch ((enum cecl_step_kind)step.kind) {
        case CECL_STEP_SIGNAL:
        case CECL_STEP_WAIT:
            step.phase += step.counter == CECL_COUNTER_NET ? exchanges : before[step.counter];
            add_step(plan, step);
            break;
        case CECL_STEP_AFTER: add_step(plan, step); break;
        case CECL_STEP_SPLITS: /* neither is a call by splits, nor a small one, in a group */
        case CECL_STEP_POST: plan->failed = true; break;
        case CECL_STEP_EXCHANGE: append_exchange(plan, other, part, &step); break;
        case CECL_STEP_COPY:
            cecl_plan_close_batch(plan); /* so batches keep their order */
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
    free(plan->reductions);
    free(plan->sources);
    free(plan->transfers);
    *plan = (struct cecl_plan){0};
}

uint32_t cecl_plan_kernels(const struct cecl_plan *plan)
{
    uint32_t count = plan->nreductions;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        count += plan->steps[i].kind == CECL_STEP_SPLITS;
    return count;
}

uint32_t cecl_plan_local_copies(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += cecl_copy_is_local(&plan->copies[i]);
    return count;
}

bool cecl_copy_needs_sm(const struct cecl_plan *plan, const struct cecl_copy *copy)
{
    const struct cecl_part *part = cecl_plan_part(plan, cecl_copy_part(copy));
    return cecl_copy_is_local(copy) && (part->way.small || !part->means.engine_copies_locally);
}

uint32_t cecl_plan_sm_copies(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += cecl_copy_needs_sm(plan, &plan->copies[i]);
    return count;
}

/* Whether copies of a part between ranks stay within a shared GPU. A call through memory of the
 * host has no such copies. */
static bool shares_sms(const struct cecl_part *part)
{
    return part->means.shares_gpu && !part->means.engine_copies_locally && !part->way.by_host &&
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
