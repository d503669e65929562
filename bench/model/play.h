/* What the files of the simulation share. */
#ifndef CECL_MODEL_PLAY_H
#define CECL_MODEL_PLAY_H

#include "flows.h"
#include "model.h"

#define MODEL_LANES CECL_LANES
#define MODEL_NEVER (-1.0)

/* What a lane does now. */
enum model_doing {
    MODEL_AT_STEP, /* nothing: it can begin its next step */
    MODEL_BLOCKED, /* it is at a step that waits for others */
    MODEL_PAUSING, /* it pauses until its event, and then goes on with step `upto` */
    MODEL_ENGAGED, /* the engine serves its batch or its flags */
    MODEL_DONE
};
struct model_lane {
    enum model_doing doing;
    uint32_t at, upto; /* its current step; the first step after what it does now */
    uint32_t copy;     /* the next copy of its batch */
};

/* A rank's lanes, and the queue of its engine, which serves lanes in the order in which they came. */
struct model_rank {
    struct model_lane lanes[MODEL_LANES];
    uint8_t queue[MODEL_LANES];
    int queued;
    uint64_t delays; /* how many random delays the rank has had */
    double end;
};

struct model_run {
    const struct cecl_plan *plans;
    const struct model_rates *rates;
    int nranks;
    uint64_t seed;
    struct model_rank *ranks;
    double *seen;           /* [holder][writer][lane][phase]: when a flag is seen */
    uint32_t phases;        /* the most phases of any lane, plus 1 */
    struct model_heap heap; /* the events of lanes, engines and flows */
    struct model_flows flows;
    uint64_t events;
    bool failed;
};

/* ---- numbers of events and links */

static inline uint32_t model_lane_event(int rank, int lane)
{
    return (uint32_t)(rank * MODEL_LANES + lane);
}
static inline uint32_t model_engine_event(const struct model_run *p, int rank)
{
    return (uint32_t)(p->nranks * MODEL_LANES + rank);
}
enum { MODEL_NVLINK_OUT, MODEL_NVLINK_IN, MODEL_LINKS };
static inline uint32_t model_link(const struct model_run *p, int kind, int index)
{
    return (uint32_t)(kind * p->nranks + index);
}
static inline double *model_seen(const struct model_run *p, int holder, int writer, uint32_t lane,
                                 uint32_t phase)
{
    const size_t word = ((size_t)holder * (size_t)p->nranks + (size_t)writer) * CECL_LANES + lane;
    return &p->seen[word * p->phases + phase];
}
static inline const struct cecl_step *model_step(const struct model_run *p, int rank, int lane)
{
    return &p->plans[rank].steps[p->ranks[rank].lanes[lane].at];
}

/* -- play.c: advances a lane; lets a rank's blocked lanes check their steps again; pauses a lane */
void model_advance(struct model_run *p, int rank, int lane, double now);
void model_look_again(struct model_run *p, int rank, double now);
void model_pause(struct model_run *p, int rank, int lane, double until, uint32_t upto);

/* -- engine.c: gives a lane's batch, or its flags up to a step, to the engine; handles an event of the engine;
 * handles the end of a copy */
void model_engage(struct model_run *p, int rank, int lane, double now, uint32_t upto);
void model_engine_goes_on(struct model_run *p, int rank, double now);
void model_copy_ends(struct model_run *p, int rank, double now);

#endif
