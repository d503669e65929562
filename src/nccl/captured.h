/* Captured calls. A graph holds a call that its stream captures, and may replay it any number of times. Such
 * a call has no part in trials: it follows the decision that was made by trials of other calls,
 * or by the table.
 *
 * While ranks capture a call that may be served, they agree whether cecl can capture it on every rank
 * (agree.h). If it cannot on one rank, for example because of a buffer, all ranks pass the call to NCCL.
 * Captured messages are passed. */
#ifndef CECL_NCCL_CAPTURED_H
#define CECL_NCCL_CAPTURED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Whether the call's stream captures a graph. NCCL's rules require this to be equal on all ranks. */
bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

/* Tells the peers whether this rank can serve `count` captured calls on one communicator. It can if `may` is set,
 * and if cecl can capture the calls here. The caller is inside the communicator. */
void cecl_nccl_captured_tell(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                             int count, bool may);
/* Waits for all ranks. *serves: all of them can serve the calls. Errors: those of cecl_nccl_agree_await. */
ceclResult_t cecl_nccl_captured_await(struct cecl_nccl_comm *comm, int count, bool *serves);

/* -- captured calls of the thread's group. The collectives of one communicator are all served, or all passed -- */

struct cecl_nccl_captured {
    struct cecl_nccl_call *calls;
    int count, room;
};

/* captured_kept.c. Keeps a captured call until the outermost group ends.
 * reason  why this call would be passed, if it were alone. Returns false if there is no host memory */
bool cecl_nccl_captured_keep(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason);
struct cecl_nccl_captured *cecl_nccl_captured_kept(void);
void cecl_nccl_captured_forget(void);

/* captured_group.c. Called before NCCL's group ends. Ranks decide; passed calls go into NCCL's open group,
 * and served calls are kept (group.h). Returns the first error; after an error no kept call may be carried
 * out. */
ncclResult_t cecl_nccl_captured_end_group(void);
/* Puts all captured calls into NCCL's open group. */
ncclResult_t cecl_nccl_captured_pass_all(void);

#endif
