/* Settling: makes sure that the windows of a launch's calls still describe the memory that is there. */
#ifndef CECL_LAUNCH_SETTLE_H
#define CECL_LAUNCH_SETTLE_H

#include "launch/launch.h"

/* Settles the windows of a call's buffers. If the communicator registers on use, registers memory that is in
 * no window. *changed: windows have changed, so the buffers must be looked up again. */
ceclResult_t cecl_settle(ceclComm_t comm, const struct cecl_call *call, bool *changed);

/* Says once in a process, under CECL_CHECK=1 on the host device, that GPUs would refuse the private memory that
 * call `call` uses. */
void cecl_settle_say_private(ceclComm_t comm, const char *call, const struct cecl_use *use);

/* Refuses memory outside of windows that a call cannot use. `count`: as check_uses in device.h has it. */
ceclResult_t cecl_settle_check(ceclComm_t comm, const struct cecl_use *uses, size_t count);

/* Settles, once more, all calls on one communicator in a list of launches, because memory may have been
 * replaced since the calls were described. A window may have many regions, and settling a call checks only
 * the regions that the call touches. So a later call may find a replaced region, and drop a window that an
 * earlier call uses, too. The regions of the earlier call then exist in a different window. */
ceclResult_t cecl_settle_again(struct cecl_launch *list, ceclComm_t comm);

#endif
