/* From a call to a plan: which lowering, and the words that ceclExplain gives for the outcome. */
#include <inttypes.h>
#include <stdio.h>

#include "ce/lowering.h"

static void explain_path(struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->call;
    const uint32_t local = cecl_plan_local_copies(plan);
    const uint32_t batches = plan->phases > 2 ? plan->phases / 2 : 1;

    if (plan->nsteps == 0)
        snprintf(plan->path, sizeof(plan->path), "nothing to move");
    else if (call->nranks == 1)
        snprintf(plan->path, sizeof(plan->path), "local copy");
    else if (call->op == ceclOpAlltoAll && call->in_place)
        snprintf(plan->path, sizeof(plan->path), "push through staging, %" PRIu32 " chunk%s",
                 batches, batches == 1 ? "" : "s");
    else
        snprintf(plan->path, sizeof(plan->path), "%s, one batch",
                 call->direction == CECL_PUSH ? "push" : "pull");

    if (local == 0)
        snprintf(plan->reason, sizeof(plan->reason),
                 "zero SM: every copy crosses between GPUs and flags are stream operations");
    else if (call->op == ceclOpAllGather)
        snprintf(plan->reason, sizeof(plan->reason),
                 "out of place: the rank's own block is copied within one GPU, which needs an SM; "
                 "sendbuff = recvbuff + rank * sendcount avoids it");
    else if (call->in_place)
        snprintf(
            plan->reason, sizeof(plan->reason),
            "in place: blocks arrive in staging and are copied within one GPU, which needs an SM");
    else
        snprintf(plan->reason, sizeof(plan->reason),
                 "the rank's own block is copied within one GPU, which needs an SM");
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
