/* Making a launch, from described calls to the stream. If several launches are made together, all
 * go through one step before any goes through the next, because they may be ranks of one
 * communicator in one thread. A step that fails has recorded a message; the caller gives the launch
 * up. */
#ifndef CECL_LAUNCH_MAKE_H
#define CECL_LAUNCH_MAKE_H

#include "launch/launch.h"

/* Refuses what this rank must not do. Local; peers learn of a refusal by cecl_check_calls. */
ceclResult_t cecl_launch_check(struct cecl_launch *launch);
/* Tells the peers where this rank's buffers lie. `may_wait`: for messages, see messages.h. */
ceclResult_t cecl_launch_tell(struct cecl_launch *launch, bool may_wait);
/* Learns where the peers' buffers lie, and gives the launch a program.
 *
 * pending_ns [in, out] how much longer to wait for late peers while this rank's calls are
 *             pending: the launches of a group share it. At first CECL_LAUNCH_PATIENCE. */
ceclResult_t cecl_launch_prepare(struct cecl_launch *launch, uint64_t *pending_ns);
#define CECL_LAUNCH_PATIENCE UINT64_MAX /* what the communicator's tuning says */
/* Enqueues the launch, and what is carried before and behind it. `name` is the public call. */
ceclResult_t cecl_launch_issue(struct cecl_launch *launch, const char *name);

/* Refuses buffers of collectives that are not where they must be. */
ceclResult_t cecl_launch_check_buffers(struct cecl_launch *launch);

/* Checks everything of a lone launch that may be refused. Under CECL_CHECK a rank that made another call
 * learns of that, or of this rank's refusal. */
ceclResult_t cecl_launch_check_alone(struct cecl_launch *launch, const struct cecl_call *call,
                                     ceclResult_t local);
/* Carries blocks between buffers of this rank, by launches of their own, on the launch's stream. */
ceclResult_t cecl_launch_carry(const struct cecl_launch *launch,
                               const struct cecl_carried *carried);

/* Makes a lone launch, from the check to the stream, or gives it up. Where ranks compare their
 * calls, they compare `call`. `local` is this rank's verdict on that call. */
ceclResult_t cecl_launch_make(struct cecl_launch *launch, const struct cecl_call *call,
                              ceclResult_t local);

/* Explains how launches of one communicator would go. Enqueues and exchanges nothing. */
ceclResult_t cecl_launches_explain(struct cecl_launch *list, ceclExplanation_t *explanation);

#endif
