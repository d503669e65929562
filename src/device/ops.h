/* The list of operations of devices. Internal to src/device. */
#ifndef CECL_DEVICE_OPS_H
#define CECL_DEVICE_OPS_H

#include "device/device.h"

/* Declares an operation: cuda_close, host_close and so on. */
#define CECL_DEVICE_OP_DECLARED(prefix, name) \
    __typeof__(*((const struct cecl_device_ops *)0)->name) prefix##_##name;

/* -- drain.c: how each device waits for its own streams, with a deadline -- */

/* Adds to *busy the number of the device's own streams that hold unfinished work. If a stream
 * cannot be queried, returns its error. */
typedef ceclResult_t (*cecl_count_busy_fn)(struct cecl_device *dev, size_t *busy);

/* Polls until no stream is busy; returns count_busy's last result. ceclTimeout at `deadline`. */
ceclResult_t cecl_drain(struct cecl_device *dev, cecl_count_busy_fn count_busy, int64_t deadline);

#endif
