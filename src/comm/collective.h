/* Collective calls between the public entry points and the engine. */
#ifndef CECL_COMM_COLLECTIVE_H
#define CECL_COMM_COLLECTIVE_H

#include "call/describe.h"
#include "comm/comm.h"

/* What a description needs of the communicator, with the options that stand now. */
static inline struct cecl_scope cecl_comm_scope(ceclComm_t comm)
{
    return (struct cecl_scope){comm->rank, comm->nranks, &comm->pool, comm->options, comm->layout};
}

/* One public call from its arguments on: made now, or kept for the end of the group. Peers that compare
 * calls hear of a refusal. */
ceclResult_t cecl_collective(enum cecl_op_index op, const struct cecl_args *args, ceclComm_t comm,
                             ceclStream_t stream);

/* What the communicator lends a call, and how the call then goes. */
struct cecl_part cecl_comm_part(ceclComm_t comm, const struct cecl_call *call);

/* Everything that can refuse calls that are to be carried out as one; those without effect come last.
 * On success *bound is the plan to issue; NULL when there is nothing to do. Collective under
 * CECL_CHECK=1. */
ceclResult_t cecl_calls_prepare(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclStream_t stream, struct cecl_bound **bound);

/* How they would be carried out; enqueues and exchanges nothing. */
ceclResult_t cecl_calls_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation);

/* How it goes, in words, for as long as the bound plan is kept; NULL: nothing to do. */
const char *cecl_bound_path(const struct cecl_bound *bound);

/* Enqueues; a failure on the way fails the communicator. */
ceclResult_t cecl_calls_issue(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream);

/* check.c. Under CECL_CHECK=1 ranks compare the calls they are about to make, and go on together or
 * not at all; `local` is this rank's own verdict. Otherwise no more than `local`. */
ceclResult_t cecl_check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclResult_t local);

/* places.c. Room for what ranks tell each other of their blocks, made when the communicator is. */
void *cecl_places_room(int nranks);
/* Collective. Ranks tell each other their layouts; fills in where this rank's blocks belong at its
 * peers, in `layout`, which is the call's. `local`: this rank's verdict on its own arguments, its
 * message recorded. All ranks go on or all refuse, with the ranks and both values where two of them
 * differ. */
ceclResult_t cecl_places_exchange(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout,
                                  ceclResult_t local);
/* Collective. The same where the caller said where blocks belong: that is compared. */
ceclResult_t cecl_places_compare(ceclComm_t comm, const struct cecl_call *call);

/* group.c. Whether this thread is between ceclGroupStart and ceclGroupEnd; the call is then kept for
 * the latter. `result`: whether it was refused, its message recorded: then the group is. */
bool cecl_group_is_open(void);
/* Calls and allocations on `comm` that wait for the ceclGroupEnd of this thread. */
uint32_t cecl_group_waiting(ceclComm_t comm);
/* `comm` ends: a group in which something of it waits is refused. */
void cecl_group_forget(ceclComm_t comm);
ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream,
                            ceclResult_t result);

#endif
