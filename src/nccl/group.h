/* The calls of the calling thread's NCCL group that are kept until the outermost group ends. Then they are
 * carried out: served collectives, passed collectives, passed messages, served messages.
 * Messages come last, because a peer may have the same messages in a later group, or in none; NCCL also carries
 * out the messages of a group after its collectives. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/call.h"

/* Keeps a call for the end of the outermost group. */
ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served);
/* The same, for a collective that is decided on only when the outermost group ends. Until then it counts as
 * passed. */
ncclResult_t cecl_nccl_group_keep_open(const struct cecl_nccl_call *call);
/* Decides on these collectives, in their order, unless a call of the group was refused: the group carries none out. */
void cecl_nccl_group_decide(bool (*serves)(const struct cecl_nccl_call *call));

/* Notes the result of a refused call, and returns it. If the call is in a group, the group's end returns
 * the first such result, and carries out no kept call. */
ncclResult_t cecl_nccl_group_refuse(ncclResult_t result);
ncclResult_t cecl_nccl_group_refused(void);

/* Notes a call that goes into NCCL's own group. */
void cecl_nccl_group_passed(ncclComm_t comm);

/* Called before NCCL's group ends. cecl_nccl_group_pass puts the kept calls into that group, unless one of
 * them is served. cecl_nccl_group_pass_all puts all kept calls into it. Both return NCCL's first
 * error. */
ncclResult_t cecl_nccl_group_pass(void);
ncclResult_t cecl_nccl_group_pass_all(void);

/* If calls were kept, waits until NCCL has enqueued its part of the group in the background. All
 * ranks must enqueue the two parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(void);

/* turns.c. Carries out the kept calls, turn by turn (see group.c), until a turn fails. Then drops the rest. */
ncclResult_t cecl_nccl_group_serve(void);
/* Drops the kept calls. */
void cecl_nccl_group_forget(void);

#endif
