/* The simulation: lanes, copy engines and exchanges. */
#include <stdlib.h>
#include <string.h>

#include "flows.h"
#include "model.h"

#define LANES ((int)CECL_LANE_NET + 1)
#define NEVER (-1.0)

/* What a lane does now. */
enum doing {
    AT_STEP,   /* nothing; it stands at a step */
    BLOCKED,   /* it stands at a step that waits for others */
    PAUSING,   /* until its event: then it goes on behind `upto` */
    ENGAGED,   /* its batch or its flags are with the engine */
    BEGINNING, /* its exchange begins at its event */
    EXCHANGING,
    DONE
};
struct lane {
    enum doing doing;
    uint32_t at, upto; /* the step at which it stands; the first one behind what it does now */
    uint32_t left;     /* transfers of its exchange that have not ended */
    uint32_t copy;     /* of its batch: the next one */
};

/* A rank's engine serves lanes in the order in which they came. */
struct rank {
    struct lane lanes[LANES];
    uint8_t queue[LANES];
    int queued;
    double *exchanged; /* [nexchanges] when each ended */
    uint32_t nexchanged;
    double end;
};

/* Sends and receives between two ranks that have begun, and not met. */
struct waiting {
    uint32_t lane_event, next;
    double bytes;
};
struct pair {
    uint32_t first, last; /* in `waiting`, from 1 on */
    bool sends;
};

struct play {
    const struct cecl_plan *plans;
    const struct model_rates *rates;
    const struct cecl_nodes *nodes;
    int nranks, most_local;
    struct rank *ranks;
    double *seen;       /* [holder][writer's local][lane][phase]: when a flag is seen */
    uint32_t phases;    /* of any lane, and one */
    struct pair *pairs; /* [sender][receiver] */
    struct waiting *waiting;
    uint32_t nwaiting, waiting_capacity, unused;
    struct model_heap heap; /* lanes; engines; flows */
    struct model_flows flows;
    uint64_t events;
    bool failed;
};

/* ---- numbers of events and links */

static uint32_t event_of_lane(int rank, int lane)
{
    return (uint32_t)(rank * LANES + lane);
}
static uint32_t event_of_engine(const struct play *p, int rank)
{
    return (uint32_t)(p->nranks * LANES + rank);
}
static uint32_t link_of(const struct play *p, int kind, int index)
{
    return (uint32_t)(kind * p->nranks + index);
}
static int local_of(const struct play *p, int rank)
{
    return p->nodes ? p->nodes->local[rank] : rank;
}
/* GPUs that share a NIC have neighbouring local indices. The NIC has the number of the first of them. */
static int nic_of(const struct play *p, int rank)
{
    const int shared = (int)p->rates->per_nic, local = local_of(p, rank);
    return p->nodes ? cecl_node_rank(p->nodes, p->nodes->node[rank], local / shared * shared)
                    : rank / shared * shared;
}
static double *seen_at(const struct play *p, int holder, int writer, uint32_t lane, uint32_t phase)
{
    return &p->seen[(((size_t)holder * (size_t)p->most_local + (size_t)local_of(p, writer)) * 2 +
                     lane) *
                        p->phases +
                    phase];
}

static void advance(struct play *p, int rank, int lane, double now);

static void pause_lane(struct play *p, int rank, int lane, double until, uint32_t upto)
{
    struct lane *me = &p->ranks[rank].lanes[lane];
    me->doing = PAUSING;
    me->upto = upto;
    model_heap_set(&p->heap, event_of_lane(rank, lane), until);
}

/* Lanes of a rank that are blocked look again. */
static void look_again(struct play *p, int rank, double now)
{
    for (int lane = 0; lane < LANES; lane++)
        if (p->ranks[rank].lanes[lane].doing == BLOCKED)
            advance(p, rank, lane, now);
}

/* ---- the copy engine */

static const struct cecl_step *step_of(const struct play *p, int rank, int lane)
{
    return &p->plans[rank].steps[p->ranks[rank].lanes[lane].at];
}

