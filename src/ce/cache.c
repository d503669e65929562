/* The cache of bound plans: sets of a few entries, replaced in turn. The key of a plan is the
 * descriptions of its calls. */
#include <stdlib.h>
#include <string.h>

#include "ce/bound.h"

static size_t set_of(const struct cecl_call *calls, uint32_t count)
{
    uint64_t hash = count;
    for (uint32_t i = 0; i < count; i++)
        hash = cecl_call_hash(hash, &calls[i]);
    return (size_t)(hash >> 40) % CECL_CACHE_SETS;
}

static bool is_of(const struct cecl_bound *bound, const struct cecl_call *calls, uint32_t count)
{
    if (bound->ncalls != count)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!cecl_call_equal(&bound->calls[i], &calls[i]))
            return false;
    return true;
}

static bool are_equal(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

static bool was_told(const struct cecl_bound *bound, const struct cecl_told *told)
{
    const struct cecl_told *mine = &bound->told;
    return mine->late == told->late && mine->inputs_readable == told->inputs_readable &&
           mine->earlier == told->earlier && mine->nbuffers == told->nbuffers &&
           mine->nsend_at == told->nsend_at && mine->noutside == told->noutside &&
           are_equal(mine->buffers, told->buffers, told->nbuffers * sizeof(*told->buffers)) &&
           are_equal(mine->send_at, told->send_at, told->nsend_at * sizeof(*told->send_at)) &&
           are_equal(mine->outside, told->outside, told->noutside * sizeof(*told->outside));
}

struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_call *calls, uint32_t count,
                                      const struct cecl_told *told)
{
    struct cecl_bound *const *set = engine->cache[set_of(calls, count)];
    for (int w = 0; w < CECL_CACHE_WAYS; w++)
        if (set[w] && is_of(set[w], calls, count) && was_told(set[w], told) &&
            cecl_imports_name(engine->windows->registry, &set[w]->imports))
            return set[w];
    return NULL;
}

/* Grows whenever memory that was checked may be gone. */
static uint64_t generation_of(const struct cecl_engine *engine)
{
    const struct cecl_registry *registry = engine->windows->registry;
    return engine->pool->generation + (registry ? registry->changes : 0);
}

bool cecl_engine_has_checked(const struct cecl_engine *engine, const struct cecl_call *calls,
                             uint32_t count)
{
    struct cecl_bound *const *set = engine->cache[set_of(calls, count)];
    for (int w = 0; w < CECL_CACHE_WAYS; w++)
        if (set[w] && is_of(set[w], calls, count))
            return set[w]->generation == generation_of(engine);
    return false;
}

void cecl_engine_checked(const struct cecl_engine *engine, const struct cecl_call *calls,
                         uint32_t count)
{
    struct cecl_bound *const *set = engine->cache[set_of(calls, count)];
    for (int w = 0; w < CECL_CACHE_WAYS; w++)
        if (set[w] && is_of(set[w], calls, count))
            set[w]->generation = generation_of(engine);
}

static void keep(struct cecl_engine *engine, struct cecl_bound *bound)
{
    const size_t s = set_of(bound->calls, bound->ncalls);
    unsigned way = engine->victim[s]++ % CECL_CACHE_WAYS;
    if (engine->cache[s][way] && engine->cache[s][way] == engine->held)
        way = engine->victim[s]++ % CECL_CACHE_WAYS;
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

/* A copy of `bytes` bytes, which may be none; NULL without memory. */
static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    if (copy && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

static bool keep_told(struct cecl_bound *bound, const struct cecl_told *told)
{
    bound->told = *told;
    bound->buffers = copy_of(told->buffers, told->nbuffers * sizeof(*told->buffers));
    bound->send_at = copy_of(told->send_at, told->nsend_at * sizeof(*told->send_at));
    bound->outside = copy_of(told->outside, told->noutside * sizeof(*told->outside));
    bound->told.buffers = bound->buffers;
    bound->told.send_at = bound->send_at;
    bound->told.outside = bound->outside;
    return bound->buffers && bound->send_at && bound->outside;
}

ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              uint32_t count, const struct cecl_told *told,
                              const struct cecl_plan *plan, struct cecl_bound **out)
{
    struct cecl_bound *bound = cecl_bound_new(plan, count);
    if (!bound)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u steps", plan->nsteps);

    if (!keep_calls(bound, calls) || !keep_told(bound, told)) {
        cecl_bound_free(bound);
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", count);
    }
    bound->signature = cecl_calls_signature(calls, count);
    bound->generation = generation_of(engine);
    ceclResult_t result = cecl_bind_plan(engine, plan, bound);
    if (result == ceclSuccess && told->nbuffers > 0)
        result = cecl_imports_collect(engine->windows->registry, told->buffers, told->nbuffers,
                                      &bound->imports);
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

const struct cecl_call *cecl_bound_calls(const struct cecl_bound *bound, uint32_t *count)
{
    *count = bound->ncalls;
    return bound->calls;
}

uint32_t cecl_bound_signature(const struct cecl_bound *bound)
{
    return bound->signature;
}

void cecl_bound_used(const struct cecl_engine *engine, const struct cecl_bound *bound)
{
    const uint32_t target = cecl_flags_done_target(&engine->flags);
    for (uint32_t i = 0; i < bound->ncalls; i++) {
        cecl_window_used(bound->calls[i].send.window, target);
        cecl_window_used(bound->calls[i].recv.window, target);
    }
    cecl_imports_used(engine->windows->registry, &bound->imports, target);
}
