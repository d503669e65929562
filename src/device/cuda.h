/* Shared by the files of the CUDA device. */
#ifndef CECL_DEVICE_CUDA_H
#define CECL_DEVICE_CUDA_H

#include "device/ops.h"
#include "util/driver.h"

/* The words of `scratch`: first those to which words_read copies, then two that are only written. */
#define CUDA_SCRATCH_WORDS 1024
enum { CUDA_SCRATCH_TRIAL = CUDA_SCRATCH_WORDS, CUDA_SCRATCH_COPY, CUDA_SCRATCH_ALL };

struct cuda_device {
    struct cecl_device base;
    const struct cecl_driver *cu;
    CUdevice device;
    CUcontext context;     /* the primary context, retained */
    CUstream side;         /* for cecl's own copies, independent of callers' streams */
    CUstream release;      /* for words_release alone */
    CUstream legacy;       /* runs the work that callers put on the legacy default stream */
    CUevent order;         /* recorded on one stream, awaited on another */
    uint32_t *scratch;     /* pinned words: see CUDA_SCRATCH_... */
    bool rdma;             /* allocations can be made reachable for network cards */
    _Atomic bool unlanded; /* words_release gave up on writes that may still land at any time */
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

/* Calls the driver and turns its result into a ceclResult_t, with the call's name in the message. */
#define CUDA_CALL(cuda, function, ...) \
    cecl_driver_check((cuda)->cu, (cuda)->cu->function(__VA_ARGS__), #function)

/* The answer to a query: ceclInProgress if work is pending. */
static inline ceclResult_t cuda_answer(const struct cuda_device *cuda, CUresult state,
                                       const char *call)
{
    return state == CUDA_ERROR_NOT_READY ? ceclInProgress
                                         : cecl_driver_check(cuda->cu, state, call);
}

/* cuda_context.c. Makes the device's context current for this thread, unless it is already; cuda_leave undoes this. */
ceclResult_t cuda_enter(struct cuda_device *cuda, bool *pushed);
void cuda_leave(struct cuda_device *cuda, bool pushed);

/* Runs `expr` with the context current and stores its result. */
#define CUDA_WITHIN(cuda, result, expr) \
    do { \
        bool cuda_pushed_; \
        (result) = cuda_enter((cuda), &cuda_pushed_); \
        if ((result) == ceclSuccess) { \
            (result) = (expr); \
            cuda_leave((cuda), cuda_pushed_); \
        } \
    } while (0)

/* As CUDA_WITHIN, for calls that wait or query. While any thread captures a graph in the global mode, CUDA may refuse
 * such a call, and the call may invalidate the capture. So this thread is in the relaxed mode while `expr` runs. */
#define CUDA_BESIDE(cuda, result, expr) \
    do { \
        CUstreamCaptureMode cuda_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED; \
        (result) = CUDA_CALL((cuda), cuThreadExchangeStreamCaptureMode, &cuda_mode_); \
        if ((result) == ceclSuccess) { \
            CUDA_WITHIN((cuda), (result), (expr)); \
            (cuda)->cu->cuThreadExchangeStreamCaptureMode(&cuda_mode_); \
        } \
    } while (0)

/* The last statement of a device operation: defines `cuda`, which `expr` may use, and returns the result of `expr`. */
#define CUDA_RETURN_WITHIN(cuda, dev, expr) CUDA_RETURN_(CUDA_WITHIN, cuda, dev, expr)
#define CUDA_RETURN_BESIDE(cuda, dev, expr) CUDA_RETURN_(CUDA_BESIDE, cuda, dev, expr)
/* The last statement of an operation that returns nothing: drops an error of `expr`. */
#define CUDA_UNDO_BESIDE(cuda, dev, expr) \
    CUDA_OPERATION_(CUDA_BESIDE, cuda, dev, expr); \
    (void)cuda_result_
/* The first statement of an operation: defines `cuda`, and returns the error if `expr` fails. */
#define CUDA_TRY_BESIDE(cuda, dev, expr) \
    CUDA_OPERATION_(CUDA_BESIDE, cuda, dev, expr); \
    CECL_TRY(cuda_result_)
#define CUDA_RETURN_(within, cuda, dev, expr) \
    CUDA_OPERATION_(within, cuda, dev, expr); \
    return cuda_result_
#define CUDA_OPERATION_(within, cuda, dev, expr) \
    struct cuda_device *cuda = cuda_of(dev); \
    ceclResult_t cuda_result_; \
    within(cuda, cuda_result_, expr)

#define OP(name) CECL_DEVICE_OP_DECLARED(cuda, name)
#include "device/ops_list.h"

/* cuda_memory.c */
ceclResult_t cuda_granularity(struct cuda_device *cuda, size_t *bytes);
/* Lets this device read and write mapped memory. */
ceclResult_t cuda_access(struct cuda_device *cuda, CUdeviceptr at, size_t bytes);

/* cuda_own.c */
/* Refuses a stream that captures. Asks by a query that does not invalidate a capture. */
ceclResult_t cuda_refuse_capture(struct cuda_device *cuda, CUstream stream);
/* Destroys the streams that are left, without waiting. The caller has made the context current. Returns false if work
 * is pending on one of the streams. */
bool cuda_streams_end(struct cuda_device *cuda);

/* cuda_graph.c */
/* Copies on a stream that captures, for cuda_stream.c. */
ceclResult_t cuda_capture_copies(struct cecl_device *dev, ceclStream_t stream,
                                 const struct cecl_batch *batch);
ceclResult_t cuda_capture_rows(struct cecl_device *dev, ceclStream_t stream,
                               const struct cecl_row_copy *rows, size_t count);
/* Finds what a stream captures, for cuda_stream_check, which has made the context current. */
ceclResult_t cuda_read_capture(struct cuda_device *cuda, CUstream stream,
                               struct cecl_capture *capture);

#endif
