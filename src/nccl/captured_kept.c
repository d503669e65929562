/* The captured calls that the thread's open group keeps; see captured.h. Separate from captured_group.c, because
 * call.c uses this file to keep calls, and captured_group.c, which carries them out, uses call.c. */
#include <stdlib.h>

#include "nccl/captured.h"
#include "util/grow.h"
#include "util/thread.h"

static _Thread_local struct cecl_nccl_captured kept;

struct cecl_nccl_captured *cecl_nccl_captured_kept(void)
{
    return &kept;
}

void cecl_nccl_captured_forget(void)
{
    free(kept.calls);
    kept = (struct cecl_nccl_captured){0};
}

bool cecl_nccl_captured_keep(const struct cecl_nccl_call *call, enum cecl_nccl_reason reason)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (kept.count == 0)
        cecl_thread_at_end(&end, cecl_nccl_captured_forget);
    if (!CECL_HAS_ROOM(kept.calls, kept.count, kept.room))
        return false;
    kept.calls[kept.count] = *call;
    kept.calls[kept.count++].reason = reason;
    return true;
}
