/* Decides which rank moves which bytes in a call to which a rank came late.
 *
 * A rank can copy from or to a peer's buffer if it knows where that buffer lies. Ranks tell each other these places
 * when they make the call (alloc/places.h), and no rank waits long for another. So the earlier one of two ranks may not
 * know the later one's buffers. Then the later rank moves the bytes between the two in both directions.
 *
 * Lowerings know nothing of this: in a lowered plan each rank pushes. From the plans of this rank
 * and of the ranks that came before, this file makes the plan in which
 *
 *     a copy that touches the buffer of a later rank    is left to that rank,
 *     a copy that an earlier rank leaves to this rank   is made here, in the same wave.
 *
 * The barriers stay, and the copies of a wave have no order among them. So one rank can make another's copy, in the
 * same wave. The order of two waves matters only for copies between the same two ranks, and the later rank makes all of
 * these. Copies to and from staging stay with their rank, because every rank knows where staging lies.
 *
 * The copies that this rank takes over are mostly pulls. They share a batch with its pushes: a second stream would gain
 * nothing, because a single copy engine makes all of a GPU's copies over links. */
#include "ce/lowering.h"

#include "util/grow.h"

static bool is_users(const struct cecl_place *place, int mine)
{
    return place->rank != mine && cecl_area_is_users(place->area);
}

/* Returns the rank whose buffer a copy made by rank `mine` touches. -1: the copy touches no other rank's buffer. */
static int foreign_rank(const struct cecl_copy *copy, int mine)
{
    return is_users(&copy->dst, mine)   ? copy->dst.rank
           : is_users(&copy->src, mine) ? copy->src.rank
                                        : -1;
}

/* A plan that is read phase by phase, as its main lane counts phases. `at` is the next step. */
struct reader {
    const struct cecl_plan *plan;
    uint32_t at;
};

/* Reads one wave of a phase, and adds to `out` the copies of this wave that the rank of the plan leaves to `rank`.
 * Returns whether the phase has later waves. */
static bool take_wave(struct reader *reader, uint32_t phase, uint32_t wave, int rank,
                      struct cecl_plan *out)
{
    const struct cecl_plan *plan = reader->plan;
    const int owner = plan->part.call.rank;
    for (; reader->at < plan->nsteps; reader->at++) {
        const struct cecl_step *step = &plan->steps[reader->at];
        if (step->kind == CECL_STEP_SIGNAL && step->lane == CECL_LANE_MAIN && step->phase > phase)
            break;
        if (step->kind != CECL_STEP_COPY)
            continue;
        if (step->phase > wave)
            return true;
        for (uint32_t i = 0; i < step->count; i++) {
            const struct cecl_copy *copy = &plan->copies[step->first + i];
            if (foreign_rank(copy, owner) == rank)
                cecl_plan_copy_rows(out, copy);
        }
    }
    return false;
}

/* The plans of the ranks that came before this rank, and how far each plan has been read. */
struct others {
    struct cecl_plan *plans;
    struct reader *readers;
    int count;
};

static void free_others(struct others *others)
{
    for (int i = 0; i < others->count; i++)
        cecl_plan_free(&others->plans[i]);
    free(others->plans);
    free(others->readers);
}

/* The state while this rank's plan is rewritten to `out`. */
struct route {
    const struct cecl_plan *plan;
    const struct others *others;
    struct cecl_plan *out;
    uint32_t phase;
    /* the wave to take next from the others' plans; `out` already has the phase's earlier waves */
    uint32_t wave;
    bool more; /* the others' plans have later waves in this phase */
};

static bool keeps(const struct route *route, const struct cecl_copy *copy)
{
    const int rank = foreign_rank(copy, route->plan->part.call.rank);
    return rank < 0 || (rank < 64 && (route->plan->part.earlier >> rank & 1) != 0);
}

/* Adds to the open batch the copies of the next wave that other ranks leave to this rank. */
static void take_next(struct route *route)
{
    const int rank = route->plan->part.call.rank;
    route->more = false;
    for (int i = 0; i < route->others->count; i++)
        route->more =
            take_wave(&route->others->readers[i], route->phase, route->wave, rank, route->out) ||
            route->more;
    route->wave++;
}

