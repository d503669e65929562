/* From a call to a plan: which lowering, and the words that ceclExplain gives for the outcome. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ce/lowering.h"
#include "plan/layout.h"

static void explain_reduction(struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->call;
    const char *then = call->op == ceclOpReduceScatter ? ""
                       : call->op == ceclOpReduce      ? ", pushed to the root"
                                                       : ", pushed to all";
    if (plan->nsteps == 0)
        snprintf(plan->path, sizeof(plan->path), "nothing to do");
    else if (call->nranks == 1)
        snprintf(plan->path, sizeof(plan->path), "local copy by a kernel");
    else if (call->peers_read && call->sms_send)
        snprintf(plan->path, sizeof(plan->path), "SMs read at the peers and write to all");
    else if (call->peers_read && call->sms_end > 0)
        snprintf(plan->path, sizeof(plan->path),
                 "SMs read at the peers, pushed to all, the end written");
    else if (call->peers_read && call->op != ceclOpReduce)
        snprintf(plan->path, sizeof(plan->path), "SMs read at the peers%s", then);
    else if (plan->copies && plan->ncopies > 0 && plan->nreductions == 1 && plan->phases == 2 &&
             call->op == ceclOpAllReduce)
        snprintf(plan->path, sizeof(plan->path), "all pushed to all, everyone reduces");
    else
        snprintf(plan->path, sizeof(plan->path), "push to staging, %" PRIu32 " chunk%s%s",
                 plan->nreductions, plan->nreductions == 1 ? "" : "s", then);
    snprintf(plan->reason, sizeof(plan->reason),
             plan->nreductions > 0 ? "arithmetic needs SMs: as few as ceclConfig_t.maxSms says"
                                   : "zero SM: this rank has nothing to reduce");
}

static void explain_small(struct cecl_plan *plan)
{
    snprintf(plan->path, sizeof(plan->path), "small, one exchange through slots");
    snprintf(
        plan->reason, sizeof(plan->reason), "%s",
        cecl_op_reduces(plan->call.op)
            ? "arithmetic needs SMs: one kernel sends, waits and reduces"
            : "CECL_SM_ALLOW: one kernel sends, waits and takes what came, which needs SMs and "
              "is faster");
}

static const char zero_sm_by_engine[] = "zero SM: a copy engine runs copies within a GPU too "
                                        "(probed when the communicator was made), and "
                                        "flags are stream operations";

static void explain_path(struct cecl_plan *plan)
{
    const struct cecl_call *call = &plan->call;
    const uint32_t local = cecl_plan_local_copies(plan);
    const bool by_engine = local > 0 && call->engine_copies_locally;
    const uint32_t batches = plan->phases > 2 ? plan->phases / 2 : 1;
    const bool has_own_block = call->op == ceclOpAlltoAll || !call->in_place;

    if (plan->nsteps == 0)
        snprintf(plan->path, sizeof(plan->path), "nothing to move");
    else if (call->nranks == 1)
        snprintf(plan->path, sizeof(plan->path), "local copy%s",
                 by_engine ? " by a copy engine (probed)" : "");
    else if (cecl_is_variable(call))
        snprintf(plan->path, sizeof(plan->path), "push%s",
                 call->no_sm ? ", own block by way of the next rank" : ", one batch");
    else if (call->spread > 0)
        snprintf(plan->path, sizeof(plan->path),
                 "push in pieces that peers pass on, %" PRIu32 " round%s", plan->phases - 2,
                 plan->phases == 3 ? "" : "s");
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
        snprintf(plan->path, sizeof(plan->path), "%s, %s",
                 call->direction == CECL_PUSH ? "push" : "pull",
                 by_engine ? "own block: local copy by a copy engine (probed)" : "one batch");

    if (local == 0)
        snprintf(plan->reason, sizeof(plan->reason),
                 "zero SM: every copy crosses between GPUs and flags are stream operations");
    else if (by_engine)
        snprintf(plan->reason, sizeof(plan->reason), "%s", zero_sm_by_engine);
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

/* ---- copies of blocks */

static struct cecl_place place_of(const struct cecl_call *call, const struct cecl_view *view,
                                  uint64_t byte)
{
    struct cecl_place place = view->at;
    place.offset += view->pitch ? cecl_offset_within(call, view->pitch, byte) : byte - view->from;
    return place;
}

static void copy_rows(const struct cecl_call *call, struct cecl_plan *plan,
                      const struct cecl_view *dst, const struct cecl_view *src, uint64_t first,
                      uint64_t bytes, uint64_t rows)
{
    const uint64_t width = call->shape.width;
    const struct cecl_copy copy = {.dst = place_of(call, dst, first),
                                   .src = place_of(call, src, first),
                                   .bytes = bytes,
                                   .rows = rows,
                                   .dst_pitch = dst->pitch ? dst->pitch : width,
                                   .src_pitch = src->pitch ? src->pitch : width};
    if (bytes > 0 && rows > 0)
        cecl_plan_copy_rows(plan, &copy);
}

