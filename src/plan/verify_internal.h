/* What the verifier's files share. Everything here is for verify*.c alone. */
#ifndef CECL_PLAN_VERIFY_INTERNAL_H
#define CECL_PLAN_VERIFY_INTERNAL_H

#include "plan/layout.h"
#include "plan/verify.h"

/* A use of a stretch of one rank's window. */
struct verify_access {
    uint64_t low, high; /* bytes [low, high) */
    uint32_t actor;     /* rank that uses it */
    uint32_t event;     /* its event, 1 .. */
    bool write;
};

struct verify_accesses {
    struct verify_access *list;
    size_t count, capacity;
};

/* A rank's walk through its plans. Event 0 stands for nothing. */
struct verify_rank {
    int call;      /* the call it is in; ncalls: behind the last */
    uint32_t step; /* next step of that call's plan */
    bool begun;    /* the user's turn before `call` is over */
    bool done;
    uint32_t nevents;
};

struct verifier {
    const struct cecl_plan *plans;
    int ncalls, nranks;
    uint32_t nparts;        /* the most of any plan */
    int nwindows;           /* CECL_WINDOW_COUNT * nparts */
    uint64_t *window_bytes; /* [nwindows] */
    uint64_t input_bytes;   /* of the largest window of user's data: stride of tags */
    uint64_t *base;         /* [ncalls + 1]: flags before each call */
    uint32_t max_events;    /* of any rank, and the stride of clocks */
    uint32_t *clocks;       /* [rank][event][nranks] */
    uint32_t *signals;      /* [holder][writer][value]: the writer's event that set it, or 0 */
    uint64_t *highest;      /* [holder][writer]: value of the flag so far */
    uint32_t **tags;        /* [nwindows][rank][byte]: which source byte is there */
    uint32_t **writes;      /* [nwindows][rank][byte], of RECV: in this call */
    struct verify_accesses *accesses; /* [window][rank] */
    struct verify_rank *ranks;
    bool wrong_data; /* the first wrong byte, in words; a race that caused it says more */
    char words[CECL_MESSAGE_BYTES];
};

static inline const struct cecl_plan *verify_plan(const struct verifier *v, int call, int rank)
{
    return &v->plans[call * v->nranks + rank];
}

static inline uint32_t *verify_clock(const struct verifier *v, int rank, uint32_t event)
{
    return &v->clocks[((size_t)rank * v->max_events + event) * (size_t)v->nranks];
}

static inline uint32_t *verify_tags(const struct verifier *v, int window, int rank)
{
    return &v->tags[window][(size_t)rank * v->window_bytes[window]];
}

static inline uint32_t *verify_writes(const struct verifier *v, int window, int rank)
{
    return &v->writes[window][(size_t)rank * v->window_bytes[window]];
}

/* The same part of the same call on another rank; only once all plans are known to have it. */
static inline const struct cecl_call *
verify_part_at(const struct verifier *v, const struct cecl_plan *plan, uint32_t part, int rank)
{
    const int call = (int)(plan - v->plans) / v->nranks;
    return cecl_plan_part(verify_plan(v, call, rank), part);
}

/* Bytes of the windows that a call uses; `call` is that of `rank`. */
uint64_t verify_send_bytes(const struct cecl_call *call, int rank);
uint64_t verify_recv_bytes(const struct cecl_call *call);

/* The block that `call`'s rank receives from `from`: its bytes, and where it lies in recvbuff. */
uint64_t verify_block(const struct cecl_call *call, int from, uint64_t *offset);

/* verify_form.c: whether each plan is well formed: indices, windows and sizes within bounds.
 * Afterwards nothing can be out of range. */
ceclResult_t verify_form(const struct verifier *v);
/* verify_run.c: walks all plans in an order that flags allow; clocks and data come about on the
 * way. */
ceclResult_t verify_run(struct verifier *v);
/* verify_race.c: no two uses of a byte, one a write, without an order. */
ceclResult_t verify_races(const struct verifier *v);

#define VERIFY_FAULT(...) cecl_fail(ceclInternalError, __VA_ARGS__)

#endif
