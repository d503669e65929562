/* Copy engines. Each serves the batches and flags of its rank's lanes, first come first served, one copy at a time. */
#include <string.h>

#include "play.h"

static void serve(struct model_run *p, int rank, double now, double setup)
{
    const struct model_rank *r = &p->ranks[rank];
    const int lane = r->queue[0];
    const struct model_lane *me = &r->lanes[lane];
    const bool copies = model_step(p, rank, lane)->kind == CECL_STEP_COPY;
    const double us =
        copies ? setup + p->rates->copy : p->rates->flag + p->rates->more * (me->upto - me->at - 1);
    model_heap_set(&p->heap, model_engine_event(p, rank), now + us);
}

void model_engage(struct model_run *p, int rank, int lane, double now, uint32_t upto)
{
    struct model_rank *r = &p->ranks[rank];
    r->lanes[lane].doing = MODEL_ENGAGED;
    r->lanes[lane].upto = upto;
    r->lanes[lane].copy = 0;
    r->queue[r->queued++] = (uint8_t)lane;
    if (r->queued == 1)
        serve(p, rank, now, p->rates->batch);
}

static void engine_is_done(struct model_run *p, int rank, double now)
{
    struct model_rank *r = &p->ranks[rank];
    const int lane = r->queue[0];
    memmove(r->queue, r->queue + 1, (size_t)--r->queued);
    if (r->queued > 0)
        serve(p, rank, now, p->rates->batch);
    r->lanes[lane].doing = MODEL_AT_STEP;
    r->lanes[lane].at = r->lanes[lane].upto;
    model_advance(p, rank, lane, now);
    model_look_again(p, rank, now);
}

/* Lets peers see the flags that the engine has just written, one after the other. */
static void show_flags(struct model_run *p, int rank, int lane, double now)
{
    const struct model_lane *me = &p->ranks[rank].lanes[lane];
    for (uint32_t s = me->at; s < me->upto; s++) {
        const struct cecl_step *step = &p->plans[rank].steps[s];
        if (step->kind == CECL_STEP_SIGNAL && step->lane == lane)
            *model_seen(p, step->peer, rank, step->counter, step->phase) =
                now - p->rates->more * (me->upto - s - 1) + p->rates->signal;
    }
    for (uint32_t s = me->at; s < me->upto; s++)
        model_look_again(p, p->plans[rank].steps[s].peer, now);
}

static void begin_copy(struct model_run *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    const struct model_lane *me = &p->ranks[rank].lanes[lane];
    const struct cecl_step *step = model_step(p, rank, lane);
    const struct cecl_copy *copy = &p->plans[rank].copies[step->first + me->copy];
    const bool local = cecl_copy_is_local(copy), pulls = copy->src.rank != rank;
    const double most = local ? p->rates->local : pulls ? p->rates->pull : p->rates->push;
    const uint32_t flow =
        model_flow_begin(&p->flows, now, (double)(copy->bytes * copy->rows), most * 1e3,
                         local ? MODEL_NO_LINK : model_link(p, MODEL_NVLINK_OUT, copy->src.rank),
                         local ? MODEL_NO_LINK : model_link(p, MODEL_NVLINK_IN, copy->dst.rank));
    p->failed = p->failed || flow == MODEL_NO_LINK;
    if (!p->failed)
        p->flows.flows[flow].owner = model_engine_event(p, rank);
}

void model_engine_goes_on(struct model_run *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    if (model_step(p, rank, lane)->kind == CECL_STEP_COPY) {
        begin_copy(p, rank, now);
        return;
    }
    show_flags(p, rank, lane, now);
    engine_is_done(p, rank, now);
}

void model_copy_ends(struct model_run *p, int rank, double now)
{
    const int lane = p->ranks[rank].queue[0];
    if (++p->ranks[rank].lanes[lane].copy < model_step(p, rank, lane)->count)
        serve(p, rank, now, 0);
    else
        engine_is_done(p, rank, now);
}
