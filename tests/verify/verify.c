/* The verifier's entry point: sets up what the checks share, and runs them. */
#include <stdlib.h>

#include "plan/block.h"
#include "verify/internal.h"

/* The larger of `end` and the end of a block that begins at `offset`. */
static uint64_t further(const struct cecl_call *call, uint64_t end, uint64_t offset, uint64_t bytes,
                        uint64_t pitch)
{
    const struct cecl_shape *shape = &call->view.shape;
    const uint64_t extent =
        shape->width ? cecl_rows_extent(shape->width, shape->rows, pitch) : bytes;
    return bytes > 0 && offset + extent > end ? offset + extent : end;
}

uint64_t verify_send_bytes(const struct cecl_call *call)
{
    uint64_t end = 0;
    if (call->op->family == CECL_FAMILY_SPLITS)
        return cecl_call_send_needed(call);
    for (int to = 0; to < call->nranks; to++) {
        const uint64_t tiles = call->op->has_tiles ? cecl_call_tiles(call) : 0;
        for (uint64_t i = 1; i <= tiles; i++) {
            const uint64_t last = verify_tile_byte(call, to, i * (call->bytes / tiles) - 1);
            end = last >= end ? last + 1 : end;
        }
        if (tiles > 0)
            continue;
        const struct cecl_block block = cecl_call_block(call, call->rank, to);
        end = further(call, end, block.send_offset, block.bytes, verify_input_pitch(call));
    }
    return end;
}

uint64_t verify_recv_bytes(const struct cecl_call *call)
{
    uint64_t end = verify_input_area(call) == CECL_AREA_RECV ? verify_send_bytes(call) : 0;
    if (call->op->family == CECL_FAMILY_SPLITS)
        return cecl_call_recv_needed(call);
    for (int from = 0; from < call->nranks; from++) {
        const struct cecl_block block = cecl_call_block(call, from, call->rank);
        end = further(call, end, block.recv_offset, cecl_call_result_bytes(call, block.bytes),
                      call->view.shape.recv_pitch);
    }
    return end;
}

static void at_least(uint64_t *value, uint64_t least)
{
    if (*value < least)
        *value = least;
}

static void measure_copy(struct verifier *v, const struct cecl_copy *copy)
{
    at_least(&v->area_bytes[copy->dst.area],
             copy->dst.offset + cecl_rows_extent(copy->bytes, copy->rows, copy->dst_pitch));
    at_least(&v->area_bytes[copy->src.area],
             copy->src.offset + cecl_rows_extent(copy->bytes, copy->rows, copy->src_pitch));
}

/* Sizes the areas. User buffers count in full, and staging, which may be large, only as far as copies touch it. */
static void measure_plan(struct verifier *v, const struct cecl_plan *plan)
{
    for (uint32_t p = 0; p < cecl_plan_parts(plan); p++) {
        const struct cecl_call *call = &cecl_plan_part(plan, p)->call;
        if (verify_input_area(call) == CECL_AREA_SEND)
            at_least(&v->area_bytes[cecl_area_of(CECL_AREA_SEND, p)], verify_send_bytes(call));
        at_least(&v->area_bytes[cecl_area_of(CECL_AREA_RECV, p)], verify_recv_bytes(call));
    }
    for (uint32_t s = 0; s < plan->nsteps; s++)
        if (plan->steps[s].kind == CECL_STEP_SPLITS)
            at_least(&v->area_bytes[CECL_AREA_STAGING], verify_splits_staging(plan));
    for (uint32_t s = 0; s < plan->nsteps; s++)
        for (uint32_t i = 0; i < verify_step_copies(&plan->steps[s]); i++)
            measure_copy(v, &plan->copies[plan->steps[s].first + i]);
    for (uint32_t i = 0; i < plan->nreductions; i++) {
        const struct cecl_reduce *reduce = &plan->reductions[i];
        at_least(&v->area_bytes[reduce->dst.area],
                 reduce->dst.offset + verify_result_bytes(plan, reduce));
        for (uint32_t s = 0; s < reduce->nsrc; s++) {
            const struct cecl_place *src = &plan->sources[reduce->first + s];
            at_least(&v->area_bytes[src->area], src->offset + reduce->bytes);
        }
    }
}

