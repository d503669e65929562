/* Joins by unique id and allocations, which wait for this thread's ceclGroupEnd as calls do. There those of
 * several ranks or communicators are carried out at the same time, so that one thread can join, and
 * allocate, for many ranks. Internal to src/api. */
#ifndef CECL_API_WAITING_H
#define CECL_API_WAITING_H

#include "launch/group.h"

/* -- joins.c -- */

/* One rank's ceclCommInitRankConfig, or its part of ceclCommInitAll. */
struct cecl_join {
    ceclComm_t *out; /* the caller's */
    int nranks, rank;
    void *meeting; /* ceclCommInitAll: where its ranks meet; NULL: they do by the id */
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

/* -- wishes.c -- */

struct cecl_wish {
    ceclComm_t comm;
    void **ptr;
    size_t bytes;
    void *got; /* what *ptr becomes once the allocation is carried out */
};

struct cecl_wishes {
    struct cecl_wish *list;
    uint32_t count, room;
};

/* Collective for each communicator among them, in the order in which they were wished. A
 * communicator gets all of its allocations or none. Its pointers are written when it gets them,
 * also if another communicator's allocations failed. Enters the communicators on which the group has
 * no calls. */
ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes, const struct cecl_group *group);

/* -- waiting.c -- */

/* Belongs to the thread's struct cecl_group. */
struct cecl_waiting {
    struct cecl_joins joins;
    struct cecl_wishes wishes;
};

/* Keeps a join, or the error of its arguments, for the end of the open group. */
ceclResult_t cecl_waiting_join(const struct cecl_join *join);
/* Keeps an allocation for the end of the open group. Refuses NULL, and communicators that are not
 * usable. */
ceclResult_t cecl_waiting_allocate(ceclComm_t comm, void **ptr, size_t bytes);
/* Refuses if calls or allocations on `comm` wait for the ceclGroupEnd of this thread. `words`: what is
 * to be done, or becomes of them. */
ceclResult_t cecl_waiting_check(ceclComm_t comm, const char *words);
/* To be called when `comm` ends: a group that holds anything on `comm` is refused. */
void cecl_waiting_forget(ceclComm_t comm);

#endif
