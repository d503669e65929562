/* One-sided calls that graphs capture. No peer is asked, so ranks may capture different calls, or none; but a signal of a
 * captured call is taken by a captured wait alone. */
#ifndef CECL_LAUNCH_ONE_SIDED_CAPTURED_H
#define CECL_LAUNCH_ONE_SIDED_CAPTURED_H

#include "device/capture.h"
#include "launch/one_sided.h"

/* Adds a call, which was checked, to what `stream` captures. bytes: of its copy. */
ceclResult_t cecl_one_sided_capture(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                    uint64_t bytes, ceclStream_t stream,
                                    const struct cecl_capture *capture);

/* Whether a graph holds a call that copies to the window, or from it; refuses an allocation of the pool that such a
 * call uses. Wait for a moment for graphs that are going. */
bool cecl_one_sided_is_held(ceclComm_t comm, const struct ceclWindow *window);
ceclResult_t cecl_one_sided_check_free(ceclComm_t comm, uint64_t start, uint64_t bytes);

#endif
