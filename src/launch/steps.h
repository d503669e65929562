/* Steps of a launch: describing its calls, telling where its buffers lie, making its program. make.c calls them.
 * Internal to src/launch. */
#ifndef CECL_LAUNCH_STEPS_H
#define CECL_LAUNCH_STEPS_H

#include "launch/launcher.h"

/* -- describe.c: describes calls, and settles their windows, which means: makes sure that each window still describes
 * the memory at its addresses -- */

/* Describes a call, whose op the caller has put into call->op, and adds it to the launch. Registers the memory that the
 * call uses, if the communicator registers on use. If recvbuff is private, derives a call with a bounce buffer.
 *
 * call  [out] the description. On failure it has only what peers compare; its buffers must not be used,
 *       because the registry may have forgotten their windows. */
ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call);
/* Under CECL_CHECK=1 on the host device: warns, once in a process, that GPUs would refuse memory which the call named
 * `call` uses. */
void cecl_settle_say_private(ceclComm_t comm, const char *call, const struct cecl_use *use);

/* Settles the windows of all calls on `comm` in a list of launches once more, because memory may have been replaced
 * since the calls were described. A window may have many regions, and settling a call checks only the regions that the
 * call touches. So a later call may find a replaced region, and drop a window that an earlier call also uses. Then the
 * earlier call gets a new window. */
ceclResult_t cecl_settle_again(struct cecl_launch *list, ceclComm_t comm);

/* -- carry.c: Private memory in calls. Peers cannot reach it, so they use a bounce buffer instead (launcher.h). Before
 * and after a launch this rank copies the bytes between private memory and bounce buffer (ce/lower_carry.c). Its peers
 * see only a call on registered memory.
 *
 *     recvbuff is private   peers write to a bounce buffer. In place, this rank copies the input there before
 *                           the call. After the call it copies the output to recvbuff.
 *     sendbuff is private   this rank pushes out of it. If a later rank has to fetch the blocks, this rank
 *                           copies them to a bounce buffer before the call. -- */

/* If call `index` has a private recvbuff and peers may write to it, derives a call with a bounce buffer, and lists in
 * launch->leases the copies that this rank must make. */
ceclResult_t cecl_carry_replace(struct cecl_launch *launch, uint32_t index);
/* Chooses the buffer from which peers that come later fetch: a bounce buffer if sendbuff is private and the call is no
 * reduction, else call->send. */
ceclResult_t cecl_carry_lend(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer *lent);
/* Adds a copy before the call: from sendbuff to the bounce buffer `lent`, where peers that came later fetch the
 * bytes. */
ceclResult_t cecl_carry_sent(struct cecl_launch *launch, const struct cecl_call *call,
                             struct cecl_buffer lent);
/* Adds to a list of launch->leases a copy of the call's bytes between two buffers of this rank, with the options of
 * `call`. */
ceclResult_t cecl_carry_note(struct cecl_launch *launch, struct cecl_launch **list,
                             const struct cecl_call *call, struct cecl_buffer src,
                             struct cecl_buffer dst);

/* -- bounce.c -- */

/* Leases `bytes` bytes of a bounce buffer to a launch. */
ceclResult_t cecl_bounce_lease(struct cecl_launch *launch, uint64_t bytes,
                               struct cecl_buffer *bounce);
/* Ends the leases of a launch. */
void cecl_bounce_end(struct cecl_launch *launch);
/* Frees all bounce buffers. No work may be pending. */
void cecl_bounces_close(ceclComm_t comm);

/* -- tell.c: Ranks tell each other where the buffers of a launch lie.
 *
 * Each rank publishes the places of its buffers in words that all ranks share (alloc/places.h), and reads the places
 * that its peers published. A rank does not wait long for a late peer. A lone call that touches no buffers of peers,
 * for example a small call, publishes nothing. -- */

/* Publishes this rank's places. From then on peers rely on the launch. Has no effect if peers need not know the
 * places. */
ceclResult_t cecl_tell_publish(struct cecl_launch *launch);
/* Waits for the peers' places, within limits, and writes them to launch->told. pending_ns: see struct cecl_launches. */
ceclResult_t cecl_tell_learn(struct cecl_launch *launch, uint64_t *pending_ns);
/* Notes that the launch is enqueued, so that later calls can find out how far this rank's GPU is behind. Has no effect
 * on a launch that was not published. */
void cecl_tell_enqueued(const struct cecl_launch *launch);

/* What ranks would tell each other if the buffers of all ranks were like this rank's. For explanations, and for
 * launches whose places are not published. */
struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count);

/* -- plan.c: a launch's program. Launches are kept because their programs may run again. The key of a kept launch is
 * its first `nfull` calls, and what ranks told each other about them. A hash of the calls chooses a small set of kept
 * launches. If the set is full, new launches replace the old ones in turn. -- */

/* Whether this call, made outside a group, copies only between staging and the rank's own buffers: no copy touches a
 * peer's sendbuff or recvbuff. */
bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call);
/* Makes a plan of `count` calls. The caller frees the plan. */
ceclResult_t cecl_plan_make(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                            const struct cecl_told *told, struct cecl_plan *plan);
/* Gives a launch a program: that of an equal kept launch, or else a new one. With a new program, usually keeps this
 * launch. A launch whose calls do nothing gets no program. */
ceclResult_t cecl_launch_bind(struct cecl_launch *launch);

/* Finds the kept launches with equal calls; the launch must have all its calls. Must be called before cecl_launch_bind
 * and cecl_kept_checked. Returns whether the buffers were checked earlier and no memory was freed since then. */
bool cecl_kept_find(struct cecl_launch *launch);
/* Notes, also in the first kept launch with equal calls, that the buffers of this launch were checked. */
void cecl_kept_checked(struct cecl_launch *launch);

/* -- by_nccl.c: Launches on communicators over several hosts: NCCL makes their calls (src/net), those of a group in one
 * group of NCCL. Such a launch publishes no places, has no program, and is never kept. -- */

/* Makes the checks that need all calls of the launch. */
ceclResult_t cecl_by_nccl_check(const struct cecl_launch *launch);
/* Makes the group's calls on communicators over several hosts, after all other calls of the group. If another call of
 * the group has failed, these communicators fail too, because peers make their calls on them and wait. */
struct cecl_launches;
void cecl_by_nccl_run(struct cecl_launches *all);
void cecl_by_nccl_explain(const struct cecl_launch *launch, ceclExplanation_t *explanation);

#endif
