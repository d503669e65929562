/* Lowers groups of calls to one plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce/lowering.h"
#include "util/grow.h"

/* Calls of a group that share barriers are a bundle; bundles follow each other. The first bundle has all calls that
 * only move data, and the reductions that need no staging. Reductions that need staging join a bundle as long as
 * staging has room; the first one that does not fit begins the next bundle. Reductions in several chunks come after the
 * bundles, as one pipeline (lower_staged.c). Last come, one after the other, reductions that can be neither in a bundle
 * nor in the pipeline, such as a late ceclReduce in several chunks. */
struct bundles {
    struct need {
        enum cecl_together how;
        uint64_t staging; /* in a bundle: how many bytes of staging only this call may use */
    } * needs;            /* [calls] */
    uint32_t *order; /* [calls] bundle by bundle, then those in the pipeline, then the others */
    uint32_t *ends;  /* [count] where each bundle ends in `order` */
    uint32_t count;
    uint32_t bundled, piped; /* where the bundles end in `order`, and where the pipeline ends */
    uint32_t nreductions, nreducing; /* reductions in all bundles; how many bundles have one */
};

/* Whether a call that only moves data needs a part of staging for itself. All such calls of a group get equal parts. */
static bool shares(const struct cecl_part *part)
{
    const struct cecl_op *op = part->call.op;
    return op->family == CECL_FAMILY_EXCHANGED || cecl_op_has_both_buffers(op);
}

static uint64_t share_staging(struct cecl_part *parts, uint32_t nparts)
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
    return sharers;
}

static struct need need_of(const struct cecl_part *part)
{
    struct need need = {.how = CECL_IN_BUNDLE};
    if (part->call.op->family == CECL_FAMILY_REDUCTION)
        need.how = cecl_reduction_together(part, &need.staging);
    return need;
}

static void end_bundle(struct bundles *bundles, const struct cecl_part *parts, uint32_t end)
{
    uint32_t i = bundles->bundled, reductions = 0;
    if (i == end)
        return;
    for (; i < end; i++)
        reductions += parts[bundles->order[i]].call.op->family == CECL_FAMILY_REDUCTION;
    bundles->nreductions += reductions;
    bundles->nreducing += reductions > 0;
    bundles->ends[bundles->count++] = bundles->bundled = end;
}

/* Bundles calls, and gives each reduction its part of staging. In the first bundle `used` bytes of
 * staging are already taken. */
static void bundle(struct cecl_part *parts, uint32_t nparts, uint64_t used, struct bundles *bundles)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < nparts; i++)
        if (bundles->needs[i].how == CECL_IN_BUNDLE && bundles->needs[i].staging == 0)
            bundles->order[at++] = i;
    for (uint32_t i = 0; i < nparts; i++) {
        const uint64_t staging = bundles->needs[i].staging;
        struct cecl_means *means = &parts[i].means;
        if (bundles->needs[i].how != CECL_IN_BUNDLE || staging == 0)
            continue;
        if (used > means->staging_bytes || staging > means->staging_bytes - used) {
            end_bundle(bundles, parts, at);
            used = 0;
        }
        means->staging_offset += used;
        /* the reduction needs no more staging than this, and is lowered as if there were no more */
        means->staging_bytes = staging;
        used += cecl_round_up(staging, CECL_PIECE_ALIGN);
        bundles->order[at++] = i;
    }
    end_bundle(bundles, parts, at);
}

/* Puts the calls that are in no bundle behind the bundles. */
static void follow(struct cecl_part *parts, uint32_t nparts, struct bundles *bundles)
{
    uint32_t at = bundles->bundled;
    for (uint32_t i = 0; i < nparts; i++)
        if (bundles->needs[i].how == CECL_IN_PIPELINE)
            bundles->order[at++] = i;
    bundles->piped = at;
    for (uint32_t i = bundles->bundled; i < at; i++)
        cecl_staged_follow(&parts[bundles->order[i]], i + 1 == at);
    for (uint32_t i = 0; i < nparts; i++)
        if (bundles->needs[i].how == CECL_BY_ITSELF)
            bundles->order[at++] = i;
}

