/* Work that the host device enqueues on streams, or adds to the graph that a stream captures. */
#include <stdlib.h>
#include <string.h>

#include "device/host.h"

ceclResult_t host_copies(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_batch *batch)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, batch->count, &stream));
    /* Every other batch runs backwards, so that no plan can rely on an order of the copies in a batch. */
    const bool backwards = stream->batches++ % 2;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t i = backwards ? batch->count - 1 - n : n;
        host_add(stream, (struct work){.kind = WORK_COPY,
                                       .dst = batch->dst[i],
                                       .src = batch->src[i],
                                       .bytes = batch->bytes[i]});
    }
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

/* Ignores `captured`: a stream of this device knows whether it captures. */
ceclResult_t host_row_copies(struct cecl_device *dev, ceclStream_t handle,
                             const struct cecl_row_copy *copies, size_t count, bool captured)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, count, &stream));
    const bool backwards = stream->batches++ % 2; /* for the same reason as in host_copies */
    for (size_t n = 0; n < count; n++) {
        const struct cecl_row_copy *copy = &copies[backwards ? count - 1 - n : n];
        host_add(stream, (struct work){.kind = WORK_ROWS,
                                       .dst = copy->dst,
                                       .src = copy->src,
                                       .bytes = copy->width,
                                       .rows = copy->rows,
                                       .dst_pitch = copy->dst_pitch,
                                       .src_pitch = copy->src_pitch});
    }
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

static ceclResult_t add_one(struct cecl_device *dev, ceclStream_t handle, struct work work)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, 1, &stream));
    host_add(stream, work);
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

/* Enqueues work that does not fit into a queue entry. Takes over `own`: the stream frees it when
 * the work is done; on failure this function does. */
static ceclResult_t add_own(struct cecl_device *dev, ceclStream_t handle, enum work_kind kind,
                            void *own)
{
    const ceclResult_t result = add_one(dev, handle, (struct work){.kind = kind, .own = own});
    if (result != ceclSuccess)
        free(own);
    return result;
}

/* Copies the reduction to the heap, because the number of sources varies. */
ceclResult_t host_reduce(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_reduction *reduction)
{
    const size_t bytes = reduction->nsrc * sizeof(*reduction->src);
    struct cecl_reduction *own = malloc(sizeof(*own) + bytes);
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for a reduction of %u sources",
                         reduction->nsrc);
    *own = *reduction;
    own->src = memcpy(own + 1, reduction->src, bytes);
    return add_own(dev, handle, WORK_REDUCE, own);
}

/* Copies the small call to the heap, because it is several times as large as a queue entry. */
ceclResult_t host_small(struct cecl_device *dev, ceclStream_t handle,
                        const struct cecl_small *small)
{
    CECL_TRY(cecl_small_check(small));
    struct small_work *own = calloc(1, sizeof(*own));
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for a small collective");
    own->small = *small;
    if (small->meeting) {
        own->meeting = *small->meeting;
        own->small.meeting = &own->meeting;
    }
    if (small->counting) {
        own->counting = *small->counting;
        own->small.counting = &own->counting;
    }
    return add_own(dev, handle, WORK_SMALL, own);
}

/* Enqueues work with a copy of the `bytes` bytes that describe it. */
static ceclResult_t add_copy_of(struct cecl_device *dev, ceclStream_t handle, enum work_kind kind,
                                const void *described, size_t bytes)
{
    void *own = malloc(bytes);
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu bytes of a stream's work", bytes);
    return add_own(dev, handle, kind, memcpy(own, described, bytes));
}

ceclResult_t host_splits(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_splits *splits)
{
    return add_copy_of(dev, handle, WORK_SPLITS, splits, sizeof(*splits));
}

ceclResult_t host_sum_rows(struct cecl_device *dev, ceclStream_t handle,
                           const struct cecl_row_sums *sums)
{
    return add_copy_of(dev, handle, WORK_SUMS, sums, sizeof(*sums));
}

ceclResult_t host_memops(struct cecl_device *dev, ceclStream_t handle, const struct cecl_memop *ops,
                         size_t count)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, count, &stream));
    for (size_t i = 0; i < count; i++)
        host_add(stream,
                 (struct work){.kind = ops[i].kind == CECL_MEMOP_WRITE ? WORK_WRITE : WORK_WAIT,
                               .value = ops[i].value,
                               .dst = ops[i].addr,
                               .src = ops[i].addr,
                               .bytes = ops[i].kind});
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

ceclResult_t host_memcpy_async(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                               ceclStream_t handle)
{
    if (bytes == 0)
        return host_stream_check(dev, handle, NULL);
    CECL_TRY(host_check_pointer(dev, dst, bytes, "dst"));
    CECL_TRY(host_check_pointer(dev, src, bytes, "src"));
    return add_one(dev, handle,
                   (struct work){.kind = WORK_MOVE, .dst = dst, .src = src, .bytes = bytes});
}
