/* Captured calls. A call on a capturing stream becomes a part of a graph, which the program may replay any number of
 * times. Trials do not time captured calls: a verdict on other calls or, without one, the table of gains.c decides.
 *
 * If cecl may make a captured call, ranks agree whether cecl can capture it on every rank. If it cannot on some rank,
 * for example because of a buffer, all ranks pass the call to NCCL. Captured sends and receives always go to NCCL. */
#ifndef CECL_NCCL_CAPTURED_H
#define CECL_NCCL_CAPTURED_H

#include "nccl/group.h"

/* Whether the call's stream captures a graph. NCCL's rules require this to be equal on all ranks.
 * is_sound  [out] false if the capture is broken */
bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           bool *is_sound);

/* Decides, together with all ranks, which library makes the captured calls among `kept`: one library makes all captured
 * collectives of a communicator. If it is NCCL, collectives without another reason get the reason CAPTURED. Returns the
 * first error of cecl_nccl_agree_await. After an error the caller must carry out no kept call. */
ncclResult_t cecl_nccl_captured_decide(struct cecl_nccl_kept *kept, int count);

/* -- agree.c. Ranks agree by words in the shared memory of cecl's communicator. They wait for each other on the host,
 * without calling the driver -- */

/* Sets entry->words of a communicator whose `ours` is set. The words lie at the end of the shared memory, behind
 * learn.c's words. If there is no room for them, entry->words stays NULL on all ranks. */
ceclResult_t cecl_nccl_agree_open(struct cecl_nccl_comm *entry);
/* Tells the peers that this rank has left. */
void cecl_nccl_agree_leave(struct cecl_nccl_comm *entry);

/* Counts `count` collectives that cecl makes. A rank that waits for this rank in an agreement reads the count: if it
 * grows, this rank has made another call instead of agreeing, and the wait fails. */
void cecl_nccl_agree_note_calls(struct cecl_nccl_comm *comm, int count);
/* Counts one call that cecl makes, unless it is captured or is a send or a receive. */
static inline void cecl_nccl_note_served(struct cecl_nccl_comm *comm,
                                         const struct cecl_nccl_call *call)
{
    if (!call->way.is_captured && !cecl_nccl_is_message(call->op))
        cecl_nccl_agree_note_calls(comm, 1);
}

/* Tells the peers whether this rank can capture. The caller is inside the communicator, and must then call
 * cecl_nccl_agree_await. */
void cecl_nccl_agree_tell(struct cecl_nccl_comm *comm, bool can);
/* Waits for all ranks. Sets *all to whether all ranks can capture; to false if there are no words. Fails if the
 * communicator has failed or was aborted, if a rank has left or makes another call, or after CECL_TIMEOUT_MS. */
ceclResult_t cecl_nccl_agree_await(struct cecl_nccl_comm *comm, bool *all);

#endif
