/* Binds reductions, including those whose kernels signal and wait. See bind.c. */
#include "ce/bound.h"

/* The place of a reduction's source. The plan does not know whether a peer is in place. Each peer publishes where its
 * input lies, in place or not, as its place for CECL_AREA_SEND. */
static struct cecl_place source_of(const struct cecl_call *call, const struct cecl_place *place)
{
    struct cecl_place source = *place;
    if (place->rank != call->rank && cecl_area_is_users(place->area))
        source.area = (uint16_t)cecl_area_of(CECL_AREA_SEND, place->area / CECL_AREA_COUNT);
    return source;
}

static ceclResult_t bind_reduction(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                   const struct cecl_reduce *reduce, struct cecl_bound *bound)
{
    const struct cecl_part *part = cecl_plan_part(plan, reduce->part);
    const struct cecl_call *call = &part->call;
    struct cecl_reduction *out = &bound->reductions[bound->nreductions++];
    char *address;
    *out = (struct cecl_reduction){
        .src = &bound->sources[reduce->first],
        .nsrc = reduce->nsrc,
        .max_sms = part->way.reduce.max_sms,
        .count = reduce->bytes / call->element,
        .type = (ceclDataType_t)call->type,
        .op = (ceclRedOp_t)call->red_op,
        .widens = call->op->widens,
        .divisor = (uint32_t)call->nranks,
        .kernel = reduce->bytes >= part->way.reduce.bulk_min ? CECL_REDUCE_BULK : CECL_REDUCE_WIDE};
    for (uint32_t i = 0; i < reduce->nsrc; i++) {
        const struct cecl_place source = source_of(call, &plan->sources[reduce->first + i]);
        CECL_TRY(cecl_bound_address(engine, bound, &source, reduce->bytes, &address));
        bound->sources[reduce->first + i] = address;
    }
    CECL_TRY(cecl_bound_address(engine, bound, &reduce->dst,
                                cecl_call_result_bytes(call, reduce->bytes), &address));
    out->dst = address;
    return ceclSuccess;
}

ceclResult_t cecl_bind_reductions(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                  const struct cecl_step *step, struct cecl_bound *bound)
{
    struct cecl_command *command =
        cecl_bound_command(bound, CECL_COMMAND_REDUCTIONS, step->lane, bound->nreductions);
    command->count = step->count;
    command->urgent = engine->dev->meets && step->lane == CECL_LANE_MAIN &&
                      !cecl_plan_is_captured(plan) &&
                      cecl_plan_part(plan, plan->reductions[step->first].part)->way.reduce.urgent;
    for (uint32_t i = 0; i < step->count; i++)
        CECL_TRY(bind_reduction(engine, plan, &plan->reductions[step->first + i], bound));
    return ceclSuccess;
}

/* Binds the further places to which a reduction's kernel writes its result. */
static ceclResult_t bind_also(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_reduction *reduction,
                              struct cecl_bound *bound)
{
    char *address;
    reduction->also = &bound->also[bound->nalso];
    reduction->nalso = step->count;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        CECL_TRY(cecl_bound_address(engine, bound, &copy->dst, copy->bytes, &address));
        bound->also[bound->nalso++] = address;
    }
    return ceclSuccess;
}

ceclResult_t cecl_bind_fused(const struct cecl_engine *engine, const struct cecl_plan *plan,
                             const struct cecl_fused *fused, const struct cecl_step *first,
                             struct cecl_bound *bound)
{
    const struct cecl_step *step = first + fused->at;
    const bool counts = cecl_plan_is_captured(plan);
    struct cecl_meeting *meeting = &bound->meetings[bound->nreductions];
    if (counts) {
        *meeting = cecl_bound_captured(&engine->flags, CECL_NUMBERED_REDUCTION, plan->number,
                                       &bound->counting);
        meeting->does |= fused->does;
        meeting->first = fused->first;
        meeting->last = fused->last;
    } else {
        *meeting = cecl_bound_meeting(&engine->flags, step->lane);
        meeting->does = fused->does;
        cecl_bound_value(engine, bound, step->lane, fused->first, &meeting->first);
        cecl_bound_value(engine, bound, step->lane, fused->last, &meeting->last);
    }
    struct cecl_reduction *reduction = &bound->reductions[bound->nreductions];
    CECL_TRY(cecl_bind_reductions(engine, plan, step, bound));
    reduction->meeting = meeting;
    reduction->counting = counts ? &bound->counting : NULL;
    return fused->sends ? bind_also(engine, plan, step + 1, reduction, bound) : ceclSuccess;
}
