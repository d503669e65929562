/* The calling thread's group of NCCL calls: those that are kept until the outermost one ends. Passed
 * collectives go into NCCL's own group at once. When that has ended, the kept calls are carried out:
 * first served collectives, then passed messages, then served messages. NCCL, too, carries out the
 * messages of a group behind its collectives: a peer may have the same messages in a later group, or in
 * none. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* Keeps a call for the end of the outermost group. A call that is not served must be a message. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served);

/* Notes what a call got that was refused, and returns it. Its group, if it is in one, ends with the first
 * such result, and carries no kept call out. */
ncclResult_t cecl_nccl_group_refuse(ncclResult_t result);
ncclResult_t cecl_nccl_group_refused(void);

/* Notes a call that goes into NCCL's own group. */
void cecl_nccl_group_passed(ncclComm_t comm);

/* Both are called before NCCL's group ends, and return NCCL's first error. The first puts the passed messages
 * into that group, unless a collective is served. The second puts all kept calls there, to be simulated. */
ncclResult_t cecl_nccl_group_pass(void);
ncclResult_t cecl_nccl_group_pass_all(void);

/* Waits until NCCL has enqueued its part of the group in the background, if calls were kept. Ranks must
 * enqueue both parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(void);

/* Carries out the calls that were kept, turn by turn (see group.c), until a turn fails. No call is
 * kept afterwards. */
ncclResult_t cecl_nccl_group_serve(void);
/* Drops the calls that were kept. */
void cecl_nccl_group_forget(void);

#endif
