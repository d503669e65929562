/* Lowers a call to a plan, by one of three lowerings: for the call's family, for small calls, or for calls through host
 * memory. Sets the reason that ceclExplain gives. */
#include "ce/lower.h"

#include <stdio.h>

#include "ce/lowering.h"

/* ---- why a plan needs SMs, or needs none */

static const char zero_sm[] =
    "zero SM: every copy crosses between GPUs and flags are stream operations";
static const char zero_sm_by_host[] = "zero SM: every copy goes to or from host memory, where it "
                                      "waits for no copy between GPUs, and flags are stream "
                                      "operations";

const char *cecl_reason_of_moving(const struct cecl_plan *plan)
{
    if (cecl_plan_shares_sms(plan))
        return CECL_SHARED_GPU_WORDS;
    return cecl_plan_local_copies(plan) > 0 ? NULL : zero_sm;
}

static const char *reason_of_small(const struct cecl_call *call)
{
    return call->op->family == CECL_FAMILY_REDUCTION
               ? "arithmetic needs SMs: one kernel sends, waits and reduces"
               : "CECL_SM_ALLOW: one kernel sends, waits and takes what came, which needs SMs and "
                 "is faster";
}

static const char *reason_of_local(const struct cecl_call *call)
{
    if (call->nranks == 1)
        return "one rank: its block is copied within its GPU, which needs an SM";
    if (call->in_place)
        return "CECL_SM_ALLOW, in place: blocks arrive in staging and are copied within one GPU, "
               "which needs an SM and is faster";
    if (call->op->family == CECL_FAMILY_GATHERED)
        return "CECL_SM_ALLOW, out of place: the rank's own block is copied within its GPU, which "
               "needs an SM and is faster";
    return "CECL_SM_ALLOW: the rank's own block is copied within its GPU, which needs an SM and is "
           "faster";
}

static const char *reason_of(const struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->part.call;
    if (plan->part.way.small)
        return reason_of_small(call);
    if (plan->part.way.by_host)
        return zero_sm_by_host;
    if (cecl_plan_kernels(plan) > plan->nreductions)
        return "CECL_SM_ALLOW: the splits are on the device, so kernels read them and move rows, "
               "on as few SMs as ceclConfig_t.maxSms says";
    if (plan->nreductions > 0)
        return "arithmetic needs SMs: as few as ceclConfig_t.maxSms says";
    if (cecl_plan_shares_sms(plan))
        return CECL_SHARED_GPU_WORDS;
    if (call->op->family == CECL_FAMILY_REDUCTION)
        return "zero SM: this rank has nothing to reduce";
    const char *none = cecl_reason_of_moving(plan);
    return none ? none : reason_of_local(call);
}

/* ---- one call */

ceclResult_t cecl_lower(const struct cecl_part *part, struct cecl_plan *plan)
{
    cecl_plan_init(plan, part);
    const enum cecl_family family = part->call.op->family;
    const ceclResult_t result = part->way.small     ? cecl_lower_small(part, plan)
                                : part->way.by_host ? cecl_lower_host(part, plan)
                                                    : cecl_lowerings[family].lower(part, plan);
    if (result != ceclSuccess) {
        cecl_plan_free(plan);
        return result;
    }
    CECL_TRY(cecl_plan_finish(plan));
    if (plan->nsteps == 0)
        cecl_plan_say(plan, "nothing to %s", family == CECL_FAMILY_REDUCTION ? "do" : "move");
    snprintf(plan->reason, sizeof(plan->reason), "%s", reason_of(plan));
    return ceclSuccess;
}

/* A barrier: nothing moves. A rank's stream goes on when every rank's stream has reached the call. This takes no SM,
 * because flags are stream operations. */
ceclResult_t cecl_lower_barrier(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->call.nranks > 1)
        cecl_plan_barrier(plan);
    cecl_plan_say(plan, "barrier");
    return ceclSuccess;
}
