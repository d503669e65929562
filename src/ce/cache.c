/* The cache of bound plans: sets of a few entries, replaced in turn. The key of a plan is the
 * descriptions of its calls. */
#include <stdlib.h>

#include "ce/bound.h"

static size_t set_of(const struct cecl_call *calls, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++)
        hash = cecl_call_hash(hash, &calls[i]);
    return (size_t)(hash >> 40) % CECL_CACHE_SETS;
}

static bool is_for(const struct cecl_bound *bound, const struct cecl_call *calls, uint32_t count)
{
    if (bound->ncalls != count)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!cecl_call_equal(&bound->calls[i], &calls[i]))
            return false;
    return true;
}

struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_call *calls, uint32_t count, bool *stale)
{
    struct cecl_bound *const *set = engine->cache[set_of(calls, count)];
    for (int w = 0; w < CECL_CACHE_WAYS; w++)
        if (set[w] && is_for(set[w], calls, count)) {
            *stale = set[w]->generation != engine->pool->generation;
            return set[w];
        }
    return NULL;
}

void cecl_engine_refresh(const struct cecl_engine *engine, struct cecl_bound *bound)
{
    bound->generation = engine->pool->generation;
}

static void keep(struct cecl_engine *engine, struct cecl_bound *bound)
{
    const size_t s = set_of(bound->calls, bound->ncalls);
    unsigned way = engine->victim[s]++ % CECL_CACHE_WAYS;
    for (unsigned w = 0; w < CECL_CACHE_WAYS; w++)
        if (!engine->cache[s][w])
            way = w;
    cecl_bound_free(engine->cache[s][way]);
    engine->cache[s][way] = bound;
}

/* Makes the side lane's stream when the first plan needs it: a plan with a side lane, or with
 * urgent kernels. */
static ceclResult_t make_side(struct cecl_engine *engine, const struct cecl_bound *bound)
{
    bool wanted = false;
    for (uint32_t i = 0; i < bound->ncommands; i++)
        wanted = wanted || bound->commands[i].lane == CECL_LANE_SIDE || bound->commands[i].urgent;
    if (!wanted || engine->side)
        return ceclSuccess;
    return engine->dev->ops->stream_create_urgent(engine->dev, &engine->side);
}

/* Copies the descriptions and their layouts into the bound plan, because they outlive the call. */
static bool keep_calls(struct cecl_bound *bound, const struct cecl_call *calls)
{
    size_t words = 0;
    for (uint32_t i = 0; i < bound->ncalls; i++)
        words += calls[i].layout_words;
    bound->layouts = malloc((words + 1) * sizeof(*bound->layouts));
    uint64_t *next = bound->layouts;
    for (uint32_t i = 0; i < bound->ncalls && next; i++) {
        cecl_call_keep(&bound->calls[i], &calls[i], next);
        next += calls[i].layout_words;
    }
    return bound->layouts != NULL;
}

ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              uint32_t count, const struct cecl_plan *plan, struct cecl_bound **out)
{
    struct cecl_bound *bound = cecl_bound_new(plan, count);
    if (!bound)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);

    if (!keep_calls(bound, calls)) {
        cecl_bound_free(bound);
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    }
    bound->generation = engine->pool->generation;
    ceclResult_t result = cecl_bind_plan(engine, plan, bound);
    if (result == ceclSuccess)
        result = make_side(engine, bound);
    if (result != ceclSuccess) {
        cecl_bound_free(bound);
        return result;
    }
    keep(engine, bound);
    engine->plans_made++;
    *out = bound;
    return ceclSuccess;
}