void cecl_lower_copy(const struct cecl_call *call, struct cecl_plan *plan, struct cecl_view dst,
                     struct cecl_view src, uint64_t first, uint64_t bytes)
{
    const uint64_t width = call->shape.width;
    if (width == 0 || (dst.pitch == 0 && src.pitch == 0)) {
        copy_rows(call, plan, &dst, &src, first, bytes, 1);
        return;
    }
    const uint64_t begun = first % width ? width - first % width : 0;
    const uint64_t head = begun < bytes ? begun : bytes, rows = (bytes - head) / width;
    copy_rows(call, plan, &dst, &src, first, head, 1);
    copy_rows(call, plan, &dst, &src, first + head, width, rows);
    copy_rows(call, plan, &dst, &src, first + head + rows * width, (bytes - head) % width, 1);
}

ceclResult_t cecl_lower(const struct cecl_call *call, struct cecl_plan *plan)
{
    ceclResult_t result = ceclSuccess;

    cecl_plan_init(plan, call);
    if (call->small)
        cecl_lower_small(call, plan);
    else if (call->op == ceclOpAllGather)
        cecl_lower_all_gather(call, plan);
    else if (cecl_op_reduces(call->op))
        result = cecl_lower_reduction(call, plan);
    else if (cecl_is_variable(call))
        result = cecl_lower_variable(call, plan);
    else
        result = cecl_lower_all_to_all(call, plan);
    if (result != ceclSuccess) {
        cecl_plan_free(plan);
        return result;
    }
    CECL_TRY(cecl_plan_finish(plan));
    if (call->small)
        explain_small(plan);
    else if (cecl_op_reduces(call->op))
        explain_reduction(plan);
    else
        explain_path(plan);
    return ceclSuccess;
}

/* ---- groups */

static void share_staging(struct cecl_call *calls, uint32_t ncalls)
{
    uint64_t sharers = 0, turn = 0;
    for (uint32_t i = 0; i < ncalls; i++)
        sharers += calls[i].op == ceclOpAlltoAll;
    for (uint32_t i = 0; i < ncalls && sharers > 1; i++)
        if (calls[i].op == ceclOpAlltoAll) {
            uint64_t share = calls[i].staging_bytes / sharers;
            if (share > CECL_PIECE_ALIGN)
                share -= share % CECL_PIECE_ALIGN;
            calls[i].staging_bytes = share;
            calls[i].staging_offset = turn++ * share;
        }
}

static void explain_group(struct cecl_plan *plan)
{
    const uint32_t local = cecl_plan_local_copies(plan);
    snprintf(plan->path, sizeof(plan->path), "group of %" PRIu32 " calls, %" PRIu32 " copies",
             plan->nparts, plan->ncopies);
    if (plan->nreductions > 0)
        snprintf(plan->reason, sizeof(plan->reason), "%" PRIu32 " reductions need SMs",
                 plan->nreductions);
    else if (local == 0)
        snprintf(plan->reason, sizeof(plan->reason),
                 "zero SM: every copy crosses between GPUs and flags are stream operations");
    else if (cecl_plan_sm_copies(plan) == 0)
        snprintf(plan->reason, sizeof(plan->reason), "%s", zero_sm_by_engine);
    else
        snprintf(plan->reason, sizeof(plan->reason),
                 "%" PRIu32 " copies stay within one GPU, which needs an SM: %s",
                 cecl_plan_sm_copies(plan),
                 plan->call.nranks == 1 ? "there is one rank" : "CECL_SM_ALLOW, where faster");
}

/* Calls that only move data share barriers; reductions, which have steps of more kinds, follow one
 * after the other. */
static ceclResult_t join_plans(const struct cecl_plan *plans, uint32_t nplans,
                               struct cecl_plan *joined)
{
    struct cecl_plan *moving = calloc(nplans, sizeof(*moving));
    if (!moving)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nplans);
    for (uint32_t i = 0; i < nplans; i++)
        if (cecl_op_reduces(plans[i].call.op))
            moving[i].call = plans[i].call; /* without steps */
        else
            moving[i] = plans[i];
    ceclResult_t result = cecl_plan_merge(moving, nplans, joined);
    free(moving);
    if (result != ceclSuccess)
        return result;
    for (uint32_t i = 0; i < nplans; i++)
        if (cecl_op_reduces(plans[i].call.op))
            cecl_plan_append(joined, &plans[i], i);
    return cecl_plan_finish(joined);
}

ceclResult_t cecl_lower_group(struct cecl_call *calls, uint32_t ncalls, struct cecl_plan *plan)
{
    if (ncalls == 1)
        return cecl_lower(&calls[0], plan);
    struct cecl_plan *plans = calloc(ncalls, sizeof(*plans));
    if (!plans)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         ncalls);
    ceclResult_t result = ceclSuccess;
    share_staging(calls, ncalls);
    for (uint32_t i = 0; i < ncalls; i++) {
        calls[i].side_copy = false; /* batches are merged, lanes are not */
        calls[i].small = false;     /* what has a kernel to itself is alone */
    }
    for (uint32_t i = 0; i < ncalls && result == ceclSuccess; i++)
        result = cecl_lower(&calls[i], &plans[i]);
    if (result == ceclSuccess)
        result = join_plans(plans, ncalls, plan);
    if (result == ceclSuccess)
        explain_group(plan);
    for (uint32_t i = 0; i < ncalls; i++)
        cecl_plan_free(&plans[i]);
    free(plans);
    return result;
}
