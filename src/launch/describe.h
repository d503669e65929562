/* Makes a launch from the arguments of a public call. */
#ifndef CECL_LAUNCH_DESCRIBE_H
#define CECL_LAUNCH_DESCRIBE_H

#include "launch/launch.h"

/* What a description needs from the communicator, with its current options. */
struct cecl_scope cecl_comm_scope(ceclComm_t comm);

/* Describes the public call of row call->op and adds it to the launch. Registers the memory that the call
 * uses. If recvbuff is private, derives a call with a bounce buffer (carry.h).
 *
 * call  [out] the description. On failure it has only what peers compare; its buffers must not be used,
 *       because the registry may have forgotten their windows. */
ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call);

#endif
