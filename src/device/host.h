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
    /* the default stream, for NULL and CUDA's two handles of default streams. A communicator shares it with its
     * children, as communicators on one GPU do */
    struct host_stream *standard;
    uint64_t drained_at; /* the place in the default stream for which a drain waits */
};

static inline struct host_device *host_of(struct cecl_device *dev)
{
    return (struct host_device *)dev;
}

CECL_DEVICE_OPS(CECL_DEVICE_OP_DECLARED, host)
CECL_DEVICE_OP_DECLARED(host, check_uses)
CECL_DEVICE_OP_DECLARED(host, region_stays)
CECL_DEVICE_OP_DECLARED(host, call)
CECL_DEVICE_OP_DECLARED(host, words_overwrite)

/* host_memory.c. Whether the first and the last byte of a range can be read. */
bool host_ends_readable(const void *ptr, size_t bytes);

/* host_words.c: words that streams write and wait for, across processes. */
/* Wakes the threads that sleep in host_word_wait, so that they look at the word again. */
void host_word_wake(const uint32_t *word);
void host_word_write(uint32_t *word, uint32_t value); /* also wakes those threads */
void host_word_copy(uint32_t *dst, const void *src);  /* `src` may be unaligned */
void host_word_wait(const uint32_t *word, uint32_t value, enum cecl_memop_kind kind);

/* host_own.c */
ceclResult_t host_standard_open(struct host_device *host);
/* Ends every stream of the device, and does not wait: a stream that still holds work carries it out first. */
void host_streams_end(struct host_device *host);
/* host_stream.c. Number of entries that a stream's queue can hold. For tests. */
size_t host_stream_capacity(ceclStream_t stream);

#endif
