/* Captured calls. If a call's stream captures a graph, the graph holds the call's launch: the program, the
 * windows and the imports stay until the graph, and everything that was made from it, is gone. All ranks
 * capture the call, or both ranks of a message. During the capture they learn each other's places, once for all
 * replays.
 *
 * A launch that a graph holds is in the launcher's list. When the graph is gone, a thread of the device hands
 * the launch over (cecl_launch_return), and the next call of the communicator drops it. */
#ifndef CECL_LAUNCH_CAPTURED_H
#define CECL_LAUNCH_CAPTURED_H

#include "launch/launch.h"

/* Refuses a launch that cannot be captured. Local. */
ceclResult_t cecl_captured_check(const struct cecl_launch *launch);
/* Refuses a captured launch that another rank did not capture. */
ceclResult_t cecl_captured_check_told(const struct cecl_launch *launch);
/* Lets the graph hold the launch, also if only a part of it can then be captured: the program may launch that part. After
 * an error nothing has changed. */
ceclResult_t cecl_captured_hold(struct cecl_launch *launch);
/* The same, and adds the launch's program to the graph; NULL: it has none. */
ceclResult_t cecl_captured_issue(struct cecl_launch *launch, const struct cecl_bound *program);

/* Waits up to 2 s (gone_ms of the launcher) until no graph holds a call of the communicator. Returns how many calls graphs
 * still hold. The caller must be ending the communicator. */
uint32_t cecl_captured_await(ceclComm_t comm);
/* Returns an error if a captured call uses the allocation at `offset` of the pool. */
ceclResult_t cecl_captured_check_free(ceclComm_t comm, uint64_t offset);

#endif
