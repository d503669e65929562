/* Agreements of ranks, by words in shared memory of cecl's communicator. Ranks wait for each other on the host,
 * without calling the driver.
 At a call that all ranks make, each rank tells whether it can do something, and learns whether all ranks
 * can. */
#ifndef CECL_NCCL_AGREE_H
#define CECL_NCCL_AGREE_H

#include "nccl/comms.h"

/* Finds the words of a communicator whose `ours` is set; they follow those of learn.h. A communicator
 * without room for them has no such words. All ranks alike have words, or have none. */
ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry);
/* Tells the peers that this rank has left. */
void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry);

/* Notes `count` served collectives. If a rank waits for this rank in an agreement, it sees that this rank
 * makes other calls, and stops waiting. */
void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count);

/* Tells whether this rank can. The caller is inside the communicator, and must then call cecl_nccl_agree_await. */
void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, bool can);
/* Waits for all ranks. *all: whether all ranks can; false if there are no words.
 * what  for error messages: what all ranks do
 * Fails if the communicator has failed or was aborted, if a rank has left or makes other calls instead,
 * and after CECL_TIMEOUT_MS, if that is set. */
ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, const char *what, bool *all);

#endif
