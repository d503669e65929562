/* The list of operations of devices. Internal to src/device. */
#ifndef CECL_DEVICE_OPS_H
#define CECL_DEVICE_OPS_H

#include "device/device.h"

/* Few operations need all the arguments that all devices get. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* The operations that every device has: cuda_close, host_close and so on. The list declares them, and fills in
 * the tables of both devices. */
#define CECL_DEVICE_OPS(OP, prefix)                                                                \
    OP(prefix, close)                                                                              \
    OP(prefix, reserve)                                                                            \
    OP(prefix, unreserve)                                                                          \
    OP(prefix, mem_create)                                                                         \
    OP(prefix, mem_export)                                                                         \
    OP(prefix, mem_import)                                                                         \
    OP(prefix, mem_map)                                                                            \
    OP(prefix, mem_unmap)                                                                          \
    OP(prefix, mem_release)                                                                        \
    OP(prefix, mem_set)                                                                            \
    OP(prefix, words_alloc)                                                                        \
    OP(prefix, words_free)                                                                         \
    OP(prefix, host_share)                                                                         \
    OP(prefix, host_unshare)                                                                       \
    OP(prefix, host_write)                                                                         \
    OP(prefix, host_set_bits)                                                                      \
    OP(prefix, check_pointer)                                                                      \
    OP(prefix, region_find)                                                                        \
    OP(prefix, region_id)                                                                          \
    OP(prefix, region_export)                                                                      \
    OP(prefix, region_import)                                                                      \
    OP(prefix, region_access)                                                                      \
    OP(prefix, region_close)                                                                       \
    OP(prefix, stream_create)                                                                      \
    OP(prefix, stream_destroy)                                                                     \
    OP(prefix, stream_synchronize)                                                                 \
    OP(prefix, stream_query)                                                                       \
    OP(prefix, streams_drain)                                                                      \
    OP(prefix, quiet)                                                                              \
    OP(prefix, stream_check)                                                                       \
    OP(prefix, stream_fork)                                                                        \
    OP(prefix, stream_join)                                                                        \
    OP(prefix, event_create)                                                                       \
    OP(prefix, event_destroy)                                                                      \
    OP(prefix, event_record)                                                                       \
    OP(prefix, event_wait)                                                                         \
    OP(prefix, event_query)                                                                        \
    OP(prefix, order_begin)                                                                        \
    OP(prefix, order_end)                                                                          \
    OP(prefix, graph_keep)                                                                         \
    OP(prefix, capture_begin)                                                                      \
    OP(prefix, capture_end)                                                                        \
    OP(prefix, graph_launch)                                                                       \
    OP(prefix, graph_destroy)                                                                      \
    OP(prefix, copies)                                                                             \
    OP(prefix, row_copies)                                                                         \
    OP(prefix, memops)                                                                             \
    OP(prefix, reduce)                                                                             \
    OP(prefix, small)                                                                              \
    OP(prefix, splits)                                                                             \
    OP(prefix, sum_rows)                                                                           \
    OP(prefix, stream_after)                                                                       \
    OP(prefix, memcpy_async)                                                                       \
    OP(prefix, words_release)                                                                      \
    OP(prefix, words_read)                                                                         \
    OP(prefix, within)                                                                             \
    OP(prefix, stream_id)
#define CECL_DEVICE_OP_DECLARED(prefix, name)                                                      \
    __typeof__(*((const struct cecl_device_ops *)0)->name) prefix##_##name;
#define CECL_DEVICE_OP_ENTRY(prefix, name) .name = prefix##_##name,

/* -- drain.c: the wait with a deadline for a device's own streams, for all devices -- */

/* Counts the device's own streams that hold unfinished work. *busy is always written. A stream that
 * cannot be queried is not counted, and its error is returned. */
typedef ceclResult_t (*cecl_count_busy_fn)(struct cecl_device *dev, size_t *busy);

/* Polls until no stream is busy, and returns the last answer. ceclTimeout past `deadline`. */
ceclResult_t cecl_drain(struct cecl_device *dev, cecl_count_busy_fn count_busy, int64_t deadline);

#endif
