/* Lowers a call to a plan, by the lowering of its op or of small calls, and states the reason that
 * ceclExplain gives. Lowers groups of calls. */
#include "ce/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce/lowering.h"
#include "ce/route.h"
#include "util/round.h"

/* ---- why a plan needs SMs, or none */

static const char zero_sm[] =
    "zero SM: every copy crosses between GPUs and flags are stream operations";
static const char zero_sm_by_engine[] = "zero SM: a copy engine runs copies within a GPU too "
                                        "(probed when the communicator was made), and "
                                        "flags are stream operations";

static const char zero_sm_by_host[] = "zero SM: every copy goes to or from host memory, where it "
                                      "waits for no copy between GPUs, and flags are stream "
                                      "operations";

static const char *reason_of_small(const struct cecl_call *call)
{
    return call->op->reduces
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
    if (!call->op->each && !call->op->per_rank)
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
    if (plan->nreductions > 0)
        return "arithmetic needs SMs: as few as ceclConfig_t.maxSms says";
    if (cecl_plan_shares_sms(plan))
        return CECL_SHARED_GPU_WORDS;
    if (call->op->reduces)
        return "zero SM: this rank has nothing to reduce";
    if (cecl_plan_local_copies(plan) == 0)
        return zero_sm;
    return cecl_plan_sm_copies(plan) == 0 ? zero_sm_by_engine : reason_of_local(call);
}

/* ---- copies of blocks */

static struct cecl_place place_of(const struct cecl_part *part, const struct cecl_extent *extent,
                                  uint64_t byte)
{
    struct cecl_place place = extent->at;
    place.offset +=
        extent->pitch ? cecl_offset_within(&part->call, extent->pitch, byte) : byte - extent->from;
    return place;
}

static void copy_rows(const struct cecl_part *part, struct cecl_plan *plan,
                      const struct cecl_extent *dst, const struct cecl_extent *src, uint64_t first,
                      uint64_t bytes, uint64_t rows)
{
    const uint64_t width = part->call.view.shape.width;
    const struct cecl_copy copy = {.dst = place_of(part, dst, first),
                                   .src = place_of(part, src, first),
                                   .bytes = bytes,
                                   .rows = rows,
                                   .dst_pitch = dst->pitch ? dst->pitch : width,
                                   .src_pitch = src->pitch ? src->pitch : width};
    if (bytes > 0 && rows > 0)
        cecl_plan_copy_rows(plan, &copy);
}

void cecl_lower_copy(const struct cecl_part *part, struct cecl_plan *plan, struct cecl_extent dst,
                     struct cecl_extent src, uint64_t first, uint64_t bytes)
{
    const uint64_t width = part->call.view.shape.width;
    if (width == 0 || (dst.pitch == 0 && src.pitch == 0)) {
        copy_rows(part, plan, &dst, &src, first, bytes, 1);
        return;
    }
    const uint64_t begun = first % width ? width - first % width : 0;
    const uint64_t head = begun < bytes ? begun : bytes, rows = (bytes - head) / width;
    copy_rows(part, plan, &dst, &src, first, head, 1);
    copy_rows(part, plan, &dst, &src, first + head, width, rows);
    copy_rows(part, plan, &dst, &src, first + head + rows * width, (bytes - head) % width, 1);
}

void cecl_lower_block(const struct cecl_part *part, struct cecl_plan *plan, int from, int to)
{
    cecl_lower_copy(part, plan, cecl_received(part, from, to), cecl_sent(part, from, to), 0,
                    cecl_call_block(&part->call, from, to).bytes);
}

void cecl_lower_alone(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (!part->call.in_place)
        cecl_lower_block(part, plan, 0, 0);
    cecl_plan_say(plan, "%s",
                  part->means.engine_copies_locally ? CECL_SAY_BY_ENGINE : "local copy");
}

