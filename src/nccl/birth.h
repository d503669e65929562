/* Child communicators that NCCL makes in the background. ncclCommSplit and similar calls return
 * ncclInProgress then, and NCCL writes the child's handle only when the parent is ready again. */
#ifndef CECL_NCCL_BIRTH_H
#define CECL_NCCL_BIRTH_H

#include "nccl/abi.h"
#include "nccl/meeting.h"

/* Notes that NCCL will write the handle of a child of `parent` to `*child`. `together` is how many
 * communicators this thread makes at once. Takes over the meeting. */
ncclResult_t cecl_nccl_birth_expect(ncclComm_t parent, ncclComm_t *child, int together,
                                    struct cecl_nccl_meeting *meeting);

/* Must be called when NCCL says that `parent` is ready: begins to make cecl's communicators for the
 * children whose handles NCCL has written. Returns ncclInProgress until all of these are made, because
 * programs may rely on a child being ready when NCCL says that its parent is. */
ncclResult_t cecl_nccl_birth_look(ncclComm_t parent);

/* Must be called when `parent` ends. */
void cecl_nccl_birth_forget(ncclComm_t parent);

#endif
