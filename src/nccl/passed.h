/* Calls that are passed to NCCL. */
#ifndef CECL_NCCL_PASSED_H
#define CECL_NCCL_PASSED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Passes a call to NCCL. */
ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call);

/* Whether NCCL has enqueued all calls on `comm` that it enqueues in the background. entry: the entry of
 * `comm`, or NULL. */
bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry);

#endif
