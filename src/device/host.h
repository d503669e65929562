/* Shared by the files of the host device. Ranks may be processes or threads. Memory is memfd pages;
 * a stream is a thread. */
#ifndef CECL_DEVICE_HOST_H
#define CECL_DEVICE_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/ops.h"

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

CECL_DEVICE_OPS(CECL_DEVICE_OP_DECLARED, host)
CECL_DEVICE_OP_DECLARED(host, check_uses)
CECL_DEVICE_OP_DECLARED(host, call)
CECL_DEVICE_OP_DECLARED(host, words_overwrite)

/* host_memory.c. Whether the first and the last byte of a range can be read. */
bool host_ends_readable(const void *ptr, size_t bytes);

/* host_words.c: words that streams write and wait for, across processes. */
/* Wakes the threads that sleep in host_word_wait, so that they look at the word again. */
void host_word_wake(const uint32_t *word);
void host_word_write(uint32_t *word, uint32_t value); /* also wakes those threads */
void host_word_copy(uint32_t *dst, const void *src);  /* `src` may be unaligned */
/* Waits until the wait of this kind is over, or *abandon. */
void host_word_wait(const uint32_t *word, uint32_t value, enum cecl_memop_kind kind,
                    const _Atomic bool *abandon);

/* host_stream.c */
/* Ends every stream of the device. Waits for flags are abandoned. */
void host_streams_end(struct host_device *host);
/* Number of entries that a stream's queue can hold. For tests. */
size_t host_stream_capacity(ceclStream_t stream);

#endif
