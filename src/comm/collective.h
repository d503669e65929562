/* Collective calls, between the public entry points and the engine. */
#ifndef CECL_COMM_COLLECTIVE_H
#define CECL_COMM_COLLECTIVE_H

#include "call/describe.h"
#include "comm/comm.h"

/* What a description needs from the communicator, with the options that are set now. */
static inline struct cecl_scope cecl_comm_scope(ceclComm_t comm)
{
    return (struct cecl_scope){comm->rank, comm->nranks, &comm->windows, comm->options,
                               comm->layout};
}

/* Makes a public call from its arguments: carries it out now, or keeps it for the end of the group.
 * Peers that compare calls learn of a refusal. */
ceclResult_t cecl_collective(enum cecl_op_index op, const struct cecl_args *args, ceclComm_t comm,
                             ceclStream_t stream);

/* Describes the public call of row call->op. Registers the memory it uses, and replaces private
 * memory by bounce buffers (carry.h). The caller lets the call go (cecl_call_let_go), also after an
 * error. */
ceclResult_t cecl_comm_describe(ceclComm_t comm, const struct cecl_args *args,
                                struct cecl_call *call);

/* Whether no rank touches a buffer of its peers in this call, when it is made by itself. */
bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call);

/* Call `index` of some calls, with its way and with what the communicator lends it. `told`: what
 * ranks told of these calls; NULL if nothing. */
struct cecl_part cecl_comm_part(ceclComm_t comm, const struct cecl_call *call,
                                const struct cecl_told *told, uint32_t index);

/* Calls that are to be carried out as one go through these three, in this order. Calls without effect
 * must come last.
 *
 * Refuses calls that this rank must not make. Local: the peers learn by cecl_check_calls. */
ceclResult_t cecl_calls_check(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclStream_t stream);
/* Tells the peers where this rank's buffers lie. */
ceclResult_t cecl_calls_tell(ceclComm_t comm, const struct cecl_call *calls, uint32_t count);
/* Learns where the peers' buffers lie. On success *bound is the plan to issue, or NULL if there is
 * nothing to do. */
ceclResult_t cecl_calls_plan(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             struct cecl_bound **bound);

/* Explains how the calls would be carried out. Enqueues and exchanges nothing. */
ceclResult_t cecl_calls_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation);

/* Describes the way of a bound plan, for as long as the plan is kept. NULL: there is nothing to
 * do. */
const char *cecl_bound_path(const struct cecl_bound *bound);

/* Enqueues a bound plan. A failure on the way fails the communicator. */
ceclResult_t cecl_calls_issue(ceclComm_t comm, struct cecl_bound *bound, ceclStream_t stream);

/* Carries blocks between buffers of this rank. */
ceclResult_t cecl_calls_carry(ceclComm_t comm, const struct cecl_carried *carried,
                              ceclStream_t stream);
/* Adds what is carried to an explanation. */
ceclResult_t cecl_calls_explain_carried(ceclComm_t comm, const struct cecl_carried *carried,
                                        ceclExplanation_t *explanation);

/* register.c. Registers with a new communicator what is registered with its parent. */
void cecl_registrations_inherit(ceclComm_t child, ceclComm_t parent);
/* Frees what the caller has not deregistered. */
void cecl_registrations_free(ceclComm_t comm);

/* check.c. Under CECL_CHECK=1, ranks compare the calls that they are about to make, and all go on
 * or none does. `local` is this rank's own verdict. Without CECL_CHECK=1 this returns `local`. */
ceclResult_t cecl_check_calls(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclResult_t local);

/* places.c. Allocates memory for what ranks exchange about their blocks, when the communicator is
 * made. */
void *cecl_places_room(int nranks);
/* Collective. Ranks exchange their layouts. Fills in where this rank's blocks belong at its peers,
 * in `layout`, which is the call's layout. `local`: this rank's verdict on its own arguments, with
 * its message recorded. All ranks go on, or all refuse. Where two ranks differ, the message has
 * both ranks and both values. */
ceclResult_t cecl_places_exchange(ceclComm_t comm, const struct cecl_call *call, uint64_t *layout,
                                  ceclResult_t local);
/* Collective. For callers that gave the places of their blocks: compares these with what peers
 * expect. */
ceclResult_t cecl_places_compare(ceclComm_t comm, const struct cecl_call *call);

/* group.c. Whether this thread is between ceclGroupStart and ceclGroupEnd. cecl_group_add keeps a
 * call for the latter. `result`: whether the call was refused, with its message recorded. A group
 * with a refused call is refused. */
bool cecl_group_is_open(void);
/* Whether that group has calls on this communicator, messages among them. */
bool cecl_group_has_calls(ceclComm_t comm);
/* How many calls and allocations on `comm` wait for the ceclGroupEnd of this thread. */
uint32_t cecl_group_waiting(ceclComm_t comm);
/* To be called when `comm` ends: a group that holds anything on `comm` is refused. */
void cecl_group_forget(ceclComm_t comm);
ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream,
                            ceclResult_t result);
/* Refuses the open group, with `result` of a call in it, whose message is recorded. Returns
 * `result`. */
ceclResult_t cecl_group_refuse(ceclResult_t result);

#endif
