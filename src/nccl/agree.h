/* Ranks agree on something that only each of them knows of itself, at a call that all make: by words in
 * memory that cecl lends them. They wait on the host for each other, without a call of the driver. */
#ifndef CECL_NCCL_AGREE_H
#define CECL_NCCL_AGREE_H

#include "nccl/comms.h"

/* Finds the words of a communicator whose `ours` is set, behind those of learn.h. Over several nodes there are
 * none, nor where there is no room for them; all ranks alike. */
ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry);
/* Tells the peers that this rank tells nothing any more. */
void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry);

/* Notes `count` collectives that are served. A rank that waits meanwhile for this one sees them, and does
 * not wait in vain. */
void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count);

/* Tells this rank's bits. The caller is inside the communicator, and then awaits the peers'. */
void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, uint32_t bits);
/* Waits for all ranks. *bits: those that all ranks told; 0 where there are no words.
 * what  for messages: what all ranks do
 * Errors: the communicator has failed, or was aborted; a rank has left, or makes other calls instead;
 * CECL_TIMEOUT_MS, if it is set. */
ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, const char *what, uint32_t *bits);

#endif
