/* The simulation: lanes and events. */
#include "play.h"

#include <math.h>
#include <stdlib.h>

void model_pause(struct model_run *p, int rank, int lane, double until, uint32_t upto)
{
    struct model_lane *me = &p->ranks[rank].lanes[lane];
    me->doing = MODEL_PAUSING;
    me->upto = upto;
    model_heap_set(&p->heap, model_lane_event(rank, lane), until);
}

/* Lets a rank's blocked lanes check again whether they can go on. */
void model_look_again(struct model_run *p, int rank, double now)
{
    for (int lane = 0; lane < MODEL_LANES; lane++)
        if (p->ranks[rank].lanes[lane].doing == MODEL_BLOCKED)
            model_advance(p, rank, lane, now);
}

/* ---- steps */

/* Returns when all consecutive waits of a lane, from its current step on, are satisfied; MODEL_NEVER: not known yet.
 * Sets *upto to the first step behind these waits. A step of another lane ends the series, because it may be an AFTER,
 * which waits for all earlier steps of this lane. */
static double waits_end(const struct model_run *p, int rank, int lane, double now, uint32_t *upto)
{
    const struct cecl_plan *plan = &p->plans[rank];
    double end = now;
    uint32_t s = p->ranks[rank].lanes[lane].at;
    for (; s < plan->nsteps; s++) {
        const struct cecl_step *step = &plan->steps[s];
        if (step->lane != lane || step->kind != CECL_STEP_WAIT)
            break;
        const double seen = *model_seen(p, rank, step->peer, step->counter, step->phase);
        if (seen < 0)
            return MODEL_NEVER;
        end = seen > end ? seen : end;
    }
    *upto = s;
    return end;
}

/* A number in [0, 1) that depends on the seed, the rank and how many numbers the rank has had, but not on the order
 * of events (splitmix64). */
static double random_share(struct model_run *p, int rank)
{
    uint64_t x = p->seed << 48 ^ (uint64_t)rank << 32 ^ ++p->ranks[rank].delays;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ x >> 31) >> 11) / (double)(UINT64_C(1) << 53);
}

/* How long a stream takes to go on after its waits have ended. The delays are exponentially distributed, because rare
 * long delays drive GPUs apart. */
static double wait_us(struct model_run *p, int rank)
{
    const double jitter = p->rates->jitter;
    return p->rates->wait + (jitter > 0 ? -jitter * log(1 - random_share(p, rank)) : 0);
}

/* The first step behind the lane's consecutive signals. */
static uint32_t signals_end(const struct model_run *p, int rank, int lane)
{
    const struct cecl_plan *plan = &p->plans[rank];
    uint32_t s = p->ranks[rank].lanes[lane].at;
    while (s < plan->nsteps && plan->steps[s].lane == lane &&
           plan->steps[s].kind == CECL_STEP_SIGNAL)
        s++;
    return s;
}

static double reduce_us(const struct model_run *p, int rank, const struct cecl_step *step)
{
    const struct cecl_plan *plan = &p->plans[rank];
    double us = p->rates->kernel;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_reduce *reduce = &plan->reductions[step->first + i];
        for (uint32_t s = 0; s < reduce->nsrc; s++)
            us +=
                (double)reduce->bytes / 1e3 /
                (plan->sources[reduce->first + s].rank == rank ? p->rates->reduce : p->rates->pull);
    }
    return us;
}

static void block(struct model_run *p, int rank, int lane)
{
    p->ranks[rank].lanes[lane].doing = MODEL_BLOCKED;
}

static void do_step(struct model_run *p, int rank, int lane, double now)
{
    struct model_lane *me = &p->ranks[rank].lanes[lane];
    const struct cecl_step *step = model_step(p, rank, lane);
    uint32_t upto = me->at + 1;
    double end;
    switch ((enum cecl_step_kind)step->kind) {
    case CECL_STEP_SIGNAL: model_engage(p, rank, lane, now, signals_end(p, rank, lane)); break;
    case CECL_STEP_COPY: model_engage(p, rank, lane, now, upto); break;
    case CECL_STEP_WAIT:
        end = waits_end(p, rank, lane, now, &upto);
        if (end < 0)
            block(p, rank, lane);
        else
            model_pause(p, rank, lane, end + wait_us(p, rank), upto);
        break;
    case CECL_STEP_AFTER:
        if (p->ranks[rank].lanes[step->first].at < me->at)
            block(p, rank, lane);
        else
            model_pause(p, rank, lane, now + p->rates->after, upto);
        break;
    case CECL_STEP_REDUCE: model_pause(p, rank, lane, now + reduce_us(p, rank, step), upto); break;
    case CECL_STEP_SPLITS: /* calls by splits and small calls cannot be played */
    case CECL_STEP_POST: p->failed = true; break;
    }
}

/* Lets a lane go on to its next step. A blocked lane checks again whether it can go on. */
void model_advance(struct model_run *p, int rank, int lane, double now)
{
    struct model_rank *r = &p->ranks[rank];
    const struct cecl_plan *plan = &p->plans[rank];
    struct model_lane *me = &r->lanes[lane];
    while (me->at < plan->nsteps && plan->steps[me->at].lane != lane)
        me->at++;
    me->doing = MODEL_AT_STEP;
    if (me->at < plan->nsteps) {
        do_step(p, rank, lane, now);
        return;
    }
    me->doing = MODEL_DONE;
    r->end = now > r->end ? now : r->end;
}

static void lane_event(struct model_run *p, int rank, int lane, double now)
{
    struct model_lane *me = &p->ranks[rank].lanes[lane];
    me->at = me->upto;
    model_advance(p, rank, lane, now);
    model_look_again(p, rank, now);
}

