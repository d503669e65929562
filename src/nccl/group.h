/* The calling thread's group of NCCL calls: how many groups are open, and the calls that are kept until
 * the outermost one ends. Passed collectives go into NCCL's own group at once. In what follows the end of
 * that group is carried out: served collectives, messages that are passed, messages that are served.
 * NCCL has the messages of a group behind its collectives, too: a peer may have the same messages in a
 * later group, or in none. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* How many groups are open, one in another. */
int cecl_nccl_group_depth(void);

/* Notes that a group was opened, or that one was ended. The second returns whether that was the
 * outermost one. */
void cecl_nccl_group_opened(void);
bool cecl_nccl_group_ended(void);

/* Keeps a call for the end of the outermost group. One that is not served has to be a message. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served);

/* Notes what a call got that was refused, and returns it. Its group, if it is in one, ends with the first
 * such result, and carries no kept call out. */
ncclResult_t cecl_nccl_group_refuse(ncclResult_t result);
ncclResult_t cecl_nccl_group_refused(void);

/* Notes a call that goes into NCCL's own group. */
void cecl_nccl_group_passed(ncclComm_t comm);

/* To be called before the end of NCCL's group: puts the kept messages that are passed into it, if they may
 * be there; and puts all kept calls into it, to be simulated. Both return NCCL's first error. */
ncclResult_t cecl_nccl_group_pass(void);
ncclResult_t cecl_nccl_group_pass_all(void);

/* Waits until NCCL has enqueued its part of the group, if it does so in the background, and if calls
 * were kept. Ranks must enqueue both parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(void);

/* Carries out the calls that were kept, turn by turn (see group.c), until a turn fails. No call is
 * kept afterwards. */
ncclResult_t cecl_nccl_group_serve(void);
/* Drops the calls that were kept. */
void cecl_nccl_group_forget(void);

#endif
