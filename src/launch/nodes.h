/* What calls of a communicator over several nodes cannot have yet. Each refusal has the layout in its
 * message. */
#ifndef CECL_LAUNCH_NODES_H
#define CECL_LAUNCH_NODES_H

#include "launch/launch.h"

/* Refuses new calls of a launch that its layout cannot take, alike on all ranks, before peers are told.
 * Returns ceclSuccess for a communicator of one node. */
ceclResult_t cecl_nodes_check(const struct cecl_launch *launch);

/* Refuses a lone call or a request whose wait for the other ranks could not end, because this thread has
 * several of them. */
ceclResult_t cecl_nodes_check_thread(const struct cecl_launch *launch);

#endif
