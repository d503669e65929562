/* Calls that are passed to NCCL. */
#ifndef CECL_NCCL_PASSED_H
#define CECL_NCCL_PASSED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Passes a call to NCCL. */
ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call);

/* Like cecl_nccl_pass; if the call's communicator (`entry`, which may be NULL) has rails, also orders the
 * call with their exchanges. ends: the call is not in an NCCL group. Otherwise cecl_nccl_pass_ended must
 * be called when the group has ended. */
ncclResult_t cecl_nccl_pass_ordered(const struct cecl_nccl_call *call, struct cecl_nccl_comm *entry,
                                    bool ends);
/* Makes later exchanges wait for the calls of the NCCL group that has just ended with `result`. Returns
 * `result`, or this function's own error. */
ncclResult_t cecl_nccl_pass_ended(ncclResult_t result);

/* Whether NCCL has enqueued all calls on `comm` that it enqueues in the background. entry: the entry of
 * `comm`, or NULL. */
bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry);

#endif
