/* Shared by the files of the CUDA device. */
#ifndef CECL_DEVICE_CUDA_H
#define CECL_DEVICE_CUDA_H

#include <pthread.h>

#include "device/device.h"
#include "driver/driver.h"

/* `scratch` has words to which words_read copies, and two words that are only written. */
#define CUDA_SCRATCH_WORDS 1024
enum { CUDA_SCRATCH_TRIAL = CUDA_SCRATCH_WORDS, CUDA_SCRATCH_COPY, CUDA_SCRATCH_ALL };

/* A stream of stream_create that exists. The id tells this stream from a new stream at the same
 * address, which there may be if the caller destroyed this one with CUDA's function. */
struct cuda_stream {
    CUstream stream;
    unsigned long long id;
};

/* All streams of stream_create that exist. The lock is not held during a wait for a stream. */
struct cuda_own {
    pthread_mutex_t lock;
    struct cuda_stream *streams; /* [room], unordered */
    size_t count, room;
};

struct cuda_local;

struct cuda_device {
    struct cecl_device base;
    const struct cecl_driver *cu;
    CUdevice device;
    CUcontext context;        /* the primary context, retained */
    CUstream side;            /* cecl's own, independent of callers' streams */
    CUstream release;         /* for words_release alone */
    CUstream legacy;          /* runs the work that callers put on the legacy default stream */
    CUevent fork, join;       /* order `legacy` behind the caller's stream and back */
    CUevent order;            /* orders any two streams */
    uint32_t *scratch;        /* pinned words: see CUDA_SCRATCH_... */
    bool rdma;                /* allocations can be made reachable for network cards */
    _Atomic bool unlanded;    /* words_release gave up: its writes may still come at any time */
    bool stuck;               /* work of cecl's own has not ended: nothing may wait for the GPU */
    struct cuda_local *local; /* the words of cuda_local.c; NULL until they are needed */
    struct cuda_own own;
};

static inline struct cuda_device *cuda_of(struct cecl_device *dev)
{
    return (struct cuda_device *)dev;
}

