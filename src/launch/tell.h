/* Ranks tell each other where the buffers of a launch lie.
 *
 * Each rank publishes the places of its buffers in words that all ranks share (alloc/places.h),
 * and reads the places that its peers published. A rank does not wait long for a late peer. If a call
 * touches no buffers of peers, as a small call does, its places are not published. */
#ifndef CECL_LAUNCH_TELL_H
#define CECL_LAUNCH_TELL_H

#include "launch/launch.h"

/* Makes room for what ranks tell each other. This may fail, so call it before ranks agree that no rank
 * refuses. */
ceclResult_t cecl_tell_reserve(struct cecl_launch *launch);
/* Publishes this rank's places. Peers rely on the launch from then on. Has no effect on a launch whose
 * places peers need not know. */
ceclResult_t cecl_tell_publish(struct cecl_launch *launch);
/* Learns what peers have published, and writes it to launch->told. pending_ns: see cecl_launch_prepare. */
ceclResult_t cecl_tell_learn(struct cecl_launch *launch, uint64_t *pending_ns);
/* Notes that the launch is enqueued: later calls ask how far this rank's GPU is behind. Has no effect on a launch that
 * was not published. */
void cecl_tell_enqueued(const struct cecl_launch *launch);

/* What ranks would tell each other if each rank had its buffers at the same places as this rank. Used for
 * explanations, and for launches whose places are not published. */
struct cecl_told cecl_tell_alone(const struct cecl_call *calls, uint32_t count);

#endif
