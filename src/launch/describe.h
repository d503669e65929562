/* From the arguments of a public call to a launch. */
#ifndef CECL_LAUNCH_DESCRIBE_H
#define CECL_LAUNCH_DESCRIBE_H

#include "launch/launch.h"

/* What a description needs from the communicator, with the options that are set now. */
struct cecl_scope cecl_comm_scope(ceclComm_t comm);

/* Describes the public call of row call->op and adds it to the launch. Registers the memory that it
 * uses, and derives a call with bounce buffers where its memory is private (carry.h).
 *
 * call [out] the description. On failure it has the fields that peers compare, and no buffers. */
ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call);

#endif
