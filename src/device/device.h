/* What a device does: memory that peers can map, streams, copies, and flag words that streams write
 * and wait for.
 *
 * Two devices implement the table: cuda.c (a GPU) and host.c (shared memory and threads). A device
 * knows nothing of ranks,
 * collectives or plans; reductions are sm's. One cecl_device serves one rank; ranks may be threads of one process. Of
 * other folders only util is used.
 *
 * Threads: memory calls and stream creation come from one thread at a time; words_release and
 * stream_query may come from a
 * second thread (the watchdog) at any time. */
#ifndef CECL_DEVICE_DEVICE_H
#define CECL_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sm/reduce.h"
#include "sm/small.h"
#include "util/error.h"

struct cecl_device;

enum cecl_device_kind { CECL_KIND_CUDA, CECL_KIND_HOST };

/* Physical memory: created here or imported from a peer. All zero: none. */
struct cecl_mem {
    uint64_t handle; /* CUDA: CUmemGenericAllocationHandle; host: file descriptor + 1 */
    size_t bytes;    /* multiple of the granularity */
};

/* Copies issued together, in no order among themselves. The arrays belong to whoever filled them.
 * */
struct cecl_batch {
    void **dst;
    void **src;
    size_t *bytes;
    size_t count;
};

/* A copy of rows, each a pitch behind the one before; bytes. A pitch is `width` at least. */
struct cecl_row_copy {
    void *dst, *src;
    size_t width, rows; /* >= 1 */
    size_t dst_pitch, src_pitch;
};
/* Beyond this CUDA takes no pitch (cudaDevAttrMaxPitch). */
#define CECL_PITCH_MAX 2147483647u

/* Kinds of copies within the device that need no SM, or'ed. */
enum {
    CECL_LOCAL_CONTIGUOUS = 1, /* of `copies` */
    CECL_LOCAL_ROWS = 2        /* of `row_copies` */
};
#define CECL_LOCAL_ROOM 4096u /* bytes that it takes to try them, at least */

/* A stream operation on a 32-bit word. */
enum cecl_memop_kind {
    /* *addr = value; everything earlier in the stream is visible, system-wide, before the word is
     * */
    CECL_MEMOP_WRITE,
    CECL_MEMOP_WAIT /* holds the stream until (int32_t)(*addr - value) >= 0 */
};
struct cecl_memop {
    uint32_t *
        /* WRITE: own, peer-mapped or device-visible host memory; WAIT: own device or device-visible
         * host memory */
        addr;
    uint32_t value;
    uint32_t kind;
};

struct cecl_device_ops {
    /* Ends the device's streams too, without waiting for what a flag holds: see streams_drain. */
    void (*close)(struct cecl_device *dev);

    /* -- memory. Addresses and sizes are multiples of dev->granularity. -- */

    /* Reserves an address range; nothing is backed yet. */
    ceclResult_t (*reserve)(struct cecl_device *dev, size_t bytes, void **base);
    void (*unreserve)(struct cecl_device *dev, void *base, size_t bytes);
    /* Physical memory of this device, shareable. ceclOutOfMemory when there is none left. */
    ceclResult_t (*mem_create)(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem);
    /* A descriptor for `mem` that can be sent to a peer; the caller closes it. */
    ceclResult_t (*mem_export)(struct cecl_device *dev, const struct cecl_mem *mem, int *fd);
    /* The peer's memory behind `fd`. `fd` stays the caller's. */
    ceclResult_t (*mem_import)(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem);
    /* Maps at `addr`, inside a reservation, readable and writable by this device. The mapping
     * outlives mem_release. */
    ceclResult_t (*mem_map)(struct cecl_device *dev, void *addr, const struct cecl_mem *mem);
    void (*mem_unmap)(struct cecl_device *dev, void *addr, size_t bytes);
    /* Gives up the handle; a zeroed one is no effect. Zeroes it. */
    void (*mem_release)(struct cecl_device *dev, struct cecl_mem *mem);
    /* Sets bytes, and waits. `addr` is mapped memory of this rank. */
    ceclResult_t (*mem_set)(struct cecl_device *dev, void *addr, int value, size_t bytes);
    /* Words that both this process's host code and streams (memops) read and write. Zeroed. */
    ceclResult_t (*words_alloc)(struct cecl_device *dev, size_t count, uint32_t **words);
    void (*words_free)(struct cecl_device *dev, uint32_t *words);
    /* Refuses memory that this device's copies cannot reach: plain host memory or another GPU's on
     * CUDA, NULL anywhere; on the host a range that wraps around, or whose first or last byte
     * cannot be read. `name` is the argument's, for the message. */
    ceclResult_t (*check_pointer)(struct cecl_device *dev, const void *ptr, size_t bytes,
                                  const char *name);

    /* -- streams -- */

