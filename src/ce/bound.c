/* A bound plan's memory, and its report for ceclExplain. */
#include "ce/bound.h"

#include <stdlib.h>
#include <string.h>

void cecl_bound_free(struct cecl_bound *bound)
{
    if (bound)
        free(bound->memory);
    free(bound);
}

struct cecl_command *cecl_bound_command(struct cecl_bound *bound, enum cecl_command_kind kind,
                                        uint8_t lane, uint32_t first)
{
    struct cecl_command *command = &bound->commands[bound->ncommands++];
    *command = (struct cecl_command){.kind = (uint8_t)kind, .lane = lane, .first = first};
    bound->nlanes = lane < bound->nlanes ? bound->nlanes : lane + 1;
    return command;
}

static uint32_t count_rows(const struct cecl_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->ncopies; i++)
        count += plan->copies[i].rows > 1;
    return count;
}

/* Lays the arrays out one behind the other from `at` on, and returns how many bytes they take. A
 * step, or a write of `done`, needs at most two operations or copies, two commands (if a step has
 * copies of both kinds), and three cells. */
static size_t lay_out(struct cecl_bound *bound, const struct cecl_plan *plan, char *at)
{
    const size_t nsteps =
                     (size_t)bound->steps + plan->phases[CECL_LANE_MAIN] / CECL_PHASES_A_MARK + 1,
                 ncopies = bound->copies + nsteps, nreductions = plan->nreductions;
    size_t bytes = 0;
#define TAKE(member, count) \
    (member = at ? (void *)(at + bytes) : NULL, \
     bytes += ((count) * sizeof(*(member)) + 15) / 16 * 16)
    TAKE(bound->commands, 2 * nsteps);
    TAKE(bound->ops, 2 * nsteps);
    TAKE(bound->batch.dst, ncopies);
    TAKE(bound->batch.src, ncopies);
    TAKE(bound->batch.bytes, ncopies);
    TAKE(bound->rows, count_rows(plan));
    TAKE(bound->reductions, nreductions);
    TAKE(bound->sources, plan->nsources);
    TAKE(bound->meetings, nreductions);
    TAKE(bound->also, bound->copies);
    TAKE(bound->splits, (size_t)cecl_plan_count(plan, CECL_STEP_SPLITS));
    TAKE(bound->cells, 3 * (ncopies + nreductions + 1));
#undef TAKE
    return bytes;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* `op` is NULL in a plan of messages. */
static bool has_splits(const struct cecl_plan *plan)
{
    const struct cecl_op *op = plan->part.call.op;
    return op && op->family == CECL_FAMILY_SPLITS;
}

/* The memory never shrinks, so plans of different shapes can use it in turn. */
ceclResult_t cecl_bound_reserve(struct cecl_bound *bound, const struct cecl_plan *plan)
{
    const bool fits = plan->nsteps <= bound->steps && plan->ncopies <= bound->copies &&
                      plan->nreductions == 0 && !has_splits(plan) && count_rows(plan) == 0;
    bound->ncommands = bound->nops = bound->ncopies = bound->nrows = 0;
    bound->nreductions = bound->nalso = bound->ncells = 0;
    bound->nsplits = 0;
    bound->nlanes = 1;
    if (fits)
        return ceclSuccess;
    free(bound->memory);
    bound->steps = larger(bound->steps, plan->nsteps);
    bound->copies = larger(bound->copies, plan->ncopies);
    bound->memory = malloc(lay_out(bound, plan, NULL));
    if (!bound->memory) {
        bound->steps = bound->copies = 0;
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);
    }
    lay_out(bound, plan, bound->memory);
    return ceclSuccess;
}

struct cecl_bound *cecl_bound_new(const struct cecl_plan *plan)
{
    struct cecl_bound *bound = calloc(1, sizeof(*bound));
    if (!bound)
        return NULL;
    if (cecl_bound_reserve(bound, plan) == ceclSuccess)
        return bound;
    cecl_bound_free(bound);
    return NULL;
}

static void explain_small(const struct cecl_plan *plan, ceclExplanation_t *out)
{
    const struct cecl_call *call = &plan->part.call;
    *out = (ceclExplanation_t){.reductions = (int)plan->nreductions,
                               /* the kernel that reduces also sends and receives, so there are no
                                * copies */
                               .kernels = 1,
                               .barriers = (int)plan->phases[CECL_LANE_MAIN],
                               .bytesSent = ((uint64_t)call->nranks - 1) * call->bytes};
}

void cecl_plan_explain(const struct cecl_plan *plan, ceclExplanation_t *out)
{
    const uint32_t kernels = cecl_plan_kernels(plan);
    if (!plan->parts && plan->part.way.small)
        explain_small(plan, out);
    else
        *out = (ceclExplanation_t){.zeroSm = cecl_plan_local_copies(plan) + kernels == 0 &&
                                             !cecl_plan_shares_sms(plan),
                                   .copies = (int)plan->ncopies,
                                   .localCopies = (int)cecl_plan_local_copies(plan),
                                   .reductions = (int)plan->nreductions,
                                   .kernels = (int)kernels,
                                   .barriers = (int)plan->phases[CECL_LANE_MAIN],
                                   .bytesSent = cecl_plan_bytes(plan)};
    memcpy(out->path, plan->path, sizeof(out->path));
    memcpy(out->reason, plan->reason, sizeof(out->reason));
}
