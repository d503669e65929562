/* Allocations of a group wait for the end of the group. There the allocations of several
 * communicators are made at the same time, so that one thread can allocate for many ranks. */
#ifndef CECL_COMM_WISHES_H
#define CECL_COMM_WISHES_H

#include "comm/comm.h"

struct cecl_wish {
    ceclComm_t comm;
    void **ptr;
    size_t bytes;
    void *got; /* the pointer that *ptr gets once the allocation is carried out */
};

struct cecl_wishes {
    struct cecl_wish *list;
    uint32_t count, room;
};

/* Carries out all allocations; collective for each communicator, in the order of the calls. A
 * communicator gets all of its allocations or none. Its pointers are then written, even if
 * allocations of another communicator failed. */
ceclResult_t cecl_wishes_carry_out(struct cecl_wishes *wishes);

#endif
