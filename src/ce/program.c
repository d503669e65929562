/* Making a program: a plan that is bound to addresses. */
#include "ce/bound.h"

/* Makes the side lane's stream when a plan first needs it, for a side lane or for urgent
 * kernels. */
static ceclResult_t make_side(struct cecl_engine *engine, const struct cecl_bound *bound)
{
    bool wanted = false;
    for (uint32_t i = 0; i < bound->ncommands; i++)
        wanted = wanted || bound->commands[i].lane == CECL_LANE_SIDE || bound->commands[i].urgent;
    if (!wanted || engine->side)
        return ceclSuccess;
    return engine->dev->ops->stream_create_urgent(engine->dev, &engine->side);
}

ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              const struct cecl_told *told, const struct cecl_plan *plan,
                              struct cecl_bound **out)
{
    struct cecl_bound *bound = cecl_bound_new(plan);
    if (!bound)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);
    bound->calls = calls;
    bound->told = told;
    ceclResult_t result = cecl_bind_plan(engine, plan, bound);
    if (result == ceclSuccess)
        result = make_side(engine, bound);
    if (result != ceclSuccess) {
        cecl_bound_free(bound);
        return result;
    }
    *out = bound;
    return ceclSuccess;
}
