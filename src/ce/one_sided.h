/* One-sided calls, in the form that is lowered to a plan. */
#ifndef CECL_CE_ONE_SIDED_H
#define CECL_CE_ONE_SIDED_H

#include "plan/plan.h"

/* A counter and a value of that counter, as in struct cecl_step. k 0: no counter. */
struct cecl_counted {
    uint32_t counter, k;
};

/* A signal that the call sends, or for which it waits. */
struct cecl_one_sided_signal {
    int peer;
    struct cecl_counted of; /* the signal */
    /* the call of this rank that must be done first: the one that sent the previous signal of this number, or that
     * waited for it */
    struct cecl_counted after;
    struct cecl_counted reached; /* for waits: tells this rank's host that the stream waits */
};

struct cecl_one_sided {
    int peer;
    bool gets;                 /* true: the bytes come from the peer; false: they go to it */
    uint64_t bytes;            /* 0: there is no copy */
    struct cecl_counted after; /* the call of this rank that must be done before this one begins */
    const struct cecl_one_sided_signal *sent;  /* NULL: none */
    const struct cecl_one_sided_signal *waits; /* [nwaits] */
    uint32_t nwaits;
    struct cecl_counted done; /* tells this rank's host that the call is done */
};

/* Makes the plan of this rank, in the memory of the previous plan. The copy's source and destination belong to part 0,
 * except if the peer is this rank itself: then the one that lies in the window belongs to part 1. */
ceclResult_t cecl_lower_one_sided(const struct cecl_one_sided *call, struct cecl_plan *plan);

#endif