static inline CUdeviceptr cuda_address(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

static inline bool cuda_is_legacy(ceclStream_t stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY;
}

/* Calls the driver and turns its result into a ceclResult_t, with the
 * call's name in the message. */
#define CUDA_CALL(cuda, function, ...)                                                             \
    cecl_driver_check((cuda)->cu, (cuda)->cu->function(__VA_ARGS__), #function)

/* cuda_context.c. Makes the device's context current for this thread, unless it is already;
 * cuda_leave undoes this. */
ceclResult_t cuda_enter(struct cuda_device *cuda, bool *pushed);
void cuda_leave(struct cuda_device *cuda, bool pushed);

/* Runs `expr` with the context current and stores its result. */
#define CUDA_WITHIN(cuda, result, expr)                                                            \
    do {                                                                                           \
        bool cuda_pushed_;                                                                         \
        (result) = cuda_enter((cuda), &cuda_pushed_);                                              \
        if ((result) == ceclSuccess) {                                                             \
            (result) = (expr);                                                                     \
            cuda_leave((cuda), cuda_pushed_);                                                      \
        }                                                                                          \
    } while (0)

/* CUDA_WITHIN for calls that wait or query. While any thread captures a graph in the global mode,
 * CUDA may refuse such a call, and the call may invalidate the capture. Calls of cecl's own are no
 * part of a capture, so the thread is in the relaxed mode while `expr` runs. */
#define CUDA_BESIDE(cuda, result, expr)                                                            \
    do {                                                                                           \
        CUstreamCaptureMode cuda_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;                           \
        (result) = CUDA_CALL((cuda), cuThreadExchangeStreamCaptureMode, &cuda_mode_);              \
        if ((result) == ceclSuccess) {                                                             \
            CUDA_WITHIN((cuda), (result), (expr));                                                 \
            (cuda)->cu->cuThreadExchangeStreamCaptureMode(&cuda_mode_);                            \
        }                                                                                          \
    } while (0)

/* cuda_memory.c */
ceclResult_t cuda_reserve(struct cecl_device *dev, size_t bytes, void **base);
void cuda_unreserve(struct cecl_device *dev, void *base, size_t bytes);
ceclResult_t cuda_mem_create(struct cecl_device *dev, size_t bytes, struct cecl_mem *mem);
ceclResult_t cuda_mem_export(struct cecl_device *dev, const struct cecl_mem *mem, int *fd);
ceclResult_t cuda_mem_import(struct cecl_device *dev, int fd, size_t bytes, struct cecl_mem *mem);
ceclResult_t cuda_mem_map(struct cecl_device *dev, void *addr, const struct cecl_mem *mem);
void cuda_mem_unmap(struct cecl_device *dev, void *addr, size_t bytes);
void cuda_mem_release(struct cecl_device *dev, struct cecl_mem *mem);
ceclResult_t cuda_mem_set(struct cecl_device *dev, void *addr, int value, size_t bytes);
ceclResult_t cuda_granularity(struct cuda_device *cuda, size_t *bytes);
ceclResult_t cuda_words_alloc(struct cecl_device *dev, size_t count, uint32_t **words);
void cuda_words_free(struct cecl_device *dev, uint32_t *words);
ceclResult_t cuda_host_share(struct cecl_device *dev, void *addr, size_t bytes);
void cuda_host_unshare(struct cecl_device *dev, void *addr, size_t bytes);
void cuda_host_write(struct cecl_device *dev, uint32_t *words, size_t count, uint32_t value);
ceclResult_t cuda_words_release(struct cecl_device *dev, uint32_t *words, size_t count,
                                uint32_t value);
ceclResult_t cuda_words_read(struct cecl_device *dev, const uint32_t *words, size_t count,
                             uint32_t *out);

/* cuda_local.c */
ceclResult_t cuda_local_copies(struct cecl_device *dev, void *room, size_t bytes, bool always,
                               uint32_t *ways);

/* cuda_pointer.c */
ceclResult_t cuda_check_pointer(struct cecl_device *dev, const void *ptr, size_t bytes,
                                const char *name);

/* cuda_region.c */
ceclResult_t cuda_region_find(struct cecl_device *dev, const void *ptr, struct cecl_region *region);
ceclResult_t cuda_region_id(struct cecl_device *dev, const void *ptr, const struct cecl_use *use,
                            uint64_t *id);
ceclResult_t cuda_region_export(struct cecl_device *dev, const struct cecl_region *region,
                                struct cecl_region_export *exported);
ceclResult_t cuda_region_access(struct cecl_device *dev, void *addr, size_t bytes);
ceclResult_t cuda_region_import(struct cecl_device *dev, const struct cecl_region_export *exported,
                                void *at, void **addr);
void cuda_region_close(struct cecl_device *dev, const struct cecl_region_export *exported,
                       void *addr);

/* cuda_own.c */
ceclResult_t cuda_stream_create(struct cecl_device *dev, ceclStream_t *stream);
ceclResult_t cuda_stream_create_urgent(struct cecl_device *dev, ceclStream_t *stream);
ceclResult_t cuda_stream_destroy(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t cuda_streams_drain(struct cecl_device *dev, int64_t deadline);
/* Refuses a stream that captures. This is the only query that does not invalidate a capture. */
ceclResult_t cuda_refuse_capture(struct cuda_device *cuda, CUstream stream);
/* Destroys the streams that are left, without waiting. The context is current. Returns false when
 * work is pending on one of them. */
bool cuda_streams_end(struct cuda_device *cuda);

/* cuda_capture.c */
extern const struct cecl_capture_ops cuda_capture_ops;

/* cuda_stream.c */
ceclResult_t cuda_stream_synchronize(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t cuda_stream_query(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t cuda_stream_check(struct cecl_device *dev, ceclStream_t stream);
ceclResult_t cuda_stream_fork(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work);
ceclResult_t cuda_stream_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work);
ceclResult_t cuda_within(struct cecl_device *dev, ceclResult_t (*function)(void *context),
                         void *context);
uint64_t cuda_stream_id(struct cecl_device *dev, ceclStream_t work);
ceclResult_t cuda_reduce(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_reduction *reduction);
ceclResult_t cuda_sum_rows(struct cecl_device *dev, ceclStream_t stream,
                           const struct cecl_row_sums *sums);
ceclResult_t cuda_splits(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_splits *splits);
ceclResult_t cuda_small(struct cecl_device *dev, ceclStream_t work, const struct cecl_small *small);
ceclResult_t cuda_stream_after(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier);
ceclResult_t cuda_row_copies(struct cecl_device *dev, ceclStream_t work,
                             const struct cecl_row_copy *copies, size_t count);
ceclResult_t cuda_copies(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_batch *batch);
ceclResult_t cuda_memops(struct cecl_device *dev, ceclStream_t work, const struct cecl_memop *ops,
                         size_t count);
ceclResult_t cuda_memcpy_async(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                               ceclStream_t stream);

#endif
