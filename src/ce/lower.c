/* From a call to a plan: which lowering, and the words that ceclExplain gives for the outcome. */
#include <inttypes.h>
#include <stdio.h>

#include "ce/lowering.h"

static void explain_path(struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->call;
    const uint32_t local = cecl_plan_local_copies(plan);
    const uint32_t batches = plan->phases > 2 ? plan->phases / 2 : 1;
    const bool has_own_block = call->op == ceclOpAlltoAll || !call->in_place;

    if (plan->nsteps == 0)
        snprintf(plan->path, sizeof(plan->path), "nothing to move");
    else if (call->nranks == 1)
        snprintf(plan->path, sizeof(plan->path), "local copy");
    else if (call->no_sm && call->op == ceclOpAlltoAll && call->in_place)
        snprintf(plan->path, sizeof(plan->path),
                 "push by way of peers' staging, %" PRIu32 " chunk%s", batches - 1,
                 batches == 2 ? "" : "s");
    else if (call->no_sm && call->op == ceclOpAlltoAll)
        snprintf(plan->path, sizeof(plan->path),
                 "push, own block by way of peers, %" PRIu32 " round%s", plan->phases - 2,
                 plan->phases == 3 ? "" : "s");
    else if (call->no_sm && has_own_block)
        snprintf(plan->path, sizeof(plan->path), "push, own block returned by peers");
    else if (call->op == ceclOpAlltoAll && call->in_place)
        snprintf(plan->path, sizeof(plan->path), "push through staging, %" PRIu32 " chunk%s",
                 batches, batches == 1 ? "" : "s");
    else
        snprintf(plan->path, sizeof(plan->path), "%s, one batch",
                 call->direction == CECL_PUSH ? "push" : "pull");

    if (local == 0)
        snprintf(plan->reason, sizeof(plan->reason),
                 "zero SM: every copy crosses between GPUs and flags are stream operations");
    else if (call->nranks == 1)
        snprintf(plan->reason, sizeof(plan->reason),
                 "one rank: its block is copied within its GPU, which needs an SM");
    else if (call->op == ceclOpAllGather)
        snprintf(
            plan->reason, sizeof(plan->reason),
            "CECL_SM_ALLOW, out of place: the rank's own block is copied within its GPU, which "
            "needs an SM and is faster");
    else if (call->in_place)
        snprintf(plan->reason, sizeof(plan->reason),
                 "CECL_SM_ALLOW, in place: blocks arrive in staging and are copied within one GPU, "
                 "which "
                 "needs an SM and is faster");
    else
        snprintf(
            plan->reason, sizeof(plan->reason),
            "CECL_SM_ALLOW: the rank's own block is copied within its GPU, which needs an SM and "
            "is faster");
}

ceclResult_t cecl_lower(const struct cecl_call *call, struct cecl_plan *plan)
{
    ceclResult_t result = ceclSuccess;

    cecl_plan_init(plan, call);
    if (call->op == ceclOpAllGather)
        cecl_lower_all_gather(call, plan);
    else
        result = cecl_lower_all_to_all(call, plan);
    if (result != ceclSuccess) {
        cecl_plan_free(plan);
        return result;
    }
    CECL_TRY(cecl_plan_finish(plan));
    explain_path(plan);
    return ceclSuccess;
}