struct cecl_pieces cecl_pieces_of(const struct cecl_part *part, uint64_t bytes, uint64_t most)
{
    const uint64_t width = part->call.view.shape.width, each = part->way.move.piece_worth;
    const uint64_t peers = (uint64_t)part->call.nranks - 1, worth = bytes / each + 1;
    const uint64_t count = worth < peers ? worth : peers;
    const uint64_t align = width ? width : each < CECL_PIECE_ALIGN ? 1 : CECL_PIECE_ALIGN;
    const uint64_t whole = cecl_round_up((bytes + count - 1) / count, align);
    const uint64_t room = most / count < align ? most / count : most / count / align * align;
    return (struct cecl_pieces){(int)count, whole < room ? whole : room};
}

ceclResult_t cecl_lower(const struct cecl_part *part, struct cecl_plan *plan)
{
    cecl_plan_init(plan, part);
    const ceclResult_t result = part->way.small     ? cecl_lower_small(part, plan)
                                : part->way.by_host ? cecl_lower_host(part, plan)
                                                    : part->call.op->lower(part, plan);
    if (result != ceclSuccess) {
        cecl_plan_free(plan);
        return result;
    }
    CECL_TRY(cecl_plan_finish(plan));
    if (plan->nsteps == 0)
        cecl_plan_say(plan, "nothing to %s", part->call.op->reduces ? "do" : "move");
    snprintf(plan->reason, sizeof(plan->reason), "%s", reason_of(plan));
    return ceclSuccess;
}

/* ---- groups */

/* Whether a call shares staging with the other calls of its group. Reductions do not, because they
 * follow one after the other. */
static bool shares(const struct cecl_part *part)
{
    const struct cecl_op *op = part->call.op;
    return !op->reduces && (op->each || op->per_rank);
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
    cecl_plan_say(plan, "group of %" PRIu32 " calls, %" PRIu32 " copies", plan->nparts,
                  plan->ncopies);
    if (plan->nreductions > 0)
        snprintf(plan->reason, sizeof(plan->reason), "%" PRIu32 " reductions need SMs",
                 plan->nreductions);
    else if (cecl_plan_shares_sms(plan))
        snprintf(plan->reason, sizeof(plan->reason), "%s", CECL_SHARED_GPU_WORDS);
    else if (cecl_plan_local_copies(plan) == 0)
        snprintf(plan->reason, sizeof(plan->reason), "%s", zero_sm);
    else if (cecl_plan_sm_copies(plan) == 0)
        snprintf(plan->reason, sizeof(plan->reason), "%s", zero_sm_by_engine);
    else
        snprintf(plan->reason, sizeof(plan->reason),
                 "%" PRIu32 " copies stay within one GPU, which needs an SM: %s",
                 cecl_plan_sm_copies(plan),
                 plan->part.call.nranks == 1 ? "there is one rank" : "CECL_SM_ALLOW, where faster");
}

/* Calls that only move data share barriers. Reductions have steps of more kinds, so they follow one
 * after the other. */
static ceclResult_t join_plans(const struct cecl_plan *plans, uint32_t nplans,
                               struct cecl_plan *joined)
{
    struct cecl_plan *moving = calloc(nplans, sizeof(*moving));
    if (!moving)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %" PRIu32 " calls",
                         nplans);
    for (uint32_t i = 0; i < nplans; i++)
        if (plans[i].part.call.op->reduces)
            /* takes this call's place in the merged plan, without steps */
            moving[i].part = plans[i].part;
        else
            moving[i] = plans[i];
    ceclResult_t result = cecl_plan_merge(moving, nplans, joined);
    free(moving);
    if (result != ceclSuccess)
        return result;
    for (uint32_t i = 0; i < nplans; i++)
        if (plans[i].part.call.op->reduces)
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
        parts[i].way.move.beside = false; /* merging keeps batches, and not lanes */
        parts[i].way.small = false;       /* the kernel of a small call serves one call */
        parts[i].way.by_host = false;     /* a half serves one call */
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