static void explain_group(struct cecl_plan *plan, const struct bundles *bundles)
{
    const char *none = cecl_reason_of_moving(plan);
    const uint32_t piped = bundles->piped - bundles->bundled;
    char bundled[40] = "", follows[56] = "";
    if (bundles->nreductions > 0)
        snprintf(bundled, sizeof(bundled), ", %" PRIu32 " reduction%s in %" PRIu32 " bundle%s",
                 bundles->nreductions, cecl_plural(bundles->nreductions), bundles->nreducing,
                 cecl_plural(bundles->nreducing));
    if (piped > 1)
        snprintf(follows, sizeof(follows), "; the chunks of %" PRIu32 " calls are one pipeline",
                 piped);
    cecl_plan_say(plan, "group of %" PRIu32 " calls, %" PRIu32 " copies%s", plan->nparts,
                  plan->ncopies, bundled);
    if (plan->nreductions > 0)
        snprintf(plan->reason, sizeof(plan->reason), "%" PRIu32 " reductions need SMs%s",
                 plan->nreductions, follows);
    else if (none)
        snprintf(plan->reason, sizeof(plan->reason), "%s", none);
    else
        snprintf(plan->reason, sizeof(plan->reason),
                 "%" PRIu32 " copies stay within one GPU, which needs an SM: %s",
                 cecl_plan_local_copies(plan),
                 plan->part.call.nranks == 1 ? "there is one rank" : "CECL_SM_ALLOW, where faster");
}

static ceclResult_t join_plans(const struct cecl_part *parts, const struct cecl_plan *plans,
                               uint32_t nplans, const struct bundles *bundles,
                               struct cecl_plan *joined)
{
    const uint32_t *order = bundles->order, piped = bundles->piped - bundles->bundled;
    ceclResult_t result = ceclSuccess;
    uint32_t first = 0;
    cecl_plan_init_group(joined, parts, nplans);
    for (uint32_t b = 0; b < bundles->count; b++) {
        cecl_plan_merge(joined, plans, &order[first], bundles->ends[b] - first);
        first = bundles->ends[b];
    }
    if (piped > 0)
        result = cecl_lower_pipeline(parts, &order[first], piped, joined);
    for (first = bundles->piped; first < nplans; first++)
        cecl_plan_append(joined, &plans[order[first]], order[first]);
    if (result == ceclSuccess)
        return cecl_plan_finish(joined);
    cecl_plan_free(joined);
    return result;
}

/* Lowers several calls to one plan. `plans` and `bundles` have room for them. */
static ceclResult_t lower_together(struct cecl_part *parts, uint32_t nparts,
                                   struct cecl_plan *plans, struct bundles *bundles,
                                   struct cecl_plan *plan)
{
    const uint64_t staging = parts[0].means.staging_bytes;
    ceclResult_t result = ceclSuccess;
    for (uint32_t i = 0; i < nparts; i++) {
        parts[i].way.move.beside = false; /* merging keeps batches, but not lanes */
        parts[i].way.reduce.sms_end = 0;  /* it would use the side lane */
        parts[i].way.small = false;       /* a small call's kernel can carry out only one call */
        parts[i].way.by_host = false;     /* a rank's host memory has room for only one call */
        bundles->needs[i] = need_of(&parts[i]);
    }
    bundle(parts, nparts, share_staging(parts, nparts) > 0 ? staging : 0, bundles);
    follow(parts, nparts, bundles);
    for (uint32_t i = 0; i < nparts && result == ceclSuccess; i++)
        if (bundles->needs[i].how != CECL_IN_PIPELINE)
            result = cecl_lower(&parts[i], &plans[i]);
    if (result == ceclSuccess)
        result = join_plans(parts, plans, nparts, bundles, plan);
    if (result == ceclSuccess)
        explain_group(plan, bundles);
    return result;
}

ceclResult_t cecl_lower_alike(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan)
{
    if (nparts == 1)
        return cecl_lower(&parts[0], plan);
    struct bundles bundles = {0};
    CECL_OWNED struct cecl_plan *plans = calloc(nparts, sizeof(*plans));
    CECL_OWNED void *needs = bundles.needs = calloc(nparts, sizeof(*bundles.needs)),
                    *order = bundles.order = calloc(nparts, sizeof(*bundles.order)),
                    *ends = bundles.ends = calloc(nparts, sizeof(*bundles.ends));
    const ceclResult_t result =
        plans && needs && order && ends
            ? lower_together(parts, nparts, plans, &bundles, plan)
            : cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls", nparts);
    for (uint32_t i = 0; plans && i < nparts; i++)
        cecl_plan_free(&plans[i]);
    return result;
}

ceclResult_t cecl_lower_group(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan)
{
    if (!parts[0].means.late)
        return cecl_lower_alike(parts, nparts, plan);
    /* lowering changes `parts`, but cecl_route needs them unchanged */
    CECL_OWNED struct cecl_part *before = malloc(nparts * sizeof(*before));
    if (!before)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nparts);
    memcpy(before, parts, nparts * sizeof(*before));
    CECL_TRY(cecl_lower_alike(parts, nparts, plan));
    const ceclResult_t result = cecl_route(before, nparts, plan);
    if (result != ceclSuccess)
        cecl_plan_free(plan);
    return result;
}
