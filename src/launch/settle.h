/* Making sure that the windows of a launch's calls are of the memory that is there now. */
#ifndef CECL_LAUNCH_SETTLE_H
#define CECL_LAUNCH_SETTLE_H

#include "launch/launch.h"

/* Settles the windows of a call's buffers, and registers memory that is in no window, if the
 * communicator registers on use. *changed: windows have changed, so the buffers must be looked up
 * again. */
ceclResult_t cecl_settle(ceclComm_t comm, const struct cecl_call *call, bool *changed);

/* Lists what must be looked at again each time that a settled call is started: the bytes that it uses of
 * registered memory, and of private memory where the device checks that. `each` returns false to end the
 * list. */
void cecl_settle_list(ceclComm_t comm, const struct cecl_call *call,
                      bool (*each)(void *context, struct cecl_window *window,
                                   const struct cecl_use *use),
                      void *context);

/* Settles the calls of one communicator again, in a list of launches. Memory may have been replaced
 * since they were described. A window may hold many regions, and a call looks only at the regions
 * that it touches. So a later call may find a region replaced, and drop a window that an earlier
 * call uses, too. The regions of the earlier call still exist, but in another window now. */
ceclResult_t cecl_settle_again(struct cecl_launch *list, ceclComm_t comm);

#endif