static void serve(struct play *p, int rank, double now, double setup)
{
    const struct rank *r = &p->ranks[rank];
    const int lane = r->queue[0];
    const struct lane *me = &r->lanes[lane];
    const bool copies = step_of(p, rank, lane)->kind == CECL_STEP_COPY;
    const double us = copies ? setup + p->rates->copy : p->rates->flag * (me->upto - me->at);
    model_heap_set(&p->heap, event_of_engine(p, rank), now + us);
}

static void engage(struct play *p, int rank, int lane, double now, uint32_t upto)
{
    struct rank *r = &p->ranks[rank];
    r->lanes[lane].doing = ENGAGED;
    r->lanes[lane].upto = upto;
    r->lanes[lane].copy = 0;
    r->queue[r->queued++] = (uint8_t)lane;
    if (r->queued == 1)
        serve(p, rank, now, p->rates->batch);
}

static void engine_is_done(struct play *p, int rank, double now)
{
    struct rank *r = &p->ranks[rank];
    const int lane = r->queue[0];
    memmove(r->queue, r->queue + 1, (size_t)--r->queued);
    if (r->queued > 0)
        serve(p, rank, now, p->rates->batch);
    r->lanes[lane].doing = AT_STEP;
    r->lanes[lane].at = r->lanes[lane].upto;
    advance(p, rank, lane, now);
    look_again(p, rank, now);
}

/* Flags that the engine has written, one after the other, up to now. */
static void show_flags(struct play *p, int rank, int lane, double now)
{
    const struct lane *me = &p->ranks[rank].lanes[lane];
    for (uint32_t s = me->at; s < me->upto; s++) {
        const struct cecl_step *step = &p->plans[rank].steps[s];
        if (step->kind == CECL_STEP_SIGNAL && step->lane == lane)
            *seen_at(p, step->peer, rank, step->counter, step->phase) =
                now - p->rates->flag * (me->upto - s - 1) + p->rates->signal;
    }
    for (uint32_t s = me->at; s < me->upto; s++)
        look_again(p, p->plans[rank].steps[s].peer, now);
}

static void begin_copy(struct play *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    const struct lane *me = &p->ranks[rank].lanes[lane];
    const struct cecl_step *step = step_of(p, rank, lane);
    const struct cecl_copy *copy = &p->plans[rank].copies[step->first + me->copy];
    const bool local = cecl_copy_is_local(copy), pulls = copy->src.rank != rank;
    const double most = local ? p->rates->local : pulls ? p->rates->pull : p->rates->push;
    const uint32_t flow =
        model_flow_begin(&p->flows, now, (double)(copy->bytes * copy->rows), most * 1e3,
                         local ? MODEL_NO_LINK : link_of(p, 0, copy->src.rank),
                         local ? MODEL_NO_LINK : link_of(p, 1, copy->dst.rank));
    p->failed = p->failed || flow == MODEL_NO_LINK;
    if (!p->failed)
        p->flows.flows[flow].owner[0] = p->flows.flows[flow].owner[1] = event_of_engine(p, rank);
}

static void engine_event(struct play *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    if (step_of(p, rank, lane)->kind == CECL_STEP_COPY) {
        begin_copy(p, rank, now);
        return;
    }
    show_flags(p, rank, lane, now);
    engine_is_done(p, rank, now);
}

static void copy_ends(struct play *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    if (++p->ranks[rank].lanes[lane].copy < step_of(p, rank, lane)->count)
        serve(p, rank, now, 0);
    else
        engine_is_done(p, rank, now);
}

/* ---- exchanges */

static struct pair *pair_of(struct play *p, int rank, const struct cecl_transfer *t)
{
    const int from = t->sends ? rank : t->peer, to = t->sends ? t->peer : rank;
    return &p->pairs[(size_t)from * (size_t)p->nranks + (size_t)to];
}

