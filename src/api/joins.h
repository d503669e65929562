/* Joins by unique id. Those of a group wait for the end of the group. There they run at the
 * same time, so that one thread can join for several ranks. */
#ifndef CECL_COMM_JOINS_H
#define CECL_COMM_JOINS_H

#include "comm/comm.h"

struct cecl_threads;

/* One rank's ceclCommInitRankConfig, or its part of ceclCommInitAll. */
struct cecl_join {
    ceclComm_t *out; /* the caller's */
    int nranks, rank;
    struct cecl_threads *threads; /* ceclCommInitAll: by which its ranks meet; NULL: by the id */
    ceclUniqueId id;
    struct cecl_resolved config;
    /* A rank whose arguments are refused takes part all the same, so that its peers learn why. */
    ceclResult_t local;
    char words[CECL_MESSAGE_BYTES]; /* of `local` */
    ceclComm_t comm;                /* the communicator, once it is made */
};

struct cecl_joins {
    struct cecl_join *list;
    uint32_t count, room;
};

/* init.c. Collective. Makes join->comm. */
ceclResult_t cecl_join_carry_out(struct cecl_join *join);

/* Collective for each communicator among them. If one fails, this process keeps none of the
 * communicators. If the group was refused before (`refused`, because of `words`), none is made, and
 * the peers learn why. Leaves `joins` empty. */
ceclResult_t cecl_joins_carry_out(struct cecl_joins *joins, ceclResult_t refused,
                                  const char *words);

#endif