/* Adds the copies that other ranks leave to this rank in the waves before `wave`. Each wave becomes a batch. */
static void take_before(struct route *route, uint32_t wave)
{
    while (route->more && route->wave < wave) {
        cecl_plan_on(route->out, CECL_LANE_MAIN);
        take_next(route);
    }
}

static void end_phase(struct route *route)
{
    take_before(route, UINT32_MAX);
    cecl_plan_on(route->out, CECL_LANE_MAIN);
    route->wave = 0;
    route->more = true;
}

static void route_copies(struct route *route, const struct cecl_step *step)
{
    bool kept = false;
    if (step->lane == CECL_LANE_MAIN)
        take_before(route, step->phase);
    cecl_plan_on(route->out, step->lane);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &route->plan->copies[step->first + i];
        if (!keeps(route, copy))
            continue;
        kept = true;
        cecl_plan_copy_rows(route->out, copy);
    }
    if (kept && step->lane == CECL_LANE_MAIN && route->wave == step->phase && route->more)
        take_next(route);
}

static void route_step(struct route *route, const struct cecl_step *step)
{
    if (step->kind == CECL_STEP_COPY) {
        route_copies(route, step);
        return;
    }
    if (step->kind == CECL_STEP_SIGNAL && step->lane == CECL_LANE_MAIN &&
        step->phase > route->phase) {
        end_phase(route);
        route->phase = step->phase;
    }
    cecl_plan_repeat(route->out, step);
}

/* Lowers the call as rank `rank` does, to find the copies that it leaves to this rank. `parts` are this rank's parts
 * before they were lowered. */
static ceclResult_t lower_other(const struct cecl_part *parts, uint32_t nparts, int rank,
                                struct cecl_plan *out)
{
    const size_t words = CECL_LAYOUT_WORDS_MAX(parts[0].call.nranks);
    CECL_OWNED struct cecl_part *theirs = calloc(nparts, sizeof(*theirs));
    CECL_OWNED uint64_t *layouts = calloc(nparts * words, sizeof(*layouts));
    if (!theirs || !layouts)
        return cecl_fail(ceclOutOfMemory, "no host memory for a plan of %u calls", nparts);
    for (uint32_t i = 0; i < nparts; i++) {
        theirs[i] = parts[i];
        cecl_call_of_peer(&parts[i].call, rank, cecl_part_is_outside(&parts[i], rank),
                          parts[i].send_at, layouts + i * words, &theirs[i].call);
    }
    return cecl_lower_alike(theirs, nparts, out);
}

static ceclResult_t lower_others(const struct cecl_part *parts, uint32_t nparts,
                                 struct others *others)
{
    const int nranks = parts[0].call.nranks;
    ceclResult_t result = ceclSuccess;
    *others = (struct others){.plans = calloc((size_t)nranks, sizeof(*others->plans)),
                              .readers = calloc((size_t)nranks, sizeof(*others->readers))};
    if (!others->plans || !others->readers)
        result = cecl_fail(ceclOutOfMemory, "no host memory for the plans of %d ranks", nranks);
    for (int r = 0; r < nranks && result == ceclSuccess; r++) {
        if (r >= 64 || (parts[0].earlier >> r & 1) == 0)
            continue;
        struct cecl_plan *plan = &others->plans[others->count];
        result = lower_other(parts, nparts, r, plan);
        if (result == ceclSuccess)
            others->readers[others->count++].plan = plan;
    }
    return result;
}

ceclResult_t cecl_route(const struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan)
{
    struct others others;
    ceclResult_t result = lower_others(parts, nparts, &others);
    if (result == ceclSuccess) {
        struct cecl_plan routed = *plan;
        struct route route = {.plan = plan, .others = &others, .out = &routed, .more = true};
        routed.steps = NULL;
        routed.copies = NULL;
        routed.nsteps = routed.steps_capacity = routed.ncopies = routed.copies_capacity = 0;
        for (uint32_t i = 0; i < plan->nsteps; i++)
            route_step(&route, &plan->steps[i]);
        end_phase(&route);
        free(plan->steps);
        free(plan->copies);
        *plan = routed;
        result = cecl_plan_finish(plan);
    }
    free_others(&others);
    return result;
}