static void wait_for_other(struct play *p, struct pair *pair, uint32_t lane_event, bool sends)
{
    uint32_t slot = p->unused;
    if (slot > 0) {
        p->unused = p->waiting[slot - 1].next;
    } else {
        if (p->nwaiting == p->waiting_capacity) {
            const uint32_t capacity = p->waiting_capacity ? 2 * p->waiting_capacity : 1024;
            struct waiting *grown = realloc(p->waiting, capacity * sizeof(*grown));
            p->failed = p->failed || !grown;
            if (!grown)
                return;
            p->waiting = grown;
            p->waiting_capacity = capacity;
        }
        slot = ++p->nwaiting;
    }
    p->waiting[slot - 1] = (struct waiting){.lane_event = lane_event};
    if (pair->first == 0)
        pair->first = slot;
    else
        p->waiting[pair->last - 1].next = slot;
    pair->last = slot;
    pair->sends = sends;
}

/* A transfer begins once both ranks have come to it. */
static void meet(struct play *p, int rank, const struct cecl_transfer *t, double now)
{
    struct pair *pair = pair_of(p, rank, t);
    const uint32_t mine = event_of_lane(rank, CECL_LANE_NET);
    if (pair->first == 0 || pair->sends == t->sends) {
        wait_for_other(p, pair, mine, t->sends);
        return;
    }
    const uint32_t slot = pair->first;
    pair->first = p->waiting[slot - 1].next;
    p->waiting[slot - 1].next = p->unused;
    p->unused = slot;
    const int from = t->sends ? rank : t->peer, to = t->sends ? t->peer : rank;
    const uint32_t flow =
        model_flow_begin(&p->flows, now, (double)t->bytes, p->rates->nic * 1e3,
                         link_of(p, 2, nic_of(p, from)), link_of(p, 3, nic_of(p, to)));
    p->failed = p->failed || flow == MODEL_NO_LINK;
    if (p->failed)
        return;
    p->flows.flows[flow].owner[0] = mine;
    p->flows.flows[flow].owner[1] = p->waiting[slot - 1].lane_event;
}

static void begin_exchange(struct play *p, int rank, double now)
{
    struct lane *me = &p->ranks[rank].lanes[CECL_LANE_NET];
    const struct cecl_step *step = step_of(p, rank, CECL_LANE_NET);
    me->doing = EXCHANGING;
    me->left = step->count;
    for (uint32_t i = 0; i < step->count && !p->failed; i++)
        meet(p, rank, &p->plans[rank].transfers[step->first + i], now);
}

static void transfer_ends(struct play *p, uint32_t lane_event, double now)
{
    const int rank = (int)lane_event / LANES;
    struct lane *me = &p->ranks[rank].lanes[CECL_LANE_NET];
    if (--me->left == 0)
        pause_lane(p, rank, CECL_LANE_NET, now + p->rates->message, me->at + 1);
}

/* ---- lanes */

/* When all waits that stand together are satisfied; NEVER: this is not known yet. Sets the step behind them.
 * A step of another lane ends them: it may be one that comes after what this lane has done by then. */
static double waits_end(const struct play *p, int rank, int lane, double now, uint32_t *upto)
{
    const struct cecl_plan *plan = &p->plans[rank];
    const struct rank *r = &p->ranks[rank];
    double end = now;
    uint32_t s = r->lanes[lane].at;
    for (; s < plan->nsteps; s++) {
        const struct cecl_step *step = &plan->steps[s];
        if (step->lane != lane || step->kind != CECL_STEP_WAIT)
            break;
        double seen;
        if (step->counter == CECL_COUNTER_NET)
            seen = r->nexchanged >= step->phase ? r->exchanged[step->phase - 1] : NEVER;
        else
            seen = *seen_at(p, rank, step->peer, step->counter, step->phase);
        if (seen < 0)
            return NEVER;
        end = seen > end ? seen : end;
    }
    *upto = s;
    return end;
}

/* The step behind signals that a lane makes one after the other. */
static uint32_t signals_end(const struct play *p, int rank, int lane)
{
    const struct cecl_plan *plan = &p->plans[rank];
    uint32_t s = p->ranks[rank].lanes[lane].at;
    while (s < plan->nsteps && plan->steps[s].lane == lane &&
           plan->steps[s].kind == CECL_STEP_SIGNAL)
        s++;
    return s;
}

static double reduce_us(const struct play *p, int rank, const struct cecl_step *step)
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

