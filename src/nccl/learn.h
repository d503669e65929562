/* Learns, in the program itself, which way CECL_NCCL=auto takes (CECL_NCCL_TRIALS=1). Each communicator looks
 * for a period in its collectives (nccl/trial_period.h), and lets NCCL and cecl carry out periods in turn
 * (nccl/trial.h). If there is no period, the table of gains.h decides.
 * Decisions do not depend on buffers, so all ranks take the same way at the same call.
 *
 * Sends and receives have no part in this, because not all ranks make them. */
#ifndef CECL_NCCL_LEARN_H
#define CECL_NCCL_LEARN_H

#include "nccl/call.h"
#include "nccl/comms.h"

struct cecl_nccl_learn;

/* Begins to learn on a communicator whose `ours` and `limits` are set. Errors: ceclSystemError. */
ceclResult_t cecl_nccl_learn_open(struct cecl_nccl_comm *entry);
void cecl_nccl_learn_close(struct cecl_nccl_comm *entry);

/* Notes the communicator's next collective that cecl could serve. Returns why it is passed; NO_REASON: it is
 * served. A captured call has no part in trials, and follows the verdict so far. */
enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm, bool is_captured);

#endif
