/* The bounded wait for a device's own streams, the same on every device. */
#ifndef CECL_DEVICE_DRAIN_H
#define CECL_DEVICE_DRAIN_H

#include "device/device.h"

/* How many of the device's own streams hold unfinished work. A failure is that of a stream which
 * cannot be asked, and which is not counted: *busy is written in any case. */
typedef ceclResult_t (*cecl_count_busy_fn)(struct cecl_device *dev, size_t *busy);

/* Asks until nothing is busy, and returns the last answer; ceclTimeout past `deadline`. */
ceclResult_t cecl_drain(struct cecl_device *dev, cecl_count_busy_fn count_busy, int64_t deadline);

#endif
