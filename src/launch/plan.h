/* Makes a program from described calls: chooses the way, lowers, and binds. */
#ifndef CECL_LAUNCH_PLAN_H
#define CECL_LAUNCH_PLAN_H

#include "launch/launch.h"

/* Whether no copy of this call would touch a peer's sendbuff or recvbuff if the call were made alone, in no
 * group. */
bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call);
/* Refuses reductions and calls with splits on the device if their policy forbids the SMs that they need. */
ceclResult_t cecl_plan_check_arithmetic(const struct cecl_call *calls, uint32_t count);
/* Makes a plan of `count` calls. The caller frees the plan. */
ceclResult_t cecl_plan_make(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                            const struct cecl_told *told, struct cecl_plan *plan);
/* Gives a launch a program. If an equal launch is kept, its program is used. Otherwise makes a new program,
 * and keeps this launch. A launch whose calls have no effect gets no program. */
ceclResult_t cecl_launch_bind(struct cecl_launch *launch);

#endif
