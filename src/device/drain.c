/* Waits for a device's own streams by polling, because CUDA's waiting calls take no deadline. */
#include "device/ops.h"

#include "util/clock.h"

#define FIRST_PAUSE_US 20
#define LAST_PAUSE_US 1000 /* pauses grow to this or a little more: ranks may share few cores */

ceclResult_t cecl_drain(struct cecl_device *dev, cecl_count_busy_fn count_busy, int64_t deadline)
{
    const int64_t begin = cecl_now_ms();
    long pause_us = FIRST_PAUSE_US;
    for (;;) {
        size_t busy = 0;
        const ceclResult_t result = count_busy(dev, &busy);
        if (busy == 0)
            return result;
        if (cecl_ms_left(deadline) == 0)
            return cecl_fail(ceclTimeout,
                             "streams of this communicator's device: %zu still hold work that has "
                             "not ended after %lld ms",
                             busy, (long long)(cecl_now_ms() - begin));
        cecl_pause_us(pause_us);
        pause_us = pause_us < LAST_PAUSE_US ? 2 * pause_us : pause_us;
    }
}