static void happen(struct model_run *p, uint32_t what, double now)
{
    const uint32_t lanes = model_lane_event(p->nranks, 0),
                   engines = model_engine_event(p, p->nranks);
    if (what < lanes) {
        lane_event(p, (int)what / MODEL_LANES, (int)what % MODEL_LANES, now);
    } else if (what < engines) {
        model_engine_goes_on(p, (int)(what - lanes), now);
    } else {
        const struct model_flow ended = p->flows.flows[what - engines];
        model_flow_end(&p->flows, now, what - engines);
        model_copy_ends(p, (int)(ended.owner - lanes), now);
    }
}

/* ---- a run */

/* Finds how many phases a lane has at most. */
static void measure(struct model_run *p)
{
    for (int r = 0; r < p->nranks; r++)
        for (int lane = 0; lane < CECL_LANES; lane++)
            if (p->plans[r].phases[lane] >= p->phases)
                p->phases = p->plans[r].phases[lane] + 1;
}

static bool allocate(struct model_run *p)
{
    const size_t n = (size_t)p->nranks;
    measure(p);
    const size_t flags = n * n * CECL_LANES * p->phases;
    p->seen = malloc((flags + 1) * sizeof(*p->seen));
    p->ranks = calloc(n, sizeof(*p->ranks));
    p->flows.links = calloc(MODEL_LINKS * n, sizeof(*p->flows.links));
    p->flows.base = model_engine_event(p, p->nranks);
    p->flows.heap = &p->heap;
    if (!p->ranks || !p->seen || !p->flows.links || !model_heap_grow(&p->heap, p->flows.base))
        return false;
    for (size_t i = 0; i < flags; i++)
        p->seen[i] = MODEL_NEVER;
    for (uint32_t i = 0; i < MODEL_LINKS * n; i++)
        p->flows.links[i] =
            (struct model_link){.rate = 1e3 * p->rates->link, .first = MODEL_NO_LINK};
    return true;
}

static void release(struct model_run *p)
{
    free(p->ranks);
    free(p->seen);
    free(p->flows.links);
    free(p->flows.flows);
    free(p->flows.unused);
    model_heap_free(&p->heap);
}

static void tell(const struct model_run *p, double first, struct model_outcome *out)
{
    static const char *const kinds[] = {"NVLink out", "NVLink in"};
    *out = (struct model_outcome){.events = p->events};
    out->first_us = p->ranks[0].end - first;
    for (int r = 0; r < p->nranks; r++) {
        const double us = p->ranks[r].end - first;
        out->us = us > out->us ? us : out->us;
        out->first_us = us < out->first_us ? us : out->first_us;
    }
    for (int i = 0; i < MODEL_LINKS * p->nranks; i++) {
        const struct model_link *link = &p->flows.links[i];
        const double share = out->us > 0 ? link->bytes / link->rate / out->us : 0;
        if (i / p->nranks == MODEL_NVLINK_IN && link->most > out->incast)
            out->incast = link->most;
        if (share > out->busiest) {
            out->busiest = share;
            out->link = kinds[i / p->nranks];
            out->link_of = i % p->nranks;
        }
    }
}

static ceclResult_t run(struct model_run *p, const double *start, struct model_outcome *outcome)
{
    double now, first = start ? start[0] : 0;
    uint32_t what;
    if (!allocate(p))
        return cecl_fail(ceclOutOfMemory, "no host memory to play %d plans", p->nranks);
    for (int r = 0; r < p->nranks; r++) {
        first = start && start[r] < first ? start[r] : first;
        for (int lane = 0; lane < MODEL_LANES; lane++)
            model_pause(p, r, lane, start ? start[r] : 0, 0);
    }
    while (!p->failed && model_heap_take(&p->heap, &what, &now)) {
        p->events++;
        happen(p, what, now);
    }
    if (p->failed)
        return cecl_fail(ceclOutOfMemory, "no host memory to play %d plans, or a small call",
                         p->nranks);
    for (int r = 0; r < p->nranks; r++)
        for (int lane = 0; lane < MODEL_LANES; lane++)
            if (p->ranks[r].lanes[lane].doing != MODEL_DONE)
                return cecl_fail(ceclInternalError, "rank %d waits for ever: lane %d, step %u", r,
                                 lane, p->ranks[r].lanes[lane].at);
    tell(p, first, outcome);
    return ceclSuccess;
}

/* Adds a run to the sums of the earlier ones. All runs move the same bytes, so the busiest link is the same. */
static void add(struct model_outcome *sum, const struct model_outcome *one)
{
    sum->us += one->us;
    sum->first_us += one->first_us;
    sum->busiest += one->busiest;
    sum->events += one->events;
    if (one->incast > sum->incast)
        sum->incast = one->incast;
}

ceclResult_t model_play(const struct cecl_plan *plans, int nranks, const struct model_rates *rates,
                        const double *start, int runs, struct model_outcome *outcome)
{
    struct model_outcome one = {0}, sum = {0};
    const int needed = rates->jitter > 0 ? runs : 1;
    for (int i = 1; i <= needed; i++) {
        struct model_run p = {
            .plans = plans, .nranks = nranks, .rates = rates, .seed = (uint64_t)i};
        const ceclResult_t result = run(&p, start, &one);
        release(&p);
        CECL_TRY(result);
        add(&sum, &one);
    }
    sum.us /= needed;
    sum.first_us /= needed;
    sum.busiest /= needed;
    sum.link = one.link;
    sum.link_of = one.link_of;
    *outcome = sum;
    return ceclSuccess;
}
