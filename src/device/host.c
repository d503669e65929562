/* The host device: it behaves as device.h demands of a GPU, with shared memory and threads. */
#include "device/host_work.h"

#include <stdlib.h>
#include <unistd.h>

static void host_close(struct cecl_device *dev)
{
    struct host_device *host = host_of(dev);
    host_streams_end(host);
    pthread_mutex_destroy(&host->lock);
    pthread_mutex_destroy(&host->order_lock);
    free(host);
}

/* No copy on this device needs an SM. It says so only if `always` is true, so that by default tests have the
 * plans of today's GPUs. */
static ceclResult_t host_local_copies(struct cecl_device *dev, void *room, size_t bytes,
                                      bool always, uint32_t *ways)
{
    (void)dev;
    (void)room;
    *ways = always && bytes >= CECL_LOCAL_ROOM ? CECL_LOCAL_CONTIGUOUS | CECL_LOCAL_ROWS : 0;
    return ceclSuccess;
}

static ceclResult_t host_within(struct cecl_device *dev, ceclResult_t (*function)(void *context),
                                void *context)
{
    (void)dev;
    return function(context);
}

static const struct cecl_device_ops host_ops = {
    .close = host_close,
    .reserve = host_reserve,
    .unreserve = host_unreserve,
    .mem_create = host_mem_create,
    .mem_export = host_mem_export,
    .mem_import = host_mem_import,
    .mem_map = host_mem_map,
    .mem_unmap = host_mem_unmap,
    .mem_release = host_mem_release,
    .mem_set = host_mem_set,
    .words_alloc = host_words_alloc,
    .words_free = host_words_free,
    .host_share = host_host_share,
    .host_unshare = host_host_unshare,
    .host_write = host_host_write,
    .check_pointer = host_check_pointer,
    .region_find = host_region_find,
    .region_id = host_region_id,
    .check_uses = host_check_uses,
    .region_export = host_region_export,
    .region_import = host_region_import,
    .region_access = host_region_access,
    .region_close = host_region_close,
    .stream_create = host_stream_create,
    .stream_create_urgent = host_stream_create,
    .stream_destroy = host_stream_destroy,
    .stream_synchronize = host_stream_synchronize,
    .stream_query = host_stream_query,
    .streams_drain = host_streams_drain,
    .stream_check = host_stream_check,
    .stream_fork = host_stream_fork,
    .stream_join = host_stream_join,
    .copies = host_copies,
    .row_copies = host_row_copies,
    .memops = host_memops,
    .reduce = host_reduce,
    .small = host_small,
    .call = host_call,
    .splits = host_splits,
    .sum_rows = host_sum_rows,
    .stream_after = host_stream_after,
    .memcpy_async = host_memcpy_async,
    .words_release = host_words_release,
    .words_overwrite = host_words_overwrite,
    .words_read = host_words_read,
    .local_copies = host_local_copies,
    .within = host_within,
    .stream_id = host_stream_id,
};

ceclResult_t cecl_host_open(struct cecl_device **dev)
{
    struct host_device *host = calloc(1, sizeof(*host));
    ceclStream_t standard;
    if (!host)
        return cecl_fail(ceclOutOfMemory, "no host memory for a device");
    const long page = sysconf(_SC_PAGESIZE);
    host->base = (struct cecl_device){.ops = &host_ops,
                                      .captures = &host_capture_ops,
                                      .kind = CECL_KIND_HOST,
                                      .ordinal = -1,
                                      .granularity = page > 4096 ? (size_t)page : 4096,
                                      .has_small = true};
    pthread_mutex_init(&host->lock, NULL);
    pthread_mutex_init(&host->order_lock, NULL);
    ceclResult_t result = host_stream_create(&host->base, &standard);
    if (result != ceclSuccess) {
        host_close(&host->base);
        return result;
    }
    host->standard = (struct host_stream *)standard;
    *dev = &host->base;
    return ceclSuccess;
}
