/* Makes a launch, from described calls to the stream. If several launches are made together, all of them go
 * through one step before any goes through the next, because one thread may have several ranks of a
 * communicator. A step that fails has recorded a message, and the caller gives the launch up. */
#ifndef CECL_LAUNCH_MAKE_H
#define CECL_LAUNCH_MAKE_H

#include "launch/launch.h"

/* Refuses a launch that this rank must not make. Local; peers learn of a refusal through cecl_check_calls. */
ceclResult_t cecl_launch_check(struct cecl_launch *launch);
/* Tells the peers where this rank's buffers lie. `may_wait` only matters for messages: see messages.h. */
ceclResult_t cecl_launch_tell(struct cecl_launch *launch, bool may_wait);
/* Learns where the peers' buffers lie, and gives the launch a program.
 *
 * pending_ns [in, out] how much longer to wait for late peers while this rank's calls are pending. The
 * launches of a group share it; it begins with CECL_LAUNCH_PATIENCE. */
ceclResult_t cecl_launch_prepare(struct cecl_launch *launch, uint64_t *pending_ns);
#define CECL_LAUNCH_PATIENCE UINT64_MAX /* the communicator's threshold */
/* Enqueues the launch, and the blocks that are carried before and behind it. `name`: the public call. */
ceclResult_t cecl_launch_issue(struct cecl_launch *launch, const char *name);

/* Refuses collectives whose buffers do not lie where they must. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch);

/* Checks everything of a lone launch that may be refused. Under CECL_CHECK this is where ranks learn that
 * their calls differ, or that one of them refuses its call. */
ceclResult_t cecl_launch_check_alone(struct cecl_launch *launch, const struct cecl_call *call,
                                     ceclResult_t local);
/* Copies blocks between private memory and bounce buffers of this rank, by separate launches on the stream
 * of `launch`. */
ceclResult_t cecl_launch_carry(const struct cecl_launch *launch,
                               const struct cecl_carried *carried);

/* Makes a lone launch, from the check to the stream, or gives it up. Under CECL_CHECK ranks compare `call`.
 * `local`: the result of describing that call. */
ceclResult_t cecl_launch_make(struct cecl_launch *launch, const struct cecl_call *call,
                              ceclResult_t local);

/* Explains how launches of one communicator would be carried out. Enqueues and exchanges nothing. */
ceclResult_t cecl_launches_explain(struct cecl_launch *list, ceclExplanation_t *explanation);

#endif
