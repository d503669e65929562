/* Captured calls. A graph holds a call that its stream captures, and may replay it any number of times. Such
 * a call has no part in trials: it follows the decision that was made by trials of other calls, by the file
 * or by the table. (It counts as a call of its period only while that is settled: see settled.h.)
 *
 * While ranks capture a call that may be served, they agree whether cecl can capture it on every rank
 * (agree.h). If it cannot on one rank, for example because of a buffer, all ranks pass the call to NCCL. For a
 * message the same holds for its two ranks. */
#ifndef CECL_NCCL_CAPTURED_H
#define CECL_NCCL_CAPTURED_H

#include "nccl/call.h"
#include "nccl/comms.h"

/* Whether the call's stream captures a graph. NCCL's rules require this to be equal on all ranks. */
bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm);

/* Whether cecl can capture the calls on this rank, as one group on one stream. Describes and registers their
 * buffers, as making the calls would, and enqueues nothing. */
bool cecl_nccl_captured_can(const struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                            int count);

/* Tells the peers whether this rank can serve `count` captured calls on one communicator. It can if `may` is set,
 * and if cecl can capture the calls here. The caller is inside the communicator. */
void cecl_nccl_captured_tell(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                             int count, bool may);
/* Waits for all ranks. *serves: all of them can serve the calls. Errors: those of cecl_nccl_agree_await. */
ceclResult_t cecl_nccl_captured_await(struct cecl_nccl_comm *comm, int count, bool *serves);

/* -- captured_messages.c. Two ranks decide on each captured message between them. The caller is inside the
 * communicators, as far as `comm` is set -- */

struct cecl_nccl_kept;
/* Tells the peers whether this rank can capture its end of each message. Messages to this rank itself are decided
 * then. At most CECL_NCCL_CAPTURED_AT_ONCE of the messages are between the same ranks in the same
 * direction. */
void cecl_nccl_messages_tell(struct cecl_nccl_kept *kept, int count);
/* Waits until at least one message is decided, and notes the answers of all that are. Errors: those of
 * cecl_nccl_agree_await. */
ncclResult_t cecl_nccl_messages_await(struct cecl_nccl_kept *kept, int count);

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
