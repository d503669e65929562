/* The steps of a launch that describe it, say where its buffers lie, and give it a program. make.c leads launches
 * through them. Internal to src/launch. */
#ifndef CECL_LAUNCH_STEPS_H
#define CECL_LAUNCH_STEPS_H

#include "launch/launcher.h"

/* -- describe.c: describes calls, and makes sure that the windows of their buffers still describe the memory that is
 * there -- */

/* Describes the public call of row call->op and adds it to the launch. Registers the memory that the call
 * uses. If recvbuff is private, derives a call with a bounce buffer.
 *
 * call  [out] the description. On failure it has only what peers compare; its buffers must not be used,
 *       because the registry may have forgotten their windows. */
ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call);
/* Says once in a process, under CECL_CHECK=1 on the host device, that GPUs would refuse the private memory that
 * call `call` uses. */
void cecl_settle_say_private(ceclComm_t comm, const char *call, const struct cecl_use *use);

/* Settles, once more, all calls on one communicator in a list of launches, because memory may have been
 * replaced since the calls were described. A window may have many regions, and settling a call checks only
 * the regions that the call touches. So a later call may find a replaced region, and drop a window that an
 * earlier call uses, too. The regions of the earlier call then exist in a different window. */
ceclResult_t cecl_settle_again(struct cecl_launch *list, ceclComm_t comm);

/* -- carry.c: Private memory in calls. Peers cannot reach it, so they use a bounce buffer instead (launcher.h). Before
 * and after a launch this rank copies the bytes between private memory and bounce buffer
 * (ce/lower_carry.c). Other ranks take no part in these copies; for them it is a call on registered memory.
 *
 *     recvbuff is private   the call writes to a bounce buffer. In place, the input is carried there
 *                           before the call. The output is carried to recvbuff after the call.
 *     sendbuff is private   this rank pushes out of it. If another rank comes later and has to
 *                           fetch the blocks, they are carried to a bounce buffer before the
 *                           call. -- */

/* If call `index` has a private recvbuff and peers write to it, replaces the call by one that uses a bounce
 * buffer, and notes which blocks this rank must carry. */
ceclResult_t cecl_carry_replace(struct cecl_launch *launch, uint32_t index);
/* Chooses the buffer from which peers may have to fetch: a bounce buffer if sendbuff is private, otherwise
 * call->send. */
ceclResult_t cecl_carry_lend(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer *lent);
/* Notes that this rank must copy sendbuff to the bounce buffer before the call, because peers have to fetch
 * the blocks from there. */
ceclResult_t cecl_carry_sent(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer lent);
/* Notes in one of the launch's lists that this rank copies bytes between two of its buffers, with the options of
 * `call`. */
ceclResult_t cecl_carry_note(struct cecl_launch *launch, struct cecl_launch **list,
                             const struct cecl_call *call, struct cecl_buffer src,
                             struct cecl_buffer dst);

/* -- bounce.c -- */

/* Leases `bytes` bytes for a launch. */
ceclResult_t cecl_bounce_lease(struct cecl_launch *launch, uint64_t bytes,
                               struct cecl_buffer *bounce);
/* Ends the leases of a launch. */
void cecl_bounce_end(struct cecl_launch *launch);
/* Frees all bounce buffers. No work may be pending. */
void cecl_bounces_close(ceclComm_t comm);

/* -- tell.c: Ranks tell each other where the buffers of a launch lie.
 *
 * Each rank publishes the places of its buffers in words that all ranks share (alloc/places.h),
 * and reads the places that its peers published. A rank does not wait long for a late peer. If a call
 * touches no buffers of peers, as a small call does, its places are not published. -- */

/* Publishes this rank's places. Peers rely on the launch from then on. Has no effect on a launch whose
 * places peers need not know. */
ceclResult_t cecl_tell_publish(struct cecl_launch *launch);
/* Learns what peers have published, and writes it to launch->told. pending_ns: see struct cecl_launches. */
ceclResult_t cecl_tell_learn(struct cecl_launch *launch, uint64_t *pending_ns);
/* Notes that the launch is enqueued: later calls ask how far this rank's GPU is behind. Has no effect on a launch that
 * was not published. */
void cecl_tell_enqueued(const struct cecl_launch *launch);

/* What ranks would tell each other if each rank had its buffers at the same places as this rank. Used for
 * explanations, and for launches whose places are not published. */
struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count);

/* -- plan.c: a launch's program. Launches are kept because their programs may run again. A launch is found by its calls
 * with effect, and by what ranks told each other about these calls. A hash of the calls chooses one of several small
 * sets; in a full set the launches are replaced in turn. -- */

/* Whether no copy of this call would touch a peer's sendbuff or recvbuff if the call were made alone, in no
 * group. */
bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call);
/* Makes a plan of `count` calls. The caller frees the plan. */
ceclResult_t cecl_plan_make(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                            const struct cecl_told *told, struct cecl_plan *plan);
/* Gives a launch a program. If an equal launch is kept, its program is used. Otherwise makes a new program,
 * and keeps this launch. A launch whose calls have no effect gets no program. */
ceclResult_t cecl_launch_bind(struct cecl_launch *launch);

/* Finds the kept launches with equal calls, once the launch's calls are complete. Call it before cecl_launch_bind and
 * cecl_kept_checked. Returns whether these buffers were checked earlier and no memory was freed since then. */
bool cecl_kept_find(struct cecl_launch *launch);
/* Notes that the buffers were checked, for this launch and for the kept launch with equal calls. */
void cecl_kept_checked(struct cecl_launch *launch);

/* -- by_nccl.c: Launches of communicators over several hosts: NCCL carries their calls (src/net), all of a group in one
 * group of NCCL. Such a launch is never told, bound or kept. -- */

/* Checks what shows only when all calls of the launch are known. */
ceclResult_t cecl_by_nccl_check(const struct cecl_launch *launch);
/* Makes the calls that NCCL carries, after all other calls of the group. If one of the others has failed, the
 * communicators of these calls fail, too, because peers make the calls. */
struct cecl_launches;
void cecl_by_nccl_run(struct cecl_launches *all);
void cecl_by_nccl_explain(const struct cecl_launch *launch, ceclExplanation_t *explanation);

#endif
