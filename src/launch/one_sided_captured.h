/* One-sided calls that graphs capture. No peer takes part in the capture, so ranks may capture different
 * calls, or none. But a signal of a captured call can be taken only by a captured wait. */
#ifndef CECL_LAUNCH_ONE_SIDED_CAPTURED_H
#define CECL_LAUNCH_ONE_SIDED_CAPTURED_H

#include "device/capture.h"
#include "launch/one_sided.h"

/* Adds a call, which was checked, to the graph that `stream` captures. bytes: how many bytes the call
 * copies. */
ceclResult_t cecl_one_sided_capture(ceclComm_t comm, const struct cecl_one_sided_args *args,
                                    uint64_t bytes, ceclStream_t stream,
                                    const struct cecl_capture *capture);

/* The first function returns whether a graph holds a call that copies to or from the window. The second one
 * refuses to free bytes of the pool that a held call uses. Both wait up to 2 s for graphs that are being
 * destroyed. */
bool cecl_one_sided_is_held(ceclComm_t comm, const struct ceclWindow *window);
ceclResult_t cecl_one_sided_check_free(ceclComm_t comm, uint64_t start, uint64_t bytes);

#endif
