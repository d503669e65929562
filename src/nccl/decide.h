/* Decides which way a call goes. A decision is a value (struct cecl_nccl_way): it changes no communicator and no
 * option. Only learning notes the call, once (learn.h). */
#ifndef CECL_NCCL_DECIDE_H
#define CECL_NCCL_DECIDE_H

#include "nccl/group_state.h"
#include "nccl/process.h"

/* The only function that decides whether a call is passed, and why, or served, and with which policy. A captured
 * call may still be passed, if ranks find that some of them cannot capture it (captured.h).
 * comm       the entry of its communicator; NULL: there is none
 * is_inside  the caller has entered it */
struct cecl_nccl_way cecl_nccl_decide(const struct cecl_nccl_process *process,
                                      const struct cecl_nccl_call *call,
                                      struct cecl_nccl_comm *comm, bool is_inside,
                                      struct cecl_nccl_group *group);

/* Whether the root or peer exists. If not, NCCL refuses the call at once, also in a group. */
static inline bool cecl_nccl_has_rank(const struct cecl_nccl_call *call,
                                      const struct cecl_nccl_comm *comm)
{
    return call->root >= 0 && call->root < comm->nranks;
}

/* Counts a call that is decided on, if the process counts its calls. Returns whether it is refused; then *result is
 * its result. */
bool cecl_nccl_is_refused(const struct cecl_nccl_process *process,
                          const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          ncclResult_t *result);

#endif
