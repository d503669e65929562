/* Joins and allocations, which wait for this thread's ceclGroupEnd as calls do. Internal to
 * src/api. */
#ifndef CECL_API_WAITING_H
#define CECL_API_WAITING_H

#include "api/joins.h"
#include "api/wishes.h"

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
/* How many calls and allocations on `comm` wait for the ceclGroupEnd of this thread. */
uint32_t cecl_waiting_on(ceclComm_t comm);
/* To be called when `comm` ends: a group that holds anything on `comm` is refused. */
void cecl_waiting_forget(ceclComm_t comm);

#endif
