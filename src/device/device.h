/* A device as a table of functions: for memory that peers can map, streams, copies, and flag words that streams write
 * and await.
 *
 * Two devices implement it: cuda.c (a GPU) and host.c (shared memory and threads). A device knows nothing of ranks,
 * collectives or plans. Its reductions, small calls and splits are those of src/sm. One cecl_device serves one rank;
 * ranks may be threads of one process.
 *
 * Which thread may call what: docs/architecture.md, "Threads". */
#ifndef CECL_DEVICE_DEVICE_H
#define CECL_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sm/reduce.h"
#include "sm/small.h"
#include "sm/splits.h"
#include "sm/sums.h"
#include "util/error.h"

struct cecl_device;

enum cecl_device_kind { CECL_KIND_CUDA, CECL_KIND_HOST };

/* Physical memory, created here or imported from a peer. All zero means none. */
struct cecl_mem {
    uint64_t handle; /* CUDA: CUmemGenericAllocationHandle; host: file descriptor + 1 */
    size_t bytes;    /* a multiple of the granularity */
};

/* How a region is shared. */
enum cecl_region_kind {
    CECL_REGION_NONE, /* not at all */
    /* by a handle of the whole region; the importer's driver chooses the address */
    CECL_REGION_HANDLE,
    /* by a descriptor; the importer maps the region into a reservation, at an address that it chooses */
    CECL_REGION_FILE
};

/* Memory that the program allocated itself, outside cecl's pool, and that is shared as one piece: one allocation, the
 * memory of one handle, or one mapping of a file. */
struct cecl_region {
    uint64_t base, bytes; /* in this process */
    /* The range of addresses in which this region and others may lie. For mapped CUDA memory it is the whole
     * reservation, of which only a small part may be mapped; otherwise it is the region. */
    uint64_t home, home_bytes;
    uint64_t id;   /* what region_id returns in this process; not 0 if the region can be shared */
    uint32_t kind; /* enum cecl_region_kind */
};

/* What a peer needs to import a region. Plain data, except `fd`, which must be sent as a descriptor. */
struct cecl_region_export {
    uint32_t kind;            /* enum cecl_region_kind */
    int32_t ordinal;          /* the exporter's device, as its process numbers devices */
    uint64_t process;         /* the exporter's cecl_fork_process */
    uint64_t base, bytes;     /* the region's addresses in the exporter's process */
    uint64_t id;              /* what the exporter's region_id returns */
    uint64_t stamp;           /* set by the registry; see alloc/registry_process.c */
    uint64_t offset;          /* FILE: where the region begins in the file; 0 on CUDA */
    unsigned char handle[64]; /* HANDLE */
    int fd;                   /* FILE: a descriptor, which the exporter closes; otherwise -1 */
};

/* Bytes of a buffer that a call uses, including those between its blocks. */
struct cecl_use {
    const char *name;    /* the argument's name, for messages */
    const void *buffer;  /* as the caller passed it */
    uint64_t low, high;  /* addresses: bytes [low, high); low < high */
    bool written, ahead; /* ahead: peers open new memory before a call needs it */
};
#define CECL_USES 16 /* the most uses of one call */

/* Copies issued together, without order among themselves. The arrays belong to the caller. */
struct cecl_batch {
    void **dst;
    void **src;
    size_t *bytes;
    size_t count;
    bool captured; /* the stream captures a graph */
};

/* A copy of rows of `width` bytes. Pitches are the bytes from one row's start to the next, `width` at least. */
struct cecl_row_copy {
    void *dst, *src;
    size_t width, rows; /* rows >= 1 */
    size_t dst_pitch, src_pitch;
};
/* CUDA's largest pitch in bytes (cudaDevAttrMaxPitch). */
#define CECL_PITCH_MAX 2147483647u

/* A stream operation on a 32-bit word. */
enum cecl_memop_kind {
    /* writes *addr = value. Earlier work of the stream becomes visible system-wide before the word */
    CECL_MEMOP_WRITE,
    CECL_MEMOP_WAIT,     /* holds the stream until (int32_t)(*addr - value) >= 0 */
    CECL_MEMOP_WAIT_ANY, /* holds the stream until (*addr & value) != 0 */
    CECL_MEMOP_WAIT_SAME /* holds the stream until *addr == value */
};
struct cecl_memop {
    /* WRITE: memory of this device or of a peer, or host memory that the device can address. Waits: memory of this
     * device, or such host memory. */
    uint32_t *addr;
    uint32_t value;
    uint32_t kind;
};

