/* The calls of the calling thread's NCCL group that are kept until the outermost group ends. Then they are
 * carried out: served collectives, passed collectives, passed messages, served messages.
 * Messages come last, because a peer may have the same messages in a later group, or in none; NCCL also carries
 * out the messages of a group after its collectives. */
#ifndef CECL_NCCL_GROUP_H
#define CECL_NCCL_GROUP_H

#include "nccl/group_state.h"

/* Takes a call of a group (call.h). After a refused call the group's end returns the first refusal, and carries out no
 * kept call. */
bool cecl_nccl_group_take(struct cecl_nccl_group *group, const struct cecl_nccl_call *call,
                          struct cecl_nccl_comm *comm, ncclResult_t *result);

/* Called before NCCL's outermost group ends, unless it is only simulated. Ranks decide on the calls that are not decided
 * on yet. So the calls of a group that a single rank simulates, or that is refused there, are not in the sequence of
 * learning. If no call is served, puts all into NCCL's group. Returns the first error. */
ncclResult_t cecl_nccl_group_decide(struct cecl_nccl_group *group);

/* Puts the first `count` of these calls into NCCL's open group. Returns NCCL's first error. */
ncclResult_t cecl_nccl_group_pass(struct cecl_nccl_group *group, const struct cecl_nccl_kept *kept,
                                  int count);

/* If calls were kept, waits until NCCL has enqueued its part of the group in the background. All
 * ranks must enqueue the two parts in the same order, or they wait for each other. */
void cecl_nccl_group_await_passed(const struct cecl_nccl_group *group);

/* Stages: served collectives have those from 0 on. */
#define CECL_NCCL_FIRST_MESSAGE_STAGE (1 << 24)
#define CECL_NCCL_PASSED_MESSAGES (CECL_NCCL_FIRST_MESSAGE_STAGE - 1)
#define CECL_NCCL_PASSED_COLLECTIVES (CECL_NCCL_PASSED_MESSAGES - 1)

/* stages.c. Carries out the kept calls, stage by stage, until a stage fails. Then drops the rest. */
ncclResult_t cecl_nccl_group_serve(struct cecl_nccl_group *group);

#endif
