/* The verifier's frame: sets up what the three examinations share, and runs them. */
#include <stdlib.h>

#include "plan/verify_internal.h"

/* Where `bytes` at `offset` end, if that is further. */
static uint64_t further(uint64_t end, uint64_t offset, uint64_t bytes)
{
    return bytes > 0 && offset + bytes > end ? offset + bytes : end;
}

uint64_t verify_send_bytes(const struct cecl_call *call, int rank)
{
    const struct cecl_shape *shape = &call->shape;
    if (cecl_op_reduces(call->op))
        return call->op == ceclOpReduceScatter ? call->bytes * (uint64_t)call->nranks : call->total;
    const uint64_t blocks = call->op == ceclOpAllGather ? 1 : (uint64_t)call->nranks;
    uint64_t end = 0;
    for (int r = 0; cecl_is_variable(call) && r < call->nranks; r++)
        end = further(end, cecl_sent_offset(call, r), cecl_sent_bytes(call, r));
    if (cecl_is_variable(call))
        return end;
    if (shape->width)
        return (blocks - 1) * shape->send_stride +
               cecl_rows_extent(shape->width, shape->rows, shape->send_pitch);
    return blocks * (call->op == ceclOpAllGather ? cecl_block_bytes(call, rank) : call->bytes);
}

uint64_t verify_recv_bytes(const struct cecl_call *call)
{
    const struct cecl_shape *shape = &call->shape;
    if (cecl_op_reduces(call->op))
        return call->op != ceclOpReduceScatter ? call->total
               : call->in_place                ? verify_send_bytes(call, call->rank)
                                               : call->bytes;
    if (shape->width)
        return ((uint64_t)call->nranks - 1) * shape->recv_stride +
               cecl_rows_extent(shape->width, shape->rows, shape->recv_pitch);
    uint64_t end = call->layout ? 0 : call->bytes * (uint64_t)call->nranks;
    for (int r = 0; call->layout && r < call->nranks; r++)
        end = cecl_is_variable(call)
                  ? further(end, cecl_received_offset(call, r), cecl_received_bytes(call, r))
                  : further(end, cecl_block_offset(call, r), cecl_block_bytes(call, r));
    return end;
}

uint64_t verify_block(const struct cecl_call *call, int from, uint64_t *offset)
{
    if (cecl_is_variable(call)) {
        *offset = cecl_received_offset(call, from);
        return cecl_received_bytes(call, from);
    }
    *offset = cecl_block_offset(call, from);
    return cecl_block_bytes(call, from);
}

static void at_least(uint64_t *value, uint64_t least)
{
    if (*value < least)
        *value = least;
}

/* User buffers count whole; of staging, which may be large, only what a copy touches. */
static void measure_plan(struct verifier *v, const struct cecl_plan *plan)
{
    for (uint32_t p = 0; p < cecl_plan_parts(plan); p++) {
        const struct cecl_call *call = cecl_plan_part(plan, p);
        at_least(&v->window_bytes[cecl_window_of(CECL_WINDOW_SEND, p)],
                 verify_send_bytes(call, call->rank));
        at_least(&v->window_bytes[cecl_window_of(CECL_WINDOW_RECV, p)], verify_recv_bytes(call));
    }
    for (uint32_t s = 0; s < plan->nsteps; s++)
        for (uint32_t i = 0; plan->steps[s].kind == CECL_STEP_COPY && i < plan->steps[s].count;
             i++) {
            const struct cecl_copy *copy = &plan->copies[plan->steps[s].first + i];
            at_least(&v->window_bytes[copy->dst.window],
                     copy->dst.offset + cecl_rows_extent(copy->bytes, copy->rows, copy->dst_pitch));
            at_least(&v->window_bytes[copy->src.window],
                     copy->src.offset + cecl_rows_extent(copy->bytes, copy->rows, copy->src_pitch));
        }
    for (uint32_t i = 0; i < plan->nreductions; i++) {
        const struct cecl_reduce *reduce = &plan->reductions[i];
        at_least(&v->window_bytes[reduce->dst.window], reduce->dst.offset + reduce->bytes);
        for (uint32_t s = 0; s < reduce->nsrc; s++) {
            const struct cecl_place *src = &plan->sources[reduce->first + s];
            at_least(&v->window_bytes[src->window], src->offset + reduce->bytes);
        }
    }
}

static bool allocate_windows(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    bool fine = true;
    v->tags = calloc((size_t)v->nwindows, sizeof(*v->tags));
    v->writes = calloc((size_t)v->nwindows, sizeof(*v->writes));
    v->accesses = calloc((size_t)v->nwindows * n, sizeof(*v->accesses));
    for (int w = 0; w < v->nwindows && v->tags && v->writes; w++) {
        v->tags[w] = calloc(n * (size_t)v->window_bytes[w] + 1, sizeof(*v->tags[w]));
        v->writes[w] = calloc(n * (size_t)v->window_bytes[w] + 1, sizeof(*v->writes[w]));
        fine = fine && v->tags[w] && v->writes[w];
    }
    return fine && v->tags && v->writes && v->accesses;
}