static bool allocate_areas(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    bool fine = true;
    v->tags = calloc((size_t)v->nmemories, sizeof(*v->tags));
    v->writes = calloc((size_t)v->nmemories, sizeof(*v->writes));
    v->accesses = calloc((size_t)v->nmemories * n, sizeof(*v->accesses));
    for (int w = 0; w < v->nmemories && v->tags && v->writes; w++) {
        v->tags[w] = calloc(n * (size_t)v->area_bytes[w] + 1, sizeof(*v->tags[w]));
        v->writes[w] = calloc(n * (size_t)v->area_bytes[w] + 1, sizeof(*v->writes[w]));
        fine = fine && v->tags[w] && v->writes[w];
    }
    return fine && v->tags && v->writes && v->accesses;
}

static bool allocate(struct verifier *v)
{
    const size_t n = (size_t)v->nranks;
    uint32_t most = 0;
    for (int r = 0; r < v->nranks; r++) {
        /* event 0, and one for each of the user's turns */
        uint32_t events = 2 + (uint32_t)verify_nlaunches(v, r);
        for (int i = 0; i < verify_nlaunches(v, r); i++)
            events += verify_launch(v, r, i).plan->nsteps;
        most = events > most ? events : most;
    }
    const size_t actors = (size_t)v->nactors, words = n * n * v->ncounters;
    v->max_events = most;
    v->clocks = calloc(actors * most * actors, sizeof(*v->clocks));
    v->origins = calloc(actors * most, sizeof(*v->origins));
    v->signals = calloc(words * (size_t)(v->most_phases + 1), sizeof(*v->signals));
    v->words = calloc(words, sizeof(*v->words));
    v->bits = calloc(n, sizeof(*v->bits));
    v->taken = calloc(n * n * VERIFY_BITS, sizeof(*v->taken));
    v->ranks = calloc(n, sizeof(*v->ranks));
    v->actors = calloc(actors, sizeof(*v->actors));
    bool fine = allocate_areas(v) && v->clocks && v->origins && v->signals && v->words && v->bits &&
                v->taken && v->ranks && v->actors;
    for (int r = 0; fine && r < v->nranks; r++) {
        v->ranks[r].turns = calloc((size_t)verify_nlaunches(v, r) + 1, sizeof(uint32_t));
        fine = v->ranks[r].turns != NULL;
    }
    return fine;
}

static void release(struct verifier *v)
{
    for (int i = 0; v->accesses && i < v->nmemories * v->nranks; i++)
        free(v->accesses[i].list);
    for (int w = 0; w < v->nmemories; w++) {
        if (v->tags)
            free(v->tags[w]);
        if (v->writes)
            free(v->writes[w]);
    }
    for (int r = 0; v->ranks && r < v->nranks; r++)
        free(v->ranks[r].turns);
    free(v->tags);
    free(v->writes);
    free(v->area_bytes);
    free(v->base);
    free(v->clocks);
    free(v->origins);
    free(v->actors);
    free(v->signals);
    free(v->words);
    free(v->bits);
    free(v->taken);
    free(v->accesses);
    free(v->ranks);
}

/* Finds how many counters and lanes a program uses, and the largest value of a counter. */
static void begin_program(struct verifier *v)
{
    v->ncounters = CECL_COUNTERS + v->program->ncounters;
    v->draws = v->program->order;
    for (int r = 0; r < v->nranks; r++)
        for (int i = 0; i < v->program->nlaunches[r]; i++) {
            const struct cecl_verify_launch launch = verify_launch(v, r, i);
            for (uint32_t s = 0; s < launch.plan->nsteps; s++) {
                const struct cecl_step *step = &launch.plan->steps[s];
                if (step->lane >= v->nlanes && step->lane < CECL_LANES_MAX)
                    v->nlanes = step->lane + 1;
                if (step->kind <= CECL_STEP_WAIT && !verify_is_bits(step->counter))
                    at_least(&v->most_phases, step->phase);
            }
        }
}

