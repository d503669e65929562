/* Captured calls. A call on a stream that captures a graph is a launch that the graph holds: its
 * program, its windows and its imports stay until the graph and everything that was made of it are gone.
 * All ranks capture the call, and learn each other's places while they do, once for all replays.
 *
 * A launch that a graph holds is in the launcher's list. When its graph goes, some thread of the
 * device's hands it over (cecl_launch_return), and the next call of the communicator drops it. */
#ifndef CECL_LAUNCH_CAPTURED_H
#define CECL_LAUNCH_CAPTURED_H

#include "launch/launch.h"

/* Refuses what cannot be captured. Local. */
ceclResult_t cecl_captured_check(const struct cecl_launch *launch);
/* Records that some rank has not captured the launch in time. */
ceclResult_t cecl_captured_name_missing(const struct cecl_launch *launch);
/* Refuses a captured launch that another rank did not wait for. */
ceclResult_t cecl_captured_check_told(const struct cecl_launch *launch);
/* Adds the launch's program to the graph, which holds the launch from then on. */
ceclResult_t cecl_captured_issue(struct cecl_launch *launch);

/* Waits for a moment until no graph holds a call of the communicator. Returns how many calls are held
 * then. The caller is inside the communicator, or ends it. */
uint32_t cecl_captured_await(ceclComm_t comm);
/* Refuses an allocation of the pool that a captured call uses. */
ceclResult_t cecl_captured_check_free(ceclComm_t comm, uint64_t offset);

#endif