static bool allocate(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    uint32_t most = 0;
    for (size_t r = 0; r < n; r++) {
        uint32_t events = 2 + (uint32_t)v->ncalls; /* nothing, the user's turns */
        for (int c = 0; c < v->ncalls; c++)
            events += verify_plan(v, c, (int)r)->nsteps;
        most = events > most ? events : most;
    }
    const size_t actors = (size_t)v->nactors, flags = n * n * (size_t)v->nlanes;
    v->max_events = most;
    v->clocks = calloc(actors * most * actors, sizeof(*v->clocks));
    v->origins = calloc(actors * most, sizeof(*v->origins));
    v->signals = calloc(flags * (size_t)(v->most_phases + 1), sizeof(*v->signals));
    v->highest = calloc(flags, sizeof(*v->highest));
    v->ranks = calloc(n, sizeof(*v->ranks));
    v->actors = calloc(actors, sizeof(*v->actors));
    return allocate_windows(v) && v->clocks && v->origins && v->signals && v->highest && v->ranks &&
           v->actors;
}

static void release(struct verifier *v)
{
    for (int i = 0; v->accesses && i < v->nwindows * v->nranks; i++)
        free(v->accesses[i].list);
    for (int w = 0; w < v->nwindows; w++) {
        if (v->tags)
            free(v->tags[w]);
        if (v->writes)
            free(v->writes[w]);
    }
    free(v->tags);
    free(v->writes);
    free(v->window_bytes);
    free(v->base);
    free(v->clocks);
    free(v->origins);
    free(v->actors);
    free(v->signals);
    free(v->highest);
    free(v->accesses);
    free(v->ranks);
}

/* What all examinations need to know of the plans, before their form is known. */
static bool begin(struct verifier *v)
{
    for (int i = 0; i < v->ncalls * v->nranks; i++) {
        if (cecl_plan_parts(&v->plans[i]) > v->nparts)
            v->nparts = cecl_plan_parts(&v->plans[i]);
        for (uint32_t s = 0; s < v->plans[i].nsteps; s++)
            if (v->plans[i].steps[s].lane != CECL_LANE_MAIN)
                v->nlanes = CECL_LANES;
    }
    v->nactors = v->nranks * v->nlanes;
    if (v->nparts > CECL_GROUP_MAX)
        v->nparts = CECL_GROUP_MAX; /* form refuses it */
    v->nwindows = CECL_WINDOW_COUNT * (int)v->nparts;
    v->window_bytes = calloc((size_t)v->nwindows + 1, sizeof(*v->window_bytes));
    v->base = calloc(((size_t)v->ncalls + 1) * CECL_LANES, sizeof(*v->base));
    return v->window_bytes && v->base;
}

/* Where flags stand after call `c`. */
static void count_phases(struct verifier *v, int c)
{
    const struct cecl_plan *plan = verify_plan(v, c, 0);
    const uint64_t phases[CECL_LANES] = {plan->phases, plan->side_phases};
    for (int lane = 0; lane < CECL_LANES; lane++) {
        uint64_t *now = &v->base[c * CECL_LANES + lane], *next = now + CECL_LANES;
        *next = *now + phases[lane];
        v->most_phases = *next > v->most_phases ? *next : v->most_phases;
    }
}

ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks)
{
    struct verifier v = {.plans = plans, .ncalls = ncalls, .nranks = nranks, .nlanes = 1};

    if (!plans || ncalls < 1 || nranks < 1 || nranks > CECL_MAX_RANKS)
        return VERIFY_FAULT("%d calls of %d ranks: 1 call at least, and 1 to %d ranks", ncalls,
                            nranks, CECL_MAX_RANKS);
    ceclResult_t result =
        begin(&v) ? verify_form(&v)
                  : cecl_fail(ceclOutOfMemory, "no host memory to verify %d calls", ncalls);
    for (int i = 0; i < ncalls * nranks && result == ceclSuccess; i++)
        measure_plan(&v, &plans[i]); /* form holds: no index is astray, no size overflows */
    for (int w = 0; w < v.nwindows && result == ceclSuccess; w++)
        if (w % CECL_WINDOW_COUNT != CECL_WINDOW_STAGING)
            at_least(&v.input_bytes, v.window_bytes[w]);
    for (int c = 0; c < ncalls && result == ceclSuccess; c++)
        count_phases(&v, c);
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
