/* Children that NCCL makes in the background. ncclCommSplit and its like return ncclInProgress then, and
 * write the child's handle only when the parent is ready again. */
#ifndef CECL_NCCL_BIRTH_H
#define CECL_NCCL_BIRTH_H

#include "nccl/abi.h"

/* Notes that NCCL will write the handle of a child of `parent` to `*child`. `together` is how many
 * communicators this thread makes at once. */
ncclResult_t cecl_nccl_birth_expect(ncclComm_t parent, ncclComm_t *child, int together);

/* To be called when NCCL says that `parent` is ready: begins to make cecl's communicators beside the
 * children that have come. ncclInProgress: one of them is not ready. With NCCL a child is ready when
 * its parent is, and programs may count on that. */
ncclResult_t cecl_nccl_birth_look(ncclComm_t parent);

/* `parent` ends. */
void cecl_nccl_birth_forget(ncclComm_t parent);

#endif
