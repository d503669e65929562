/* What the verifier's files share. Everything here is for verify*.c alone. */
#ifndef CECL_PLAN_VERIFY_INTERNAL_H
#define CECL_PLAN_VERIFY_INTERNAL_H

#include "plan/verify.h"

/* A use of some bytes of one rank's area. */
struct verify_access {
    uint64_t low, high; /* bytes [low, high) */
    uint32_t actor;     /* that uses it */
    uint32_t event;     /* its event, 1 .. */
    bool write;
};

struct verify_accesses {
    struct verify_access *list;
    size_t count, capacity;
};

/* A rank's walk through its plans. */
struct verify_rank {
    int call;   /* the call it is in; ncalls: behind the last */
    bool begun; /* the user's turn before `call` is over */
    bool done;
};

/* That of one of its lanes. Event 0 stands for nothing. */
struct verify_actor {
    uint32_t step;    /* next of the call's plan that it has to look at */
    uint32_t nevents; /* so far */
    uint32_t before;  /* likewise, when the call began */
};

/* What an event is. */
struct verify_origin {
    int call;
    uint32_t step; /* UINT32_MAX: the user's turn before the call */
};

struct verifier {
    const struct cecl_plan *plans;
    int ncalls, nranks;
    int nlanes;                       /* 1 where no plan has a side lane */
    int nactors;                      /* nranks * nlanes */
    uint32_t nparts;                  /* the most of any plan */
    int nareas;                       /* CECL_AREA_COUNT * nparts */
    uint64_t *area_bytes;             /* [nareas] */
    uint64_t input_bytes;             /* of the largest area of user's data: stride of tags */
    uint64_t *base;                   /* [ncalls + 1][CECL_ROWS]: flags before each call */
    uint64_t most_phases;             /* of any row, over all calls */
    uint32_t max_events;              /* of any actor, and the stride of clocks */
    uint32_t *clocks;                 /* [actor][event][nactors] */
    struct verify_origin *origins;    /* [actor][event] */
    uint32_t *signals;                /* [holder][writer][row][value]: the writer's event, or 0 */
    uint64_t *highest;                /* [holder][writer][row]: value of the flag so far */
    uint32_t **tags;                  /* [nareas][rank][byte]: which source byte is there */
    uint32_t **writes;                /* [nareas][rank][byte], of RECV: in this call */
    struct verify_accesses *accesses; /* [area][rank] */
    struct verify_rank *ranks;
    struct verify_actor *actors;
    bool wrong_data; /* the first wrong byte, in words; a race that caused it says more */
    char words[CECL_MESSAGE_BYTES];
};

static inline const struct cecl_plan *verify_plan(const struct verifier *v, int call, int rank)
{
    return &v->plans[call * v->nranks + rank];
}

static inline int verify_actor(const struct verifier *v, int rank, int lane)
{
    return rank * v->nlanes + lane;
}

static inline uint64_t verify_base(const struct verifier *v, int call, int row)
{
    return v->base[call * CECL_ROWS + row];
}

static inline uint32_t *verify_clock(const struct verifier *v, int actor, uint32_t event)
{
    return &v->clocks[((size_t)actor * v->max_events + event) * (size_t)v->nactors];
}

static inline struct verify_origin *verify_origin(const struct verifier *v, int actor,
                                                  uint32_t event)
{
    return &v->origins[(size_t)actor * v->max_events + event];
}

/* Copies of a step, from its first on. */
static inline uint32_t verify_step_copies(const struct cecl_step *step)
{
    return step->kind == CECL_STEP_COPY ? step->count : step->kind == CECL_STEP_POST;
}

/* The tag of what two bytes become, the order told. */
static inline uint32_t verify_combine(uint32_t first, uint32_t second)
{
    return (first ^ (first >> 15)) * 0x9e3779b1u + second;
}

static inline uint32_t *verify_tags(const struct verifier *v, int area, int rank)
{
    return &v->tags[area][(size_t)rank * v->area_bytes[area]];
}

static inline uint32_t *verify_writes(const struct verifier *v, int area, int rank)
{
    return &v->writes[area][(size_t)rank * v->area_bytes[area]];
}

/* The same part of the same call on another rank; only once all plans are known to have it. */
static inline const struct cecl_part *
verify_part_at(const struct verifier *v, const struct cecl_plan *plan, uint32_t part, int rank)
{
    const int call = (int)(plan - v->plans) / v->nranks;
    return cecl_plan_part(verify_plan(v, call, rank), part);
}

/* Where a call's input ends, and its recvbuff. */
uint64_t verify_send_bytes(const struct cecl_call *call);
uint64_t verify_recv_bytes(const struct cecl_call *call);

/* The area that a call's input lies in, and the pitch of its rows. */
static inline enum cecl_area verify_input_area(const struct cecl_call *call)
{
    return call->in_place && !call->op->per_rank ? CECL_AREA_RECV : CECL_AREA_SEND;
}
static inline uint64_t verify_input_pitch(const struct cecl_call *call)
{
    return verify_input_area(call) == CECL_AREA_RECV ? call->view.shape.recv_pitch
                                                     : call->view.shape.send_pitch;
}

/* verify_form.c: whether each plan is well formed: indices, areas and sizes within bounds.
 * Afterwards nothing can be out of range. */
ceclResult_t verify_form(const struct verifier *v);
/* verify_run.c: walks all plans in an order that flags allow; clocks and data come about on the
 * way. */
ceclResult_t verify_run(struct verifier *v);
/* verify_data.c: whether a call's output is right at a rank, which counts it off; and new input, with
 * an output that holds nothing of worth. */
ceclResult_t verify_output(const struct verifier *v, int call, int rank);
void verify_renew(const struct verifier *v, int call, int rank);
/* verify_race.c: no two uses of a byte, one a write, without an order. */
ceclResult_t verify_races(const struct verifier *v);

#define VERIFY_FAULT(...) cecl_fail(ceclInternalError, __VA_ARGS__)

#endif
