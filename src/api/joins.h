/* Joins by unique id. The joins of a group wait for the end of the group. There they run at the
 * same time, so that one thread can join for several ranks. */
#ifndef CECL_COMM_JOINS_H
#define CECL_COMM_JOINS_H

#include "comm/comm.h"

/* One rank's ceclCommInitRankConfig. */
struct cecl_join {
    ceclComm_t *out; /* the caller's */
    int nranks, rank;
    ceclUniqueId id;
    struct cecl_resolved config;
    /* An error of this rank's arguments. The rank takes part all the same, so that its peers learn
     * why. */
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

/* Carries out all joins; collective for each communicator. If one fails, this process keeps none of
 * the communicators. If the group was refused before (`refused`, with the message `words`), none is
 * made, and the peers learn why. Leaves `joins` empty. */
ceclResult_t cecl_joins_carry_out(struct cecl_joins *joins, ceclResult_t refused,
                                  const char *words);

#endif