/* What a stream captures. */
struct cecl_capture {
    uint64_t id; /* not used by any other capture of this process; 0: the stream captures nothing */
    void *graph; /* the device's own graph handle */
};

/* Orders launches of graphs, among themselves and with work that is not captured. The caller makes both events. For
 * work that is not captured, the caller itself waits for `event` and records it. */
struct cecl_order {
    ceclEvent_t event; /* marks the end of the latest launch */
    /* CUDA: all record nodes of a graph but the last one record this event, for which no stream waits */
    ceclEvent_t spare;
    /* -- used by the device only -- */
    uint64_t capture; /* the last capture for which order_begin was called */
    uintptr_t end;    /* CUDA: the last record of that capture; 0: none yet */
};

struct cecl_device_ops {
    /* Closes the device and ends its streams, without waiting for their work. See streams_drain. */
    void (*close)(struct cecl_device *dev);

    /* -- memory. Addresses and sizes are multiples of dev->granularity. -- */

    /* Reserves an address range, with no memory behind it yet. */
    ceclResult_t (*reserve)(struct cecl_device *dev, size_t bytes, void **base);
    void (*unreserve)(struct cecl_device *dev, void *base, size_t bytes);
    /* Creates physical memory of this device that can be shared. ceclOutOfMemory: too little is left. */
    ceclResult_t (*mem_create)(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem);
    /* Makes a descriptor for `mem` that can be sent to a peer. The caller closes it. */
    ceclResult_t (*mem_export)(struct cecl_device *dev, const struct cecl_mem *mem, int *fd);
    /* Opens the memory of a peer that `fd` describes. The caller keeps `fd`. */
    ceclResult_t (*mem_import)(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem);
    /* Maps `mem` at `addr`, inside a reservation, readable and writable by this device. The mapping
     * stays after mem_release. */
    ceclResult_t (*mem_map)(struct cecl_device *dev, void *addr, const struct cecl_mem *mem);
    void (*mem_unmap)(struct cecl_device *dev, void *addr, size_t bytes);
    /* Releases the handle and zeroes *mem, which may be zeroed already. */
    void (*mem_release)(struct cecl_device *dev, struct cecl_mem *mem);
    /* Sets `bytes` bytes to `value`, and waits until that is done. `addr` is mapped memory of this rank. */
    ceclResult_t (*mem_set)(struct cecl_device *dev, void *addr, int value, size_t bytes);
    /* Allocates zeroed words that host code and streams (memops) of this process both read and write. */
    ceclResult_t (*words_alloc)(struct cecl_device *dev, size_t count, uint32_t **words);
    void (*words_free)(struct cecl_device *dev, uint32_t *words);
    /* Lets this device's copies, words and kernels use whole pages of host memory, at the same
     * address as the host. Other processes may share these pages. */
    ceclResult_t (*host_share)(struct cecl_device *dev, void *addr, size_t bytes);
    void (*host_unshare)(struct cecl_device *dev, void *addr, size_t bytes);
    /* Writes `value` to `count` words in memory of host_share or words_alloc, so that streams and
     * kernels that wait for these words continue. Does not use the driver, so it never waits. */
    void (*host_write)(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value);
    /* Sets bits of one such word, and keeps the other bits, even if streams change them meanwhile. */
    void (*host_set_bits)(struct cecl_device *dev, uint32_t *word, uint32_t bits);
    /* Refuses memory that this device's copies cannot reach. On CUDA that is plain host memory, another GPU's memory
     * and NULL; on the host it is NULL, ranges that wrap around, and ranges whose first or last byte this process
     * cannot read. `name` is the argument's name, for the message. */
    ceclResult_t (*check_pointer)(struct cecl_device *dev, const void *ptr, size_t bytes,
                                  const char *name);

    /* -- memory that the program allocated itself, outside cecl's pool. It may lie at any address: only region_import
     * needs multiples of the granularity. -- */

