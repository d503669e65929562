/* Calls whose plans the model plays: described, chosen and lowered by the library's own code. */
#include "calls.h"

#include <stdlib.h>
#include <string.h>

#include "ce/lower.h"
#include "plan/tuning.h"
#include "plan/way.h"

static const struct {
    const char *name;
    enum cecl_op_index op;
} names[] = {{"all_gather", CECL_OP_ALL_GATHER},
             {"alltoall", CECL_OP_ALL_TO_ALL},
             {"reduce_scatter", CECL_OP_REDUCE_SCATTER},
             {"all_reduce", CECL_OP_ALL_REDUCE},
             {"reduce", CECL_OP_REDUCE},
             {"broadcast", CECL_OP_BROADCAST},
             {"gather", CECL_OP_GATHER},
             {"scatter", CECL_OP_SCATTER},
             {"barrier", CECL_OP_BARRIER}};

bool model_calls_named(const char *name, enum cecl_op_index *op)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i].name, name) == 0) {
            *op = names[i].op;
            return true;
        }
    return false;
}

/* One call. Reductions are of bfloat16. The model cannot play small calls, nor kernels that read peers' memory. So
 * way.small is cleared, and `means` does not allow peers' kernels to read inputs. */
static struct cecl_part part_of(const struct model_call *call, const struct cecl_tuning *tuning)
{
    struct cecl_part part = {
        .call = {.op = &cecl_ops[call->op],
                 .in_place = call->in_place,
                 .bytes = call->bytes,
                 .count = call->bytes,
                 .element = 1,
                 .nranks = call->nranks,
                 .options.sm_policy = call->sm_policy},
        .means = {.tuning = tuning,
                  .staging_bytes = call->staging
                                       ? call->staging
                                       : cecl_tuning_get(tuning, CECL_TUNE_STAGING_MAX_BYTES),
                  .late = call->late != 0}};
    if (part.call.op->family == CECL_FAMILY_REDUCTION) {
        part.call.element = 2;
        part.call.type = ceclBfloat16;
    }
    cecl_choose(&part.call, &part.means, &part.way);
    part.way.small = false;
    part.means.tuning = NULL;
    return part;
}

ceclResult_t model_calls_lower(const struct model_call *call, struct cecl_plan *plans)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, call->nranks);
    const struct cecl_part part = part_of(call, &tuning);
    const uint32_t count = call->group ? (uint32_t)call->group : 1;
    memset(plans, 0, (size_t)call->nranks * sizeof(*plans));
    for (int r = 0; r < call->nranks; r++) {
        struct cecl_part group[MODEL_GROUP_MAX], mine = part;
        mine.call.rank = r;
        /* ranks that are not late publish before late ones; ranks of one kind publish in the order of their
         * numbers */
        for (int p = 0; mine.means.late && p < call->nranks && p < 64; p++) {
            const bool i_am_late = call->late >> r & 1, is_late = call->late >> p & 1;
            if (i_am_late == is_late ? p < r : i_am_late)
                mine.earlier |= UINT64_C(1) << p;
        }
        for (uint32_t i = 0; i < count; i++)
            group[i] = mine;
        const ceclResult_t result = cecl_lower_group(group, count, &plans[r]);
        if (result != ceclSuccess) {
            model_calls_free(plans, call->nranks);
            return result;
        }
    }
    return ceclSuccess;
}

void model_calls_free(struct cecl_plan *plans, int nranks)
{
    for (int r = 0; r < nranks; r++)
        cecl_plan_free(&plans[r]);
}

double model_bus_bandwidth(const struct model_call *call, double us)
{
    const double n = call->nranks, bytes = (double)call->bytes;
    const struct cecl_op *op = &cecl_ops[call->op];
    double moved = bytes;
    if (op->family == CECL_FAMILY_REDUCTION && op->to == CECL_TO_ALL)
        moved = 2 * (n - 1) / n * bytes;
    else if (call->op != CECL_OP_BROADCAST && call->op != CECL_OP_REDUCE)
        moved = (n - 1) * bytes;
    return us > 0 ? (call->group ? call->group : 1) * moved / us / 1e3 : 0;
}

/* How many bytes one GPU's link carries in each direction. */
static double carried(const struct model_call *call)
{
    const double n = call->nranks, bytes = (double)call->bytes;
    switch (call->op) {
    case CECL_OP_ALL_GATHER:
    case CECL_OP_ALL_TO_ALL:
    case CECL_OP_REDUCE_SCATTER: return (n - 1) * bytes;
    case CECL_OP_ALL_REDUCE: return 2 * (n - 1) / n * bytes;
    case CECL_OP_BROADCAST: return n > 1 ? (n - 1) / n * bytes : 0;
    default: return 0;
    }
}

double model_closed(const struct model_call *call, const struct model_rates *rates)
{
    return (call->group ? call->group : 1) * carried(call) / rates->push / 1e3;
}