/* Sets what the check of form needs. */
static bool begin(struct verifier *v)
{
    for (int i = 0; i < v->ncalls * v->nranks; i++) {
        if (cecl_plan_parts(&v->plans[i]) > v->nparts)
            v->nparts = cecl_plan_parts(&v->plans[i]);
        for (uint32_t s = 0; s < v->plans[i].nsteps; s++)
            if (v->plans[i].steps[s].lane != CECL_LANE_MAIN && v->nlanes < CECL_LANES)
                v->nlanes = CECL_LANES;
    }
    if (v->program)
        begin_program(v);
    v->nactors = v->nranks * v->nlanes;
    v->nareas = CECL_AREA_COUNT * (int)v->nparts;
    v->nmemories = v->nareas + (v->program ? (int)v->program->nmessages : 0);
    v->area_bytes = calloc((size_t)v->nmemories + 1, sizeof(*v->area_bytes));
    v->base = calloc(((size_t)v->ncalls + 1) * (size_t)v->nranks * CECL_PHASED, sizeof(*v->base));
    return v->area_bytes && v->base;
}

/* Computes the values of the flags after call `c`. */
static void count_phases(struct verifier *v, int c)
{
    for (int r = 0; r < v->nranks; r++)
        for (int row = 0; row < CECL_PHASED; row++) {
            uint64_t *next = &verify_base(v, c + 1, r)[row];
            *next = verify_base(v, c, r)[row] + verify_plan(v, c, r)->phases[row];
            at_least(&v->most_phases, *next);
        }
}

/* Computes the sizes of the verifier's tables. */
static void measure(struct verifier *v)
{
    for (int i = 0; i < v->ncalls * v->nranks; i++)
        measure_plan(v, &v->plans[i]);
    for (int w = 0; w < v->nareas; w++)
        if (cecl_area_is_users((uint32_t)w))
            at_least(&v->input_bytes, v->area_bytes[w]);
    for (int w = v->nareas; w < v->nmemories; w++)
        v->area_bytes[w] = v->program->messages[w - v->nareas].bytes;
    for (int c = 0; c < v->ncalls; c++)
        count_phases(v, c);
}

static ceclResult_t examine(struct verifier *v)
{
    if (!begin(v))
        return cecl_fail(ceclOutOfMemory, "no host memory to verify %d calls", v->ncalls);
    CECL_TRY(verify_form(v));
    if (v->program)
        CECL_TRY(verify_messages_form(v));
    measure(v);
    if (!allocate(v))
        return cecl_fail(ceclOutOfMemory, "no host memory to verify %d calls of %d ranks",
                         v->ncalls, v->nranks);
    verify_bits_begin(v);
    CECL_TRY(verify_run(v));
    CECL_TRY(verify_races(v));
    return v->wrong_data ? VERIFY_FAULT("%s", v->fault) : verify_awaited(v);
}

static ceclResult_t verify(struct verifier *v)
{
    v->nlanes = 1;
    v->nparts = 1;
    v->ncounters = CECL_PHASED;
    const ceclResult_t result = examine(v);
    release(v);
    return result;
}

ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks)
{
    struct verifier v = {.plans = plans, .ncalls = ncalls, .nranks = nranks};
    return verify(&v);
}

ceclResult_t cecl_verify_program(const struct cecl_verify_program *program)
{
    struct verifier v = {.program = program,
                         .plans = program->plans,
                         .ncalls = program->ncalls,
                         .nranks = program->nranks};
    return verify(&v);
}
