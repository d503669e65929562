/* Says for ceclExplain and ceclGroupExplain how launches would be carried out. */
#include <stdio.h>
#include <string.h>

#include "ce/capture.h"
#include "launch/make.h"
#include "launch/messages.h"
#include "launch/steps.h"

static const ceclExplanation_t nothing = {
    .zeroSm = 1, .path = "nothing to do", .reason = "count is 0"};

/* Adds to the explanation a list of launches, which copy between private memory and bounce buffers. */
static ceclResult_t add_carried(const struct cecl_launch *carried, ceclExplanation_t *explanation)
{
    const struct cecl_told told = {0};
    for (; carried; carried = carried->next)
        for (uint32_t i = 0; i < carried->ncalls; i++) {
            struct cecl_plan plan;
            ceclExplanation_t more;
            CECL_TRY(cecl_plan_make(carried->comm, &carried->calls[i], 1, &told, &plan));
            cecl_plan_explain(&plan, &more);
            cecl_plan_free(&plan);
            explanation->copies += more.copies;
            explanation->localCopies += more.localCopies;
            explanation->bytesSent += more.bytesSent;
            if (explanation->zeroSm && !more.zeroSm)
                memcpy(explanation->reason, more.reason, sizeof(explanation->reason));
            explanation->zeroSm = explanation->zeroSm && more.zeroSm;
        }
    return ceclSuccess;
}

static ceclResult_t explain_collectives(struct cecl_launch *launch, ceclExplanation_t *explanation)
{
    const struct cecl_told told = cecl_tell_alone(launch->calls, launch->nfull);
    struct cecl_plan plan;
    if (launch->nfull == 0) {
        *explanation = nothing;
        return ceclSuccess;
    }
    CECL_TRY(cecl_plan_make(launch->comm, launch->calls, launch->nfull, &told, &plan));
    if (launch->is_captured)
        CECL_TRY(cecl_plan_capture(&plan, launch->comm->dev->meets, 1));
    cecl_plan_explain(&plan, explanation);
    cecl_plan_free(&plan);
    if ((launch->leases.before || launch->leases.after) && !strstr(explanation->path, "private")) {
        const size_t length = strlen(explanation->path);
        snprintf(explanation->path + length, sizeof(explanation->path) - length,
                 ", private buffer carried");
    }
    return ceclSuccess;
}

static ceclResult_t explain_launch(struct cecl_launch *launch, ceclExplanation_t *explanation)
{
    if (launch->comm->net) {
        CECL_TRY(cecl_launch_check(launch));
        cecl_by_nccl_explain(launch, explanation);
        return ceclSuccess;
    }
    CECL_TRY(cecl_launch_check_buffers(launch));
    if (launch->is_captured)
        CECL_TRY(cecl_launch_check_stream(launch));
    CECL_TRY(launch->kind == CECL_LAUNCH_MESSAGES ? cecl_messages_explain(launch, explanation)
                                                  : explain_collectives(launch, explanation));
    CECL_TRY(add_carried(launch->leases.before, explanation));
    return add_carried(launch->leases.after, explanation);
}

ceclResult_t cecl_launches_explain(struct cecl_launch *list, ceclExplanation_t *explanation)
{
    ceclExplanation_t all = nothing;
    if (list && !list->comm->net) {
        all = (ceclExplanation_t){.zeroSm = 1};
        CECL_TRY(cecl_settle_again(list, list->comm));
    }
    for (struct cecl_launch *launch = list; launch; launch = launch->next)
        CECL_TRY(explain_launch(launch, &all));
    *explanation = all;
    return ceclSuccess;
}