    /* Finds the region that holds the byte at `ptr`. For memory that copies can use but that cannot be shared with
     * peers, returns ceclSuccess and the kind NONE. On CUDA that is memory of stream-ordered pools, and memory whose
     * handle cannot be exported as a file descriptor. On the host, only a shared mapping of a file can be shared: this
     * process must hold the file open for reading and writing, and the file must not be sealed against writing. A
     * shared mapping is one region, even if parts of it are unmapped or cannot be accessed. Refuses what check_pointer
     * refuses; messages call the argument "buffer". Takes several calls of the driver or the system. */
    ceclResult_t (*region_find)(struct cecl_device *dev, const void *ptr,
                                struct cecl_region *region);
    /* Sets *id to a number for the memory at `ptr`; 0 if there is no memory. While the id is unchanged, a region that
     * was found at `ptr` still holds the same memory. Memory that was freed and allocated again, or other memory that
     * was mapped there, has another id. Every call asks for ids; on CUDA that is cheap. Ids mean nothing in other
     * processes.
     *
     * use  the bytes of the region that a call uses; NULL: none. On the host the id stands for all
     *      of these bytes, and is 0 if they belong to several mappings. Bytes that check_uses
     *      refuses are refused here, too. Ignored on CUDA, where a region changes as a whole. */
    ceclResult_t (*region_id)(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                              uint64_t *id);
    /* Refuses bytes of a call if a copy of them would end the process by a signal: addresses without memory, memory
     * without access rights, mappings beyond the end of a file. `count` is CECL_USES at most. The operation is NULL on
     * CUDA, where such a copy returns an error. */
    ceclResult_t (*check_uses)(struct cecl_device *dev, const struct cecl_use *uses, size_t count);
    /* Makes what peers need to import `region`. ceclInvalidUsage: the region's kind is NONE, or its memory was freed
     * after region_find. The caller closes exported->fd. On CUDA the driver cuts small allocations out of blocks of 2
     * MiB, and the handle of such an allocation opens the whole block. */
    ceclResult_t (*region_export)(struct cecl_device *dev, const struct cecl_region *region,
                                  struct cecl_region_export *exported);
    /* Opens a region for this device, and sets *addr to this device's address of `exported->base`. A FILE can be used
     * only after region_access. The exporter may be this rank, another rank of this process, or a rank of another
     * process.
     *
     * at  FILE: the address, inside a reservation of `reserve` with nothing mapped there. The
     *     region keeps it until region_close. HANDLE: ignored
     *
     * ceclInProgress: this process still has an older HANDLE of the same exporter open, for memory
     * that lay at the same addresses. Close the older one first.
     *
     * If the exporter is in this process, a HANDLE is not opened: *addr is exported->base, and this GPU keeps its
     * access to the exporter's memory even after region_close. CUDA requires that the exporter frees a HANDLE's memory
     * only once all imports are closed; a FILE import keeps the memory alive. */
    ceclResult_t (*region_import)(struct cecl_device *dev,
                                  const struct cecl_region_export *exported, void *at, void **addr);
    /* Gives this device access to FILE regions that were imported side by side. One call for many regions takes little
     * longer than for one. */
    ceclResult_t (*region_access)(struct cecl_device *dev, void *addr, size_t bytes);
    /* Undoes region_import, which returned `addr`. exported->fd is not used. On CUDA, closing a HANDLE waits for all
     * work of the GPU, even for work that is enqueued meanwhile, and holds up copies of other threads. So only threads
     * of the program call this, usually after `quiet`. */
    void (*region_close)(struct cecl_device *dev, const struct cecl_region_export *exported,
                         void *addr);

    /* -- streams -- */

    /* urgent: for cecl's own use; the stream's kernels get free SMs before kernels of other streams. */
    ceclResult_t (*stream_create)(struct cecl_device *dev, bool urgent, ceclStream_t *stream);
    ceclResult_t (*stream_destroy)(struct cecl_device *dev, ceclStream_t stream);
    ceclResult_t (*stream_synchronize)(struct cecl_device *dev, ceclStream_t stream);
    /* Returns ceclSuccess if all work on the stream is done, otherwise ceclInProgress. */
    ceclResult_t (*stream_query)(struct cecl_device *dev, ceclStream_t stream);
    /* Waits until all work on the device's own streams is done: those of stream_create that were not destroyed, and
     * internal ones; on the host also the default stream. Nothing may be enqueued meanwhile. ceclTimeout at `deadline`
     * (util/clock.h). If a stream cannot be queried, returns its error once the other streams are done. */
    ceclResult_t (*streams_drain)(struct cecl_device *dev, int64_t deadline);
    /* Waits until all work is done that this process had enqueued on the GPU when it called `quiet`. Holds up no other
     * thread. To be called before region_close, which would itself wait for this work, and hold up other threads
     * meanwhile. On the host device neither region_close nor `quiet` waits.
     *
     * go_on  called at least once in two ms; false ends the wait
     *
     * ceclInProgress: `go_on` has ended the wait. After any other error it is unknown whether the work is done, for
     * example because a stream captures. On CUDA this call invalidates another thread's capture on a non-blocking stream
     * that stream_create did not make. So only threads of the program call it, and only to close memory. */
    ceclResult_t (*quiet)(struct cecl_device *dev, bool (*go_on)(void *context), void *context);
    /* Refuses a stream that was destroyed or belongs to another device, and a capture that is broken. Enqueues nothing.
     *
     * capture  [out] what the stream captures; NULL: a stream that captures is refused, too */
    ceclResult_t (*stream_check)(struct cecl_device *dev, ceclStream_t stream,
                                 struct cecl_capture *capture);
    /* Finds the stream to which work for the caller's `stream` goes. That is `stream` itself or, if `stream` takes no
     * batches (CUDA's legacy default stream), an internal stream that is forked from it. stream_check must have found
     * that `stream` is valid and captures nothing. Call stream_join after every success, even if work in between
     * failed. */
    ceclResult_t (*stream_fork)(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work);
    ceclResult_t (*stream_join)(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work);

