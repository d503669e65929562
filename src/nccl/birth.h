/* Children that NCCL makes in the background. ncclCommSplit and similar calls then return
 * ncclInProgress, and write the child's handle only when the parent is ready again. */
#ifndef CECL_NCCL_BIRTH_H
#define CECL_NCCL_BIRTH_H

#include "nccl/abi.h"

/* Notes that NCCL will write the handle of a child of `parent` to `*child`. `together` is how many
 * communicators this thread makes at once. */
ncclResult_t cecl_nccl_birth_expect(ncclComm_t parent, ncclComm_t *child, int together);

/* To be called when NCCL says that `parent` is ready: begins to make cecl's communicators beside
 * the children whose handles are there. Returns ncclInProgress while one of these is not made.
 * (With NCCL a child is ready when its parent is, and programs may rely on that.) */
ncclResult_t cecl_nccl_birth_look(ncclComm_t parent);

/* To be called when `parent` ends. */
void cecl_nccl_birth_forget(ncclComm_t parent);

#endif
