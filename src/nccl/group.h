/* The calling thread's group of NCCL calls: how many groups are open, and the served calls that are
 * kept until the outermost one ends. Passed calls go into NCCL's own group at once. Calls of a group
 * have no order among themselves, so NCCL's part may be carried out first, and cecl's part after it. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* How many groups are open, one in another. */
int cecl_nccl_group_depth(void);

/* Notes that a group was opened, or that one was ended. The second returns whether that was the
 * outermost one. */
void cecl_nccl_group_opened(void);
bool cecl_nccl_group_ended(void);

/* Keeps a call for the end of the outermost group. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call);

/* Notes a call that goes into NCCL's own group. */
void cecl_nccl_group_passed(ncclComm_t comm);

/* Waits until NCCL has enqueued its part of the group, if it does so in the background, and if calls
 * were kept. Ranks must enqueue both parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(void);

/* Carries out the calls that were kept, turn by turn (see group.c), until a turn fails. No call is
 * kept afterwards. */
ncclResult_t cecl_nccl_group_serve(void);
/* Drops the calls that were kept. */
void cecl_nccl_group_forget(void);

#endif