    /* -- events. On CUDA they are the driver's, so they may also be the program's own. The stream must have passed
     * stream_check. The host device refuses these operations on streams that capture, and for destroyed events. -- */

    ceclResult_t (*event_create)(struct cecl_device *dev, ceclEvent_t *event);
    ceclResult_t (*event_destroy)(struct cecl_device *dev, ceclEvent_t event);
    /* The event marks this point of the stream from now on. */
    ceclResult_t (*event_record)(struct cecl_device *dev, ceclEvent_t event, ceclStream_t stream);
    /* The stream waits for what the event marks now. An event that was never recorded marks nothing. */
    ceclResult_t (*event_wait)(struct cecl_device *dev, ceclStream_t stream, ceclEvent_t event);
    /* Returns ceclSuccess if all that the event marks is done, otherwise ceclInProgress. */
    ceclResult_t (*event_query)(struct cecl_device *dev, ceclEvent_t event);

    /* -- graphs: work that a stream captures, and that is launched any number of times. The operations below that put
     * work on a stream are captured, too, in order; `copies` and `row_copies` must be told that the stream captures.
     *
     *     stream_check -> order_begin -> memops, copies, reduce ... -> order_end -> graph_keep -- */

    /* In each launch of the graph, the work that is captured from here on waits for what the order's event marks at the
     * time of the launch. If the same capture has called order_end for this order before, that work also waits for all
     * that the stream of the last such call had captured before it. */
    ceclResult_t (*order_begin)(struct cecl_device *dev, struct cecl_order *order,
                                ceclStream_t stream, const struct cecl_capture *capture);
    /* Each launch of the graph records the order's event here, unless the same capture calls order_end for the
     * order again later. */
    ceclResult_t (*order_end)(struct cecl_device *dev, struct cecl_order *order,
                              ceclStream_t stream, const struct cecl_capture *capture);
    /* Calls gone(context) once the graph and all its clones and executable graphs are gone. The call may come
     * on any thread, and must neither use the device nor wait. */
    ceclResult_t (*graph_keep)(struct cecl_device *dev, const struct cecl_capture *capture,
                               void (*gone)(void *context), void *context);
    /* For ceclStreamBeginCapture and the functions that end, launch and destroy its graph. The program may also
     * capture by other functions, on any stream but the legacy default stream. */
    ceclResult_t (*capture_begin)(struct cecl_device *dev, ceclStream_t stream);
    /* *graph can be launched. The caller owns the graph, and may destroy it even after the device was closed. */
    ceclResult_t (*capture_end)(struct cecl_device *dev, ceclStream_t stream, void **graph);
    ceclResult_t (*graph_launch)(struct cecl_device *dev, void *graph, ceclStream_t stream);
    ceclResult_t (*graph_destroy)(void *graph);

    /* -- work on a stream. None of these functions waits. On the host device, `reduce`, `small`, `splits` and
     * `sum_rows` allocate memory; the others do so only while queues grow. The caller may reuse the arguments' arrays
     * as soon as the function returns. -- */

