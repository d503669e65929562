/* Captured calls. A graph holds a call that its stream captures, and replays it any number of times. Such
 * a call is not tried and not counted: the decision that eager calls, the file or the table gave holds.
 *
 * While ranks capture a call that is to be served, they tell each other whether cecl can capture it on
 * every rank (agree.h). If it cannot on one, for example because of a buffer, all pass it to NCCL. */
#ifndef CECL_NCCL_CAPTURED_H
#define CECL_NCCL_CAPTURED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Whether the call's stream captures a graph. By NCCL's own rules this is equal on all ranks. */
bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

/* Says that ranks are to decide on `count` captured calls on one communicator, which `may` be served on
 * this rank, and whether cecl can capture them here. The caller is inside the communicator. */
void cecl_nccl_captured_tell(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                             int count, bool may);
/* Waits for all ranks. *serves: all of them can capture the calls. Errors: those of cecl_nccl_agree_await. */
ceclResult_t cecl_nccl_captured_await(struct cecl_nccl_comm *comm, int count, bool *serves);

/* -- captured calls of the thread's group, which are served or passed whole, for each communicator -- */

struct cecl_nccl_captured {
    struct cecl_nccl_call *calls;
    int count, room;
};

/* captured_kept.c. Keeps a captured call until the outermost group ends.
 * reason  why this call by itself would be passed. Returns false without host memory */
bool cecl_nccl_captured_keep(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason);
struct cecl_nccl_captured *cecl_nccl_captured_kept(void);
void cecl_nccl_captured_forget(void);

/* captured_group.c. Before NCCL's group ends: ranks decide. Passed calls go into NCCL's open group, and
 * served ones into cecl's (group.h). Returns the first error; then nothing of cecl's group is to be
 * carried out. */
ncclResult_t cecl_nccl_captured_end_group(void);
/* Puts all of them into NCCL's open group. */
ncclResult_t cecl_nccl_captured_pass_all(void);

#endif
