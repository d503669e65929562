/* From described calls to a program: choosing the way, lowering, binding. */
#ifndef CECL_LAUNCH_PLAN_H
#define CECL_LAUNCH_PLAN_H

#include "launch/launch.h"

/* Whether no rank touches a buffer of its peers in this call, if the call is made by itself. */
bool cecl_keeps_to_own_buffers(ceclComm_t comm, const struct cecl_call *call);
/* Refuses a call that needs arithmetic if its policy forbids SMs. */
ceclResult_t cecl_plan_check_arithmetic(const struct cecl_call *calls, uint32_t count);
/* Makes the plan of some calls. The caller frees it. */
ceclResult_t cecl_plan_make(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                            const struct cecl_told *told, struct cecl_plan *plan);
/* Gives a launch its program. If an equal launch is kept, this is its program; otherwise a new one,
 * and this launch is kept. A launch whose calls have no effect gets no program. */
ceclResult_t cecl_launch_bind(struct cecl_launch *launch);
/* The same with a program of its own, for a request. */
ceclResult_t cecl_launch_bind_own(struct cecl_launch *launch);
/* How a launch goes, for the timeline. */
const char *cecl_launch_path(const struct cecl_launch *launch);

#endif