    ceclResult_t (*stream_create)(struct cecl_device *dev, ceclStream_t *stream);
    /* Likewise, for the device's own use: its kernels come before those of other streams that wait
     * for an SM. */
    ceclResult_t (*stream_create_urgent)(struct cecl_device *dev, ceclStream_t *stream);
    ceclResult_t (*stream_destroy)(struct cecl_device *dev, ceclStream_t stream);
    ceclResult_t (*stream_synchronize)(struct cecl_device *dev, ceclStream_t stream);
    /* ceclSuccess when all is done, ceclInProgress when not. */
    ceclResult_t (*stream_query)(struct cecl_device *dev, ceclStream_t stream);
    /* Waits until everything enqueued on the device's own streams is done: those of stream_create
     * that still live, and internal ones; on the host the default stream too. Nothing is enqueued
     * meanwhile. ceclTimeout past `deadline` (util/clock.h). A stream that cannot be asked counts
     * as done, and its error is the result once the others are. */
    ceclResult_t (*streams_drain)(struct cecl_device *dev, int64_t deadline);
    /* Refuses what stream_fork refuses (a stream that captures, was destroyed or is another
     * device's), and enqueues nothing. */
    ceclResult_t (*stream_check)(struct cecl_device *dev, ceclStream_t stream);
    /* Where work for the caller's `stream` is enqueued: itself, or an internal stream forked from
     * it where it cannot take
     * batches (CUDA's legacy default stream). Refuses a capturing stream with ceclInvalidUsage.
     * Every success is paired with
     * stream_join, on failure of the work between as well. */
    ceclResult_t (*stream_fork)(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work);
    ceclResult_t (*stream_join)(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work);

    /* -- work on a stream; no allocation, no waiting in these. What a call points to may be reused as
     * soon as it returns: a bound plan is filled with other values for the next call. -- */

    ceclResult_t (*copies)(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_batch *batch);
    /* Likewise copies of rows: issued together, in no order among themselves. */
    ceclResult_t (*row_copies)(struct cecl_device *dev, ceclStream_t work,
                               const struct cecl_row_copy *copies, size_t count);
    /* One reduction (sm/reduce.h), checked; with a meeting where dev->meets. What it points to may
     * be reused at once. */
    ceclResult_t (*reduce)(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_reduction *reduction);
    /* This rank's part of a small collective (sm/small.h), checked, where dev->has_small; else NULL.
     * What it points to may be reused at once, but for words, slots and buffers. */
    ceclResult_t (*small)(struct cecl_device *dev, ceclStream_t work,
                          const struct cecl_small *small);
    /* `later` goes on once `earlier` has done what is enqueued on it by now. */
    ceclResult_t (*stream_after)(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier);
    /* In order. Any count; a device with a limit splits. */
    ceclResult_t (*memops)(struct cecl_device *dev, ceclStream_t work, const struct cecl_memop *ops,
                           size_t count);
    /* One copy for users: any of device and host memory, any stream. On the host both ranges are
     * checked as check_pointer does, and may overlap. */
    ceclResult_t (*memcpy_async)(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                                 ceclStream_t stream);

    /* Writes `value` to `count` words of this rank's device memory beside everything enqueued, so
     * that streams held by waits on them go on. The words have landed when it returns: it waits
     * for these writes alone, which stand behind no flag. For the watchdog. */
    ceclResult_t (*words_release)(struct cecl_device *dev, uint32_t *words, size_t count,
                                  uint32_t value);
    /* Reads `count` words of own or peer-mapped device memory beside everything enqueued. Waits for
     * that copy alone. For the
     * watchdog and for init. */
    ceclResult_t (*words_read)(struct cecl_device *dev, const uint32_t *words, size_t count,
                               uint32_t *out);
    /* Finds which copies within this device need no SM: *ways. For init, once: `room` is memory of
     * this rank that nobody else uses meanwhile, and may be overwritten. Waits, within bounds.
     * always  false: only where it may be so, which is with drivers newer than CUDA 13.0, and not
     *         on the host; true: everywhere. The host has no SMs, and says yes.
     * CUDA: for some milliseconds a kernel holds all SMs. What goes wrong, and work of others that
     * keeps an SM, come to no; ceclTimeout where the GPU does not even end what was tried. */
    ceclResult_t (*local_copies)(struct cecl_device *dev, void *room, size_t bytes, bool always,
                                 uint32_t *ways);
    /* A number that no other stream of this process has had: addresses of streams are reused, ids
     * are not. 0: unknown; it equals no other id, 0 included. */
    uint64_t (*stream_id)(struct cecl_device *dev, ceclStream_t work);
};

/* The head of every device; cuda.c and host.c extend it. */
struct cecl_device {
    const struct cecl_device_ops *ops;
    enum cecl_device_kind kind;
    int ordinal;          /* CUDA ordinal; -1 on the host */
    size_t granularity;   /* of reserve, create, map: bytes, a power of two */
    uint64_t total_bytes; /* memory of the device; host: 0 */
    bool meets;     /* its kernels of reductions send flags and wait for them (sm/meeting.h) */
    bool has_small; /* it has ops->small */
};

/* What a rank tells its peers about the GPU it would take. All zero: none usable. */
struct cecl_gpu_id {
    uint8_t uuid[16];
    int32_t ordinal;
    int32_t usable; /* 1 if every feature needed is there */
};

/* Looks at GPU `which` (an ordinal or CECL_CUDA_DEVICE_...; `rank` for BY_RANK) without keeping
 * anything. Success with
 * usable = 0 and the reason in `why` [bytes] when there is no driver, no GPU or a feature is
 * missing; BY_RANK makes the GPU current. */
ceclResult_t cecl_cuda_probe(int which, int rank, struct cecl_gpu_id *id, char *why, size_t bytes);
/* Opens GPU `ordinal`. */
ceclResult_t cecl_cuda_open(int ordinal, struct cecl_device **dev);
/* Whether this device's copies reach memory of the GPU with this uuid (itself included). Unknown in
 * this process counts as reachable:
 * mapping will tell. */
bool cecl_cuda_reaches(struct cecl_device *dev, const uint8_t uuid[16]);

/* Opens a host device. */
ceclResult_t cecl_host_open(struct cecl_device **dev);

#endif
