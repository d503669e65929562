/* Lowers groups of calls to one plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce/lowering.h"
#include "ce/route.h"

/* Whether a call shares staging with the other calls of its group. Reductions and calls over several
 * nodes do not share it, because they run one after the other. */
static bool shares(const struct cecl_part *part)
{
    const struct cecl_op *op = part->call.op;
    return !part->means.nodes &&
           (op->family == CECL_FAMILY_EXCHANGED || cecl_op_has_both_buffers(op));
}

static void share_staging(struct cecl_part *parts, uint32_t nparts)
{
    uint64_t sharers = 0, before = 0;
    for (uint32_t i = 0; i < nparts; i++)
        sharers += shares(&parts[i]);
    for (uint32_t i = 0; i < nparts && sharers > 1; i++)
        if (shares(&parts[i])) {
            uint64_t share = parts[i].means.staging_bytes / sharers;
            if (share > CECL_PIECE_ALIGN)
                share -= share % CECL_PIECE_ALIGN;
            parts[i].means.staging_bytes = share;
            parts[i].means.staging_offset += before++ * share;
        }
}

static void explain_group(struct cecl_plan *plan)
{
    const char *none = cecl_reason_of_moving(plan);
    cecl_plan_say(plan, "group of %" PRIu32 " calls, %" PRIu32 " copies", plan->nparts,
                  plan->ncopies);
    if (plan->nreductions > 0)
        snprintf(plan->reason, sizeof(plan->reason), "%" PRIu32 " reductions need SMs",
                 plan->nreductions);
    else if (none)
        snprintf(plan->reason, sizeof(plan->reason), "%s", none);
    else
        snprintf(plan->reason, sizeof(plan->reason),
                 "%" PRIu32 " copies stay within one GPU, which needs an SM: %s",
                 cecl_plan_sm_copies(plan),
                 plan->part.call.nranks == 1 ? "there is one rank" : "CECL_SM_ALLOW, where faster");
}

static bool comes_alone(const struct cecl_plan *plan)
{
    return plan->part.call.op->family == CECL_FAMILY_REDUCTION || plan->part.means.nodes;
}

/* Calls that only move data share barriers. Reductions, and calls over several nodes, have steps of more
 * kinds, so they follow one after the other. */
static ceclResult_t join_plans(const struct cecl_plan *plans, uint32_t nplans,
                               struct cecl_plan *joined)
{
    struct cecl_plan *moving = calloc(nplans, sizeof(*moving));
    if (!moving)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nplans);
    for (uint32_t i = 0; i < nplans; i++)
        if (comes_alone(&plans[i]))
            /* takes this call's place in the merged plan, without steps */
            moving[i].part = plans[i].part;
        else
            moving[i] = plans[i];
    ceclResult_t result = cecl_plan_merge(moving, nplans, joined);
    free(moving);
    if (result != ceclSuccess)
        return result;
    for (uint32_t i = 0; i < nplans; i++)
        if (comes_alone(&plans[i]))
            cecl_plan_append(joined, &plans[i], i);
    return cecl_plan_finish(joined);
}

ceclResult_t cecl_lower_alike(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan)
{
    if (nparts == 1)
        return cecl_lower(&parts[0], plan);
    struct cecl_plan *plans = calloc(nparts, sizeof(*plans));
    if (!plans)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nparts);
    ceclResult_t result = ceclSuccess;
    share_staging(parts, nparts);
    for (uint32_t i = 0; i < nparts; i++) {
        parts[i].way.move.beside = false; /* merging keeps batches, but not lanes */
        parts[i].way.small = false;       /* the kernel of a small call serves only one call */
        parts[i].way.by_host = false;     /* one half of the host memory serves only one call */
    }
    for (uint32_t i = 0; i < nparts && result == ceclSuccess; i++)
        result = cecl_lower(&parts[i], &plans[i]);
    if (result == ceclSuccess)
        result = join_plans(plans, nparts, plan);
    if (result == ceclSuccess)
        explain_group(plan);
    for (uint32_t i = 0; i < nparts; i++)
        cecl_plan_free(&plans[i]);
    free(plans);
    return result;
}

ceclResult_t cecl_lower_group(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan)
{
    if (!parts[0].means.late)
        return cecl_lower_alike(parts, nparts, plan);
    struct cecl_part *before = malloc(nparts * sizeof(*before)); /* lowering changes `parts` */
    if (!before)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nparts);
    memcpy(before, parts, nparts * sizeof(*before));
    ceclResult_t result = cecl_lower_alike(parts, nparts, plan);
    if (result == ceclSuccess) {
        result = cecl_route(before, nparts, plan);
        if (result != ceclSuccess)
            cecl_plan_free(plan);
    }
    free(before);
    return result;
}
