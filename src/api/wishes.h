/* Allocations of a group wait for the end of the group. There the allocations of several
 * communicators are made at the same time, so that one thread can allocate for many ranks. */
#ifndef CECL_COMM_WISHES_H
#define CECL_COMM_WISHES_H

#include "launch/group.h"

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

#endif
