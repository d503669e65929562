/* Refuses calls that a communicator over several nodes cannot carry out. Each error message shows how ranks
 * are spread over nodes. */
#ifndef CECL_LAUNCH_NODES_H
#define CECL_LAUNCH_NODES_H

#include "launch/launch.h"

/* Refuses new calls of a launch that cannot be carried out over these nodes. All ranks decide alike, before
 * any of them publishes a place. Returns ceclSuccess for a communicator of one node. */
ceclResult_t cecl_nodes_check(const struct cecl_launch *launch);

/* Refuses a lone call that would wait for ever, because this thread has several of the ranks. */
ceclResult_t cecl_nodes_check_thread(const struct cecl_launch *launch);

#endif