static void block(struct play *p, int rank, int lane)
{
    p->ranks[rank].lanes[lane].doing = BLOCKED;
}

static void do_step(struct play *p, int rank, int lane, double now)
{
    struct lane *me = &p->ranks[rank].lanes[lane];
    const struct cecl_step *step = step_of(p, rank, lane);
    uint32_t upto = me->at + 1;
    double end;
    switch ((enum cecl_step_kind)step->kind) {
    case CECL_STEP_SIGNAL: engage(p, rank, lane, now, signals_end(p, rank, lane)); break;
    case CECL_STEP_COPY: engage(p, rank, lane, now, upto); break;
    case CECL_STEP_WAIT:
        end = waits_end(p, rank, lane, now, &upto);
        if (end < 0)
            block(p, rank, lane);
        else
            pause_lane(p, rank, lane, end + p->rates->wait, upto);
        break;
    case CECL_STEP_AFTER:
        if (p->ranks[rank].lanes[step->first].at < me->at)
            block(p, rank, lane);
        else
            pause_lane(p, rank, lane, now + p->rates->after, upto);
        break;
    case CECL_STEP_REDUCE: pause_lane(p, rank, lane, now + reduce_us(p, rank, step), upto); break;
    case CECL_STEP_EXCHANGE:
        me->doing = BEGINNING;
        model_heap_set(&p->heap, event_of_lane(rank, lane), now + p->rates->group);
        break;
    case CECL_STEP_POST: p->failed = true; break; /* small calls are not played */
    }
}

/* A lane goes on to its next step, or looks again at the one at which it is blocked. */
static void advance(struct play *p, int rank, int lane, double now)
{
    struct rank *r = &p->ranks[rank];
    const struct cecl_plan *plan = &p->plans[rank];
    struct lane *me = &r->lanes[lane];
    while (me->at < plan->nsteps && plan->steps[me->at].lane != lane)
        me->at++;
    me->doing = AT_STEP;
    if (me->at < plan->nsteps) {
        do_step(p, rank, lane, now);
        return;
    }
    me->doing = DONE;
    r->end = now > r->end ? now : r->end;
}

static void lane_event(struct play *p, int rank, int lane, double now)
{
    struct rank *r = &p->ranks[rank];
    struct lane *me = &r->lanes[lane];
    if (me->doing == BEGINNING) {
        begin_exchange(p, rank, now);
        return;
    }
    if (me->upto == me->at + 1 && p->plans[rank].steps[me->at].kind == CECL_STEP_EXCHANGE)
        r->exchanged[r->nexchanged++] = now;
    me->at = me->upto;
    advance(p, rank, lane, now);
    look_again(p, rank, now);
}

static void happen(struct play *p, uint32_t what, double now)
{
    const uint32_t lanes = event_of_lane(p->nranks, 0), engines = event_of_engine(p, p->nranks);
    if (what < lanes) {
        lane_event(p, (int)what / LANES, (int)what % LANES, now);
    } else if (what < engines) {
        engine_event(p, (int)(what - lanes), now);
    } else {
        const struct model_flow ended = p->flows.flows[what - engines];
        model_flow_end(&p->flows, now, what - engines);
        if (ended.owner[0] >= lanes) {
            copy_ends(p, (int)(ended.owner[0] - lanes), now);
        } else {
            transfer_ends(p, ended.owner[0], now);
            transfer_ends(p, ended.owner[1], now);
        }
    }
}

/* ---- a run */

