/* Calls that are passed to NCCL. */
#ifndef CECL_NCCL_PASSED_H
#define CECL_NCCL_PASSED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Passes a call to NCCL. */
ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call);

/* The same. If the call's communicator (`entry`, which may be NULL) has rails, the call is ordered with their
 * exchanges. `ends`: it is in no group of NCCL's. Otherwise cecl_nccl_pass_ended must be called once the
 * group has ended. */
ncclResult_t cecl_nccl_pass_ordered(const struct cecl_nccl_call *call, struct cecl_nccl_comm *entry,
                                    bool ends);
/* Makes later exchanges wait for the calls of the group of NCCL's that has just ended with `result`. Returns
 * `result`, or an error of its own. */
ncclResult_t cecl_nccl_pass_ended(ncclResult_t result);

/* Whether NCCL has enqueued what it enqueues on `comm` in the background. `entry`: that of `comm`, or NULL. */
bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry);

#endif