    ceclResult_t (*copies)(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_batch *batch);
    /* Issues copies of rows together, without order among them. captured: whether the stream captures a graph. */
    ceclResult_t (*row_copies)(struct cecl_device *dev, ceclStream_t work,
                               const struct cecl_row_copy *copies, size_t count, bool captured);
    /* One reduction (sm/reduce.h), already checked. It may have a meeting if dev->meets. */
    ceclResult_t (*reduce)(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_reduction *reduction);
    /* This rank's part of a small call (sm/small.h), already checked. Words, slots and buffers must stay valid until
     * the call is done. */
    ceclResult_t (*small)(struct cecl_device *dev, ceclStream_t work,
                          const struct cecl_small *small);
    /* A step of a call by splits on the device (sm/splits.h), already checked. Its memory must stay valid until the
     * call is done. */
    ceclResult_t (*splits)(struct cecl_device *dev, ceclStream_t work,
                           const struct cecl_splits *splits);
    /* Enqueues sums of rows (sm/sums.h), already checked, on any stream. */
    ceclResult_t (*sum_rows)(struct cecl_device *dev, ceclStream_t stream,
                             const struct cecl_row_sums *sums);
    /* `later` waits for all work that is enqueued on `earlier` now. */
    ceclResult_t (*stream_after)(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier);
    /* Executes `ops` in order. `count` has no limit: a device with a limit splits them. */
    ceclResult_t (*memops)(struct cecl_device *dev, ceclStream_t work, const struct cecl_memop *ops,
                           size_t count);
    /* One copy for users, between any device and host memory, on any stream. On the host device
     * both ranges are checked as check_pointer does, and they may overlap. */
    ceclResult_t (*memcpy_async)(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                                 ceclStream_t stream);

    /* Writes `value` to `count` words of this rank's device memory without waiting for enqueued work, so that streams
     * that wait for these words go on. On ceclSuccess the words are written. Waits only for these writes, some seconds
     * at most. On CUDA, a thread that frees memory holds up these writes only if waiting streams hold all hardware
     * queues. */
    ceclResult_t (*words_release)(struct cecl_device *dev, uint32_t *words, size_t count,
                                  uint32_t value);
    /* Reads `count` words of device memory, of this rank or mapped from a peer, by a copy that does not wait for
     * enqueued work. On CUDA the copy is held up while another thread frees memory, because freeing waits for enqueued
     * work. */
    ceclResult_t (*words_read)(struct cecl_device *dev, const uint32_t *words, size_t count,
                               uint32_t *out);
    /* Calls a function with this device as the thread's current device, for a library that works on
     * the current device. */
    ceclResult_t (*within)(struct cecl_device *dev, ceclResult_t (*function)(void *context),
                           void *context);
    /* An id that no other stream of this process has had. (CUDA reuses addresses of streams, but not ids.) 0 means
     * unknown: it equals no id, not even another 0. */
    uint64_t (*stream_id)(struct cecl_device *dev, ceclStream_t work);
};

/* The first field of each kind of device; cuda.h and host.h add fields to it. */
struct cecl_device {
    const struct cecl_device_ops *ops;
    enum cecl_device_kind kind;
    int ordinal;        /* CUDA ordinal; -1 on the host */
    size_t granularity; /* for reserve, mem_create and mem_map: bytes, a power of two */
    /* the device's reduction kernels send flags and wait for flags (sm/meeting.h) */
    bool meets;
};

/* What a rank tells its peers about the GPU that it would use. A zeroed struct counts as no usable GPU. */
struct cecl_gpu_id {
    uint8_t uuid[16];
    int32_t ordinal; /* -1 if there is no GPU at all */
    int32_t usable;  /* 1 if the GPU has every feature that cecl needs */
    uint64_t memory; /* its bytes */
};

/* Looks at GPU `which` (an ordinal or CECL_CUDA_DEVICE_..., where BY_RANK uses `rank` and makes the GPU current), and
 * keeps nothing open. If the driver, a GPU or a feature is missing, returns ceclSuccess with usable = 0 and the reason
 * in `why` [bytes]. */
ceclResult_t cecl_cuda_probe(int which, int rank, struct cecl_gpu_id *id, char *why, size_t bytes);
/* Opens GPU `ordinal`. */
ceclResult_t cecl_cuda_open(int ordinal, struct cecl_device **dev);
/* Whether this device's copies reach memory of the GPU with this uuid, which may be the device's own GPU. A GPU that
 * this process does not see counts as reachable; if that is wrong, mapping its memory fails later. */
bool cecl_cuda_reaches(struct cecl_device *dev, const uint8_t uuid[16]);

/* Opens a host device. */
ceclResult_t cecl_host_open(struct cecl_device **dev);
/* If both are host devices, `dev` uses the default stream of `parent` from now on, as two communicators on one GPU
 * share one. The default stream that `dev` had must have no work. */
void cecl_host_inherit(struct cecl_device *dev, const struct cecl_device *parent);

#endif
