/* Which way CECL_NCCL=auto takes, learned in the program itself (CECL_NCCL_TRIALS=1). Each communicator
 * looks for the period in its collectives (learn/period.h), and lets NCCL and cecl take turns in it
 * (learn/trial.h). Where there is no period, classes of calls are tried one after the other
 * (learn/classes.h). Nothing of buffers is looked at, so all ranks take the same way at the same call.
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
/* aborts  the program's streams may wait forever */
void cecl_nccl_learn_close(struct cecl_nccl_comm *entry, bool aborts);

/* Notes the communicator's next collective, which could be served, and says why it is passed; NO_REASON:
 * it is served.
 * is_timed  set where the caller is to say by cecl_nccl_learn_time when it begins to enqueue this call,
 *           and when that is done, by whichever library. The call is in no group. */
enum cecl_nccl_reason cecl_nccl_learn_reason(const struct cecl_nccl_call *call,
                                             struct cecl_nccl_comm *comm, bool *is_timed);
/* The same for a captured call, which has no part in periods and trials: what was decided so far holds. */
enum cecl_nccl_reason cecl_nccl_learn_captured(const struct cecl_nccl_call *call,
                                               struct cecl_nccl_comm *comm);
void cecl_nccl_learn_time(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                          bool is_end);

#endif
