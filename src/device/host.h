/* Shared by the files of the host device. Ranks may be processes or threads. Memory is memfd pages;
 * a stream is a thread. */
#ifndef CECL_DEVICE_HOST_H
#define CECL_DEVICE_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

/* Reads /proc/PID/maps, the list of a process's mappings: most often this process's. Since Linux 6.11 the kernel answers questions about
 * single mappings, so only those that are needed are read. Allocates nothing, because calls look at the memory of
 * their buffers each time. */

/* A line of the file. The kernel splits a mapping into several lines where its parts differ, for
 * example in access rights, and joins equal neighbours. */
struct host_mapping {
    uint64_t start, end;
    uint64_t offset, inode; /* inode 0: memory of no file */
    unsigned major, minor;
    bool readable, writable, shared;
};

/* Takes one mapping. Returns whether to go on with the next one. */
typedef bool host_mapping_taker(void *context, const struct host_mapping *mapping);

/* Hands the mappings that end above `low` to `take`, in the order of addresses, until it has
 * enough. */
ceclResult_t host_maps_read(uint64_t low, host_mapping_taker *take, void *context);

/* The same for the mappings of the process `pid` of this namespace. */
ceclResult_t host_maps_read_of(int32_t pid, uint64_t low, host_mapping_taker *take, void *context);

/* As host_maps_read, from a lower address on: the kernel may have split the mapping that has the byte at `at` into lines, and
 * none of them comes before that address. */
ceclResult_t host_maps_read_around(uint64_t at, host_mapping_taker *take, void *context);

#endif
