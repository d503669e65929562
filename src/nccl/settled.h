/* Passes calls that learning need not follow one by one, because a verdict for NCCL stays in force for them:
 *
 * - A period is settled while a verdict is in force by which NCCL makes all of its calls. A call is only
 *   compared with the one that the period expects next. If they are equal, it is passed.
 * - Without a period, a call is passed if an equal call was passed by the verdict on its class. Learning
 *   follows each CECL_PERIOD_SEARCH-th call, because a period may then be found.
 *
 * The first call that is not passed here ends this. Learning then catches up on the calls that it has missed,
 * so its state is as if it had followed each call.
 *
 * What this file decides follows from the sequence of calls, so ranks do not differ. Nobody asks whether a call that
 * is passed here is captured: captured calls count as calls of the sequence.
 *
 * These functions do not enter the communicator, so this state is in its entry, which is never freed. */
#ifndef CECL_NCCL_SETTLED_H
#define CECL_NCCL_SETTLED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "learn/period.h"

struct cecl_class;
struct cecl_nccl_call;
struct cecl_nccl_comm;

struct cecl_nccl_settled_call {
    size_t count;
    int op, type, redop, root;
    bool reduces;
};

#define CECL_NCCL_SETTLED_PLACES 64u /* a power of two */

/* A call that the verdict on its class passes. */
struct cecl_nccl_settled_known {
    struct cecl_nccl_settled_call call;
    uint64_t token;         /* of the call (learn/period.h) */
    struct cecl_class *its; /* NULL: the place is free */
};

/* Used by the thread that makes calls. Starts zeroed. */
struct cecl_nccl_settled {
    /* how many calls may be passed before learning must hear of one; 0: not settled */
    uint64_t left;
    uint32_t next; /* which call of the period is expected */
    uint32_t length;
    struct cecl_nccl_settled_call *calls; /* [room]; kept for the entry's next communicator */
    uint32_t room;
    uint32_t noted; /* how many calls of the current period are in `calls` */
    uint64_t most;  /* what `left` was at first; 0: learning has missed no call */
    /* -- without a period -- */
    uint32_t quiet;  /* how many calls may be passed before learning must hear of one */
    uint32_t missed; /* how many calls learning has missed */
    uint8_t log[CECL_PERIOD_SEARCH]; /* [missed] the places of these calls in `known` */
    struct cecl_nccl_settled_known
        *known; /* [CECL_NCCL_SETTLED_PLACES], or NULL; kept like `calls` */
    bool knows; /* `known` has calls */
};

static inline void cecl_nccl_settled_forget_known(struct cecl_nccl_settled *settled)
{
    if (settled->knows)
        memset(settled->known, 0, CECL_NCCL_SETTLED_PLACES * sizeof(*settled->known));
    settled->knows = false;
}

/* For another communicator in the same entry. */
static inline void cecl_nccl_settled_forget(struct cecl_nccl_settled *settled)
{
    settled->left = settled->most = 0;
    settled->noted = settled->quiet = settled->missed = 0;
    cecl_nccl_settled_forget_known(settled);
}

/* Whether `call` is passed because its period is settled. If so, notes that the call was made. */
bool cecl_nccl_settled_passes(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call);
/* Whether `call` is passed because the verdict on its class passes it. If so, notes that the call was made. */
bool cecl_nccl_settled_knows(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call);

/* -- for learn.c, which is inside the communicator. It calls the first function before it hears of a call, and the
 * others afterwards -- */

void cecl_nccl_settled_catch_up(struct cecl_nccl_comm *comm);
/* passes: NCCL makes this call whenever the period's verdict is in force */
void cecl_nccl_settled_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                            bool passes);
/* its: the call's class; NULL: none. passes: the verdict on the class has passed the call, which is in no group */
void cecl_nccl_settled_note_class(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                                  uint64_t token, struct cecl_class *its, bool passes);

#endif
