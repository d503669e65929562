/* The calling thread's group of NCCL calls: those that are kept until the outermost one ends.
 * Passed collectives go into NCCL's own group at once. When that has ended, the kept calls are
 * carried out: first served collectives, then passed messages, then served messages. NCCL, too,
 * carries out the messages of a group behind its collectives: a peer may have the same messages in
 * a later group, or in none. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* Keeps a call for the end of the outermost group. A call that is not served must be a message. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served);

/* Notes the result of a refused call, and returns it. If the call is in a group, the group ends
 * with the first such result, and carries out no kept call. */
ncclResult_t cecl_nccl_group_refuse(ncclResult_t result);
ncclResult_t cecl_nccl_group_refused(void);

/* Notes a call that goes into NCCL's own group. */
void cecl_nccl_group_passed(ncclComm_t comm);

/* Called before NCCL's group ends. cecl_nccl_group_pass puts the passed messages into that group,
 * unless a collective is served. cecl_nccl_group_simulate puts all kept calls there. Both return
 * NCCL's first error. */
ncclResult_t cecl_nccl_group_pass(void);
ncclResult_t cecl_nccl_group_pass_all(void);

/* If calls were kept, waits until NCCL has enqueued its part of the group in the background. All
 * ranks must enqueue the two parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(void);

/* Carries out the calls that were kept, turn by turn (see group.c), until a turn fails. No call is
 * kept afterwards. */
ncclResult_t cecl_nccl_group_serve(void);
/* Drops the calls that were kept. */
void cecl_nccl_group_forget(void);

#endif