static bool allocate(struct play *p)
{
    const size_t n = (size_t)p->nranks;
    p->most_local = p->nodes ? 1 : p->nranks;
    for (int node = 0; p->nodes && node < p->nodes->count; node++)
        if (cecl_node_size(p->nodes, node) > p->most_local)
            p->most_local = cecl_node_size(p->nodes, node);
    for (int r = 0; r < p->nranks; r++)
        for (int lane = 0; lane < 2; lane++)
            if (p->plans[r].phases[lane] >= p->phases)
                p->phases = p->plans[r].phases[lane] + 1;
    const size_t flags = n * (size_t)p->most_local * 2 * p->phases;
    p->ranks = calloc(n, sizeof(*p->ranks));
    p->seen = malloc(flags * sizeof(*p->seen));
    p->pairs = p->nodes ? calloc(n * n, sizeof(*p->pairs)) : NULL;
    p->flows.links = calloc(4 * n, sizeof(*p->flows.links));
    p->flows.base = event_of_engine(p, p->nranks);
    p->flows.heap = &p->heap;
    if (!p->ranks || !p->seen || (p->nodes && !p->pairs) || !p->flows.links ||
        !model_heap_grow(&p->heap, p->flows.base))
        return false;
    for (size_t i = 0; i < flags; i++)
        p->seen[i] = NEVER;
    for (int r = 0; r < p->nranks; r++) {
        p->ranks[r].exchanged = calloc(p->plans[r].nexchanges + 1u, sizeof(double));
        if (!p->ranks[r].exchanged)
            return false;
    }
    for (uint32_t i = 0; i < 4 * n; i++)
        p->flows.links[i] = (struct model_link){
            .rate = 1e3 * (i < 2 * n ? p->rates->link : p->rates->nic), .first = MODEL_NO_LINK};
    return true;
}

static void release(struct play *p)
{
    for (int r = 0; p->ranks && r < p->nranks; r++)
        free(p->ranks[r].exchanged);
    free(p->ranks);
    free(p->seen);
    free(p->pairs);
    free(p->waiting);
    free(p->flows.links);
    free(p->flows.flows);
    free(p->flows.unused);
    model_heap_free(&p->heap);
}

static void tell(const struct play *p, double first, struct model_outcome *out)
{
    static const char *const kinds[] = {"NVLink out", "NVLink in", "NIC out", "NIC in"};
    *out = (struct model_outcome){.events = p->events};
    for (int r = 0; r < p->nranks; r++)
        out->us = p->ranks[r].end - first > out->us ? p->ranks[r].end - first : out->us;
    for (int i = 0; i < 4 * p->nranks; i++) {
        const struct model_link *link = &p->flows.links[i];
        const double share = out->us > 0 ? link->bytes / link->rate / out->us : 0;
        int *incast = i / p->nranks == 1   ? &out->incast_nvlink
                      : i / p->nranks == 3 ? &out->incast_nic
                                           : NULL;
        if (incast && link->most > *incast)
            *incast = link->most;
        if (share > out->busiest) {
            out->busiest = share;
            out->link = kinds[i / p->nranks];
            out->link_of = i % p->nranks;
        }
    }
}

static ceclResult_t run(struct play *p, const double *start, struct model_outcome *outcome)
{
    double now, first = start ? start[0] : 0;
    uint32_t what;
    if (!allocate(p))
        return cecl_fail(ceclOutOfMemory, "no host memory to play %d plans", p->nranks);
    for (int r = 0; r < p->nranks; r++) {
        first = start && start[r] < first ? start[r] : first;
        for (int lane = 0; lane < LANES; lane++)
            pause_lane(p, r, lane, start ? start[r] : 0, 0);
    }
    while (!p->failed && model_heap_take(&p->heap, &what, &now)) {
        p->events++;
        happen(p, what, now);
    }
    if (p->failed)
        return cecl_fail(ceclOutOfMemory, "no host memory to play %d plans, or a small call",
                         p->nranks);
    for (int r = 0; r < p->nranks; r++)
        for (int lane = 0; lane < LANES; lane++)
            if (p->ranks[r].lanes[lane].doing != DONE)
                return cecl_fail(ceclInternalError, "rank %d waits for ever: lane %d, step %u", r,
                                 lane, p->ranks[r].lanes[lane].at);
    tell(p, first, outcome);
    return ceclSuccess;
}

ceclResult_t model_play(const struct cecl_plan *plans, int nranks, const struct model_rates *rates,
                        const double *start, struct model_outcome *outcome)
{
    struct play p = {
        .plans = plans, .nranks = nranks, .rates = rates, .nodes = plans[0].part.means.nodes};
    const ceclResult_t result = run(&p, start, outcome);
    release(&p);
    return result;
}
