/* The verifier's frame: sets up what the three examinations share, and runs them. */
#include <stdlib.h>

#include "plan/verify_internal.h"

uint64_t verify_send_bytes(const struct cecl_call *call)
{
    return call->op == ceclOpAllGather ? call->bytes : call->bytes * (uint64_t)call->nranks;
}

uint64_t verify_recv_bytes(const struct cecl_call *call)
{
    return call->bytes * (uint64_t)call->nranks;
}

static void at_least(uint64_t *value, uint64_t least)
{
    if (*value < least)
        *value = least;
}

/* User buffers count whole; of staging, which may be large, only what a copy touches. */
static void measure_plan(struct verifier *v, const struct cecl_plan *plan)
{
    at_least(&v->window_bytes[CECL_WINDOW_SEND], verify_send_bytes(&plan->call));
    at_least(&v->window_bytes[CECL_WINDOW_RECV], verify_recv_bytes(&plan->call));
    for (uint32_t s = 0; s < plan->nsteps; s++)
        for (uint32_t i = 0; plan->steps[s].kind == CECL_STEP_COPY && i < plan->steps[s].count;
             i++) {
            const struct cecl_copy *copy = &plan->copies[plan->steps[s].first + i];
            at_least(&v->window_bytes[copy->dst.window], copy->dst.offset + copy->bytes);
            at_least(&v->window_bytes[copy->src.window], copy->src.offset + copy->bytes);
        }
}

static bool allocate(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    uint32_t most = 0;
    bool fine = true;
    for (size_t r = 0; r < n; r++) {
        uint32_t events = 2 + (uint32_t)v->ncalls; /* nothing, the user's turns */
        for (int c = 0; c < v->ncalls; c++)
            events += verify_plan(v, c, (int)r)->nsteps;
        most = events > most ? events : most;
    }
    v->max_events = most;
    v->clocks = calloc(n * most * n, sizeof(*v->clocks));
    v->signals = calloc(n * n * (size_t)(v->base[v->ncalls] + 1), sizeof(*v->signals));
    v->highest = calloc(n * n, sizeof(*v->highest));
    v->writes = calloc(n * (size_t)v->window_bytes[CECL_WINDOW_RECV] + 1, sizeof(*v->writes));
    v->accesses = calloc(CECL_WINDOW_COUNT * n, sizeof(*v->accesses));
    v->ranks = calloc(n, sizeof(*v->ranks));
    for (int w = 0; w < CECL_WINDOW_COUNT; w++) {
        v->tags[w] = calloc(n * (size_t)v->window_bytes[w] + 1, sizeof(*v->tags[w]));
        fine = fine && v->tags[w];
    }
    return fine && v->clocks && v->signals && v->highest && v->writes && v->accesses && v->ranks;
}

static void release(struct verifier *v)
{
    for (int i = 0; v->accesses && i < CECL_WINDOW_COUNT * v->nranks; i++)
        free(v->accesses[i].list);
    for (int w = 0; w < CECL_WINDOW_COUNT; w++)
        free(v->tags[w]);
    free(v->base);
    free(v->clocks);
    free(v->signals);
    free(v->highest);
    free(v->writes);
    free(v->accesses);
    free(v->ranks);
}

ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks)
{
    struct verifier v = {.plans = plans, .ncalls = ncalls, .nranks = nranks};

    if (!plans || ncalls < 1 || nranks < 1 || nranks > CECL_MAX_RANKS)
        return VERIFY_FAULT("%d calls of %d ranks: 1 call at least, and 1 to %d ranks", ncalls,
                            nranks, CECL_MAX_RANKS);
    v.base = calloc((size_t)ncalls + 1, sizeof(*v.base));
    if (!v.base)
        return cecl_fail(ceclOutOfMemory, "no host memory to verify %d calls", ncalls);
    ceclResult_t result = verify_form(&v);
    for (int i = 0; i < ncalls * nranks && result == ceclSuccess; i++)
        measure_plan(&v, &plans[i]); /* form holds: no index is astray, no size overflows */
    for (int c = 0; c < ncalls && result == ceclSuccess; c++)
        v.base[c + 1] = v.base[c] + verify_plan(&v, c, 0)->phases;
    if (result == ceclSuccess && !allocate(&v))
        result = cecl_fail(ceclOutOfMemory, "no host memory to verify %d calls of %d ranks", ncalls,
                           nranks);
    if (result == ceclSuccess)
        result = verify_run(&v);
    if (result == ceclSuccess)
        result = verify_races(&v);
    if (result == ceclSuccess && v.wrong_data)
        result = VERIFY_FAULT("%s", v.words);
    release(&v);
    return result;
}
