/* Within a group, joins by unique id and allocations wait for this thread's ceclGroupEnd, as calls do.
 * ceclGroupEnd carries out the joins, and then the allocations, of several ranks or communicators at the same
 * time, so that one thread can join and allocate for many ranks. Internal to src/api. */
#ifndef CECL_API_WAITING_H
#define CECL_API_WAITING_H

#include "launch/group.h"

/* -- joins.c -- */

/* One rank's ceclCommInitRankConfig, or one rank's part of a ceclCommInitAll. */
struct cecl_join {
    ceclComm_t *out; /* the caller's variable for the communicator */
    int nranks, rank;
    /* in ceclCommInitAll: the memory in which the ranks meet (boot/meeting.h); NULL: they meet by the id */
    void *meeting;
    ceclUniqueId id;
    struct cecl_resolved config;
    /* The result of checking the arguments. A rank with refused arguments takes part even so, and its peers
     * learn why. */
    ceclResult_t local;
    char words[CECL_MESSAGE_BYTES]; /* the message of `local` */
    ceclComm_t comm;                /* the communicator, once it is made */
};

struct cecl_joins {
    struct cecl_join *list;
    uint32_t count, room;
};

/* init.c. Collective. Makes join->comm. */
ceclResult_t cecl_join_carry_out(struct cecl_join *join);

/* Collective over each of the new communicators. If one of them cannot be made, this process keeps none. If
 * the group was already refused (`refused`, with message `words`), none is made, and the peers learn why.
 * Leaves `joins` empty. */
ceclResult_t cecl_joins_carry_out(struct cecl_joins *joins, ceclResult_t refused,
                                  const char *words);

/* -- waiting.c -- */

/* Keeps a join, or the error of its arguments, for the end of the open group. */
ceclResult_t cecl_waiting_join(const struct cecl_join *join);
/* Returns an error if calls or allocations on `comm` wait for this thread's ceclGroupEnd. `words`: what the
 * caller should do, or what happens to these calls. */
ceclResult_t cecl_waiting_check(ceclComm_t comm, const char *words);
/* Call it when `comm` ends. Refuses this thread's group if it has calls or allocations on `comm`. */
void cecl_waiting_forget(ceclComm_t comm);

#endif
