/* One-sided calls, as they are lowered. */
#ifndef CECL_CE_ONE_SIDED_H
#define CECL_CE_ONE_SIDED_H

#include "plan/plan.h"

/* A step of a counter, as struct cecl_step has it. k 0: no step. */
struct cecl_counted {
    uint32_t counter, k;
};

/* A signal that is sent, or for which the call waits. */
struct cecl_one_sided_signal {
    int peer;
    struct cecl_counted of; /* the signal */
    struct cecl_counted
        after; /* of this rank: the call that sent the signal before, or waited for it */
    struct cecl_counted reached; /* waits: tells this rank's host that the stream waits */
};

struct cecl_one_sided {
    int peer;
    bool gets;                 /* the bytes come from the peer */
    uint64_t bytes;            /* 0: there is no copy */
    struct cecl_counted after; /* of this rank: the call for which this one waits before all else */
    const struct cecl_one_sided_signal *sent;  /* NULL: none */
    const struct cecl_one_sided_signal *waits; /* [nwaits] */
    uint32_t nwaits;
    struct cecl_counted done; /* of this rank: the call is done */
};

/* Makes the plan of this rank, in the memory of the plan before. Both ends of the copy are of part 0. Where the peer is
 * this rank, the end in the window is of part 1. */
ceclResult_t cecl_lower_one_sided(const struct cecl_one_sided *call, struct cecl_plan *plan);

#endif
