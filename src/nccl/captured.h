/* Captured calls. A graph holds a call that its stream captures, and may replay it any number of times. Such a call has
 * no part in trials. The trials of other calls, or the table, decide on it.
 *
 * While ranks capture a call that may be served, they agree whether cecl can capture it on every rank. If cecl cannot
 * on some rank, for example because of a buffer, all ranks pass the call to NCCL. Captured messages are always
 * passed. */
#ifndef CECL_NCCL_CAPTURED_H
#define CECL_NCCL_CAPTURED_H

#include "nccl/group.h"

/* Whether the call's stream captures a graph. NCCL's rules require this to be equal on all ranks.
 * is_sound  [out] false if the capture is broken */
bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           bool *is_sound);

/* Ranks decide on the captured calls among `kept`. The collectives of one communicator are all
 * served, or all passed. Passed collectives get the reason CAPTURED, if they have no other reason. Returns the first
 * error of cecl_nccl_agree_await. After an error no kept call may be carried out. */
ncclResult_t cecl_nccl_captured_decide(struct cecl_nccl_kept *kept, int count);

/* -- agree.c. Agreements of ranks, by words in shared memory of cecl's communicator. Ranks wait for each other on the
 * host, without calling the driver -- */

/* Finds the words of a communicator whose `ours` is set. They lie behind learn.c's words. If there is no room for them,
 * no rank of the communicator has words. */
ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry);
/* Tells the peers that this rank has left. */
void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry);

/* Notes `count` served collectives. By this a rank that waits for this rank in an agreement sees that this rank makes
 * other calls, and stops waiting. */
void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count);
/* Notes one served call. Captured calls and messages do not count. */
static inline void cecl_nccl_note_served(struct cecl_nccl_comm *comm,
                                         const struct cecl_nccl_call *call)
{
    if (!call->way.is_captured && !cecl_nccl_is_message(call->op))
        cecl_nccl_agree_note_calls(comm, 1);
}

/* Tells whether this rank can capture. The caller is inside the communicator, and must call cecl_nccl_agree_await. */
void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, bool can);
/* Waits for all ranks. *all: whether all ranks can capture; false if there are no words. Fails if the communicator has
 * failed or was aborted, if a rank has left or makes other calls instead, or after CECL_TIMEOUT_MS. */
ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, bool *all);

#endif
