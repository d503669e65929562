/* Public calls on a communicator, between the public functions and launches. */
#ifndef CECL_LAUNCH_COLLECTIVE_H
#define CECL_LAUNCH_COLLECTIVE_H

#include "comm/comm.h"
#include "plan/describe.h"

/* Makes a public call from its arguments: carries it out, or keeps it for the end of the group. Under
 * CECL_CHECK peers learn of a refusal. */
ceclResult_t cecl_collective(enum cecl_op_index op, const struct cecl_args *args, ceclComm_t comm,
                             ceclStream_t stream);

/* Explains how a call would be carried out by itself. Enqueues and exchanges nothing. */
ceclResult_t cecl_collective_explain(enum cecl_op_index op, const struct cecl_args *args,
                                     ceclComm_t comm, ceclExplanation_t *explanation);

#endif
