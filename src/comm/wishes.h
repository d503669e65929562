/* Allocations of a group: they wait for its end. There those of several communicators are made side by
 * side, so that one thread can allocate for many ranks. */
#ifndef CECL_COMM_WISHES_H
#define CECL_COMM_WISHES_H

#include "comm/comm.h"

struct cecl_wish {
    ceclComm_t comm;
    void **ptr;
    size_t bytes;
    void *got; /* carried out: what *ptr becomes */
};

struct cecl_wishes {
    struct cecl_wish *list;
    uint32_t count, room;
};

/* Keeps an allocation for the end of the group; refuses NULL and communicators that are not usable. */
ceclResult_t cecl_wishes_add(struct cecl_wishes *wishes, ceclComm_t comm, void **ptr, size_t bytes);

/* Drops those of `comm`. */
void cecl_wishes_forget(struct cecl_wishes *wishes, ceclComm_t comm);

/* Collective for each communicator among them, in the order in which they were wished. A communicator's
 * allocations are made all or none, and their pointers are written where they are made, also if
 * another communicator's failed. */
ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes);

#endif
