/* Learns within the program which way CECL_NCCL=auto takes (CECL_NCCL_TRIALS=1). Each communicator
 * finds the period in its collectives (learn/period.h), and lets NCCL and cecl take turns from
 * period to period (learn/trial.h). Where buffers lie plays no part, so all ranks take the same way
 * at the same call.
 *
 * Sends and receives have no part in this, because not all ranks make them. */
#ifndef CECL_NCCL_LEARN_H
#define CECL_NCCL_LEARN_H

#include "nccl/call.h"
#include "nccl/comms.h"

struct cecl_nccl_learn;

/* Begins to learn on a communicator whose `ours`, `limits` and `known` are set. Without `tries`
 * only verdicts of the file count. Errors: ceclSystemError. */
ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry, bool tries);
void cecl_nccl_learn_close(struct cecl_nccl_comm *entry);

/* Notes the communicator's next collective, which could be served. Returns why it is passed, or
 * NO_REASON if it is served. */
enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm);

#endif
