/* Within a group, joins by unique id wait for this thread's ceclGroupEnd, as calls and allocations do. They are then
 * carried out at the same time, so that one thread can join for many ranks. Internal to src/api. */
#ifndef CECL_API_JOINS_H
#define CECL_API_JOINS_H

#include "comm/comm.h"

/* One rank's ceclCommInitRankConfig, or one rank's part of a ceclCommInitAll. */
struct cecl_join {
    struct cecl_join *next;
    ceclComm_t *out; /* the caller's variable for the communicator */
    int nranks, rank;
    struct cecl_meetings meetings; /* in ceclCommInitAll the ranks meet there; zeroed: by the id */
    ceclUniqueId id;
    struct cecl_resolved config;
    /* The result of checking the arguments. A rank with refused arguments takes part even so, and its peers
     * learn why. */
    ceclResult_t local;
    char words[CECL_MESSAGE_BYTES]; /* the message of `local` */
    ceclComm_t comm;                /* the communicator, once it is made */
};

/* init.c. Collective. Makes the communicator of a struct cecl_join. */
ceclResult_t cecl_join_carry_out(void *join);

/* Collective over each of the new communicators. If one of them cannot be made, this process keeps none. If
 * the group was already refused (`refused`, with message `words`), none is made, and the peers learn why.
 * joins: a list, or NULL */
ceclResult_t cecl_joins_carry_out(struct cecl_join *joins, ceclResult_t refused, const char *words);

/* Keeps a join, or the error of its arguments, for the end of the open group. */
ceclResult_t cecl_joins_keep(const struct cecl_join *join);

#endif
