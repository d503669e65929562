/* Shared by the files of the host device. Ranks may be processes or threads. Memory is memfd pages;
 * a stream is a thread. */
#ifndef CECL_DEVICE_HOST_H
#define CECL_DEVICE_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"

struct host_stream;

struct host_device {
    struct cecl_device base;
    pthread_mutex_t lock; /* guards the list of streams */
    /* held while work or a graph is enqueued that an event puts in order; taken before a stream's lock */
    pthread_mutex_t order_lock;
    struct host_stream *streams; /* all living streams, the default stream included */
    /* the default stream, for NULL and CUDA's two handles of default streams */
    struct host_stream *standard;
    _Atomic bool closing; /* the device is being closed: waits end */
};

static inline struct host_device *host_of(struct cecl_device *dev)
{
    return (struct host_device *)dev;
}

/* host_memory.c */
ceclResult_t host_reserve(struct cecl_device *dev, size_t bytes, void **base);
void host_unreserve(struct cecl_device *dev, void *base, size_t bytes);
ceclResult_t host_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem);
ceclResult_t host_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd);
ceclResult_t host_mem_import(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem);
ceclResult_t host_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem);
void host_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes);
void host_mem_release(struct cecl_device *dev, struct cecl_mem *mem);
ceclResult_t host_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes);
ceclResult_t host_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                const char *name);
/* Whether the first and the last byte of a range can be read. */
bool host_ends_readable(const void *ptr, size_t bytes);

ceclResult_t host_host_share(struct cecl_device *dev, void *addr, size_t bytes);
void host_host_unshare(struct cecl_device *dev, void *addr, size_t bytes);

/* host_region.c */
ceclResult_t host_region_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region);
ceclResult_t host_region_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id);
ceclResult_t host_check_uses(struct cecl_device *dev, const struct cecl_use *uses, size_t count);
ceclResult_t host_region_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported);
ceclResult_t host_region_access(struct cecl_device *dev, void *addr, size_t bytes);
ceclResult_t host_region_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr);
void host_region_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr);

/* host_words.c: words that streams write and wait for, across processes. */
ceclResult_t host_words_alloc(struct cecl_device *dev, size_t count, uint32_t **words);
void host_words_free(struct cecl_device *dev, uint32_t *words);
void host_host_write(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value);
ceclResult_t host_words_release(struct cecl_device *dev, uint32_t *words, size_t count,
                                uint32_t value);
ceclResult_t host_words_overwrite(struct cecl_device *dev, uint32_t *words, size_t count,
                                  uint32_t value);
ceclResult_t host_words_read(struct cecl_device *dev, const uint32_t *words, size_t count,
                             uint32_t *out);
/* Wakes the threads that sleep in host_word_wait, so that they look at the word again. */
void host_word_wake(const uint32_t *word);
void host_word_write(uint32_t *word, uint32_t value); /* also wakes those threads */
void host_word_copy(uint32_t *dst, const void *src);  /* `src` may be unaligned */
/* Waits until (int32_t)(*word - value) >= 0 or *abandon. */
void host_word_wait(const uint32_t *word, uint32_t value, const _Atomic bool *abandon);

/* host_stream.c */
ceclResult_t host_stream_create(struct cecl_device *dev, ceclStream_t *stream);
ceclResult_t host_stream_destroy(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t host_stream_synchronize(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t host_stream_query(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t host_streams_drain(struct cecl_device *dev, int64_t deadline);
ceclResult_t host_stream_check(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t host_stream_fork(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work);
ceclResult_t host_stream_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work);
uint64_t host_stream_id(struct cecl_device *dev, ceclStream_t work);
ceclResult_t host_reduce(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_reduction *reduction);
ceclResult_t host_sum_rows(struct cecl_device *dev, ceclStream_t stream,
                           const struct cecl_row_sums *sums);
ceclResult_t host_splits(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_splits *splits);
ceclResult_t host_small(struct cecl_device *dev, ceclStream_t work, const struct cecl_small *small);
ceclResult_t host_call(struct cecl_device *dev, ceclStream_t work, struct cecl_stream_call *call);
ceclResult_t host_stream_after(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier);
ceclResult_t host_row_copies(struct cecl_device *dev, ceclStream_t work,
                             const struct cecl_row_copy *copies, size_t count);
ceclResult_t host_copies(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_batch *batch);
ceclResult_t host_memops(struct cecl_device *dev, ceclStream_t work, const struct cecl_memop *ops,
                         size_t count);
ceclResult_t host_memcpy_async(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                               ceclStream_t stream);
/* Ends every stream of the device. Waits for flags are abandoned. */
void host_streams_end(struct host_device *host);
/* Number of entries that a stream's queue can hold. For tests. */
size_t host_stream_capacity(ceclStream_t stream);

#endif
