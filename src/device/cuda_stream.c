/* Work on streams of the CUDA device: batches of copies, and stream memory operations. cuda_own.c
 * has the device's own streams. */
#include <string.h>

#include "device/cuda.h"

#define MEMOPS_MAX 128 /* the most operations in one driver call: CUDA allows fewer than 256 */
/* the most copies of rows in one driver call; their descriptions are on the stack */
#define ROW_COPIES_MAX 64

/* If the stream captures, refuses before CUDA does, because CUDA's refusal would break the capture. */
static ceclResult_t synchronize(struct cuda_device *cuda, CUstream stream)
{
    if (!cuda_is_legacy(stream))
        CECL_TRY(cuda_refuse_capture(cuda, stream));
    return CUDA_CALL(cuda, cuStreamSynchronize, stream);
}

ceclResult_t cuda_stream_synchronize(struct cecl_device *dev, ceclStream_t stream)
{
    CUDA_RETURN_WITHIN(cuda, dev, synchronize(cuda, stream));
}

ceclResult_t cuda_stream_query(struct cecl_device *dev, ceclStream_t stream)
{
    CUDA_RETURN_BESIDE(cuda, dev,
                       cuda_answer(cuda, cuda->cu->cuStreamQuery(stream), "cuStreamQuery"));
}

/* ---- the stream to which a call's work goes. CUDA refuses batches on the legacy default stream ("invalid argument"),
 * so that stream's work runs on an internal stream between two events. */

/* Checks a caller's stream, and names what is wrong with it. For a valid stream this takes two look-ups in the
 * driver. */
static ceclResult_t check_stream(struct cuda_device *cuda, CUstream stream,
                                 struct cecl_capture *capture)
{
    struct cecl_capture found = {0};
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture)
        *capture = found;
    CUdevice device = cuda->device;
    CUresult asked = cuda->cu->cuStreamIsCapturing(stream, &status);

    if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        return cecl_fail(ceclInvalidUsage,
                         "stream %p: the legacy default stream cannot be used while a blocking "
                         "stream of GPU %d captures a graph; pass a stream of your own, made with "
                         "cudaStreamNonBlocking, or end that capture first",
                         (void *)stream, cuda->base.ordinal);
    if (asked == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) {
        CECL_TRY(cuda_read_capture(cuda, stream, &found));
        if (!capture)
            return cecl_fail(ceclInvalidUsage,
                             "stream %p: captures a graph, and this call cannot be captured",
                             (void *)stream);
        *capture = found;
        return ceclSuccess;
    }
    /* The default streams belong to the current context, which is ours, so they need no check. */
    if (asked == CUDA_SUCCESS && !cuda_is_legacy(stream) && stream != CU_STREAM_PER_THREAD)
        asked = cuda->cu->cuStreamGetDevice(stream, &device);
    if (asked == CUDA_ERROR_INVALID_HANDLE || asked == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return cecl_fail(ceclInvalidArgument, "stream %p: no stream of this process (destroyed?)",
                         (void *)stream);
    CECL_TRY(cecl_driver_check(cuda->cu, asked, "cuStreamIsCapturing or cuStreamGetDevice"));
    if (device != cuda->device)
        return cecl_fail(ceclInvalidArgument,
                         "stream %p: a stream of GPU %d; one of GPU %d is expected", (void *)stream,
                         device, cuda->base.ordinal);
    return ceclSuccess;
}

ceclResult_t cuda_stream_check(struct cecl_device *dev, ceclStream_t stream,
                               struct cecl_capture *capture)
{
    CUDA_RETURN_WITHIN(cuda, dev, check_stream(cuda, stream, capture));
}

static ceclResult_t order_streams(struct cuda_device *cuda, CUstream later, CUstream earlier)
{
    CECL_TRY(CUDA_CALL(cuda, cuEventRecord, cuda->order, earlier));
    return CUDA_CALL(cuda, cuStreamWaitEvent, later, cuda->order, 0);
}

ceclResult_t cuda_stream_after(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier)
{
    CUDA_RETURN_WITHIN(cuda, dev, order_streams(cuda, later, earlier));
}

ceclResult_t cuda_stream_fork(struct cecl_device *dev, ceclStream_t stream, ceclStream_t *work)
{
    ceclStream_t legacy = cuda_of(dev)->legacy;
    const bool forks = cuda_is_legacy(stream);
    if (forks)
        CECL_TRY(cuda_stream_after(dev, legacy, stream));
    *work = forks ? legacy : stream;
    return ceclSuccess;
}

ceclResult_t cuda_stream_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work)
{
    return work == stream ? ceclSuccess : cuda_stream_after(dev, stream, work);
}

/* Makes the context current, because each context has its own per-thread default stream. */
uint64_t cuda_stream_id(struct cecl_device *dev, ceclStream_t work)
{
    struct cuda_device *cuda = cuda_of(dev);
    unsigned long long id = 0;
    bool pushed;
    if (cuda_enter(cuda, &pushed) == ceclSuccess) {
        cuda->cu->cuStreamGetId(work, &id);
        cuda_leave(cuda, pushed);
    }
    return id;
}

/* ---- work on a stream */

ceclResult_t cuda_copies(struct cecl_device *dev, ceclStream_t work, const struct cecl_batch *batch)
{
    _Static_assert(sizeof(void *) == sizeof(CUdeviceptr), "a batch's pointers are device pointers");
    struct cuda_device *cuda = cuda_of(dev);
    const struct cecl_driver *cu = cuda->cu;
    CUdeviceptr *dst = (CUdeviceptr *)(void *)batch->dst, *src = (CUdeviceptr *)(void *)batch->src;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                     .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
    size_t first = 0, failed = 0;
    ceclResult_t result;
    if (batch->captured)
        return cuda_capture_copies(dev, work, batch);
    if (batch->count == 0) /* CUDA would refuse an empty batch */
        return ceclSuccess;
    CUDA_WITHIN(cuda, result,
                cecl_driver_check(cu,
                                  cu->batch_13000 /* the driver has one of two signatures */
                                      ? cu->batch_13000(dst, src, batch->bytes, batch->count,
                                                        &attributes, &first, 1, work)
                                      : cu->batch_12080(dst, src, batch->bytes, batch->count,
                                                        &attributes, &first, 1, &failed, work),
                                  "cuMemcpyBatchAsync"));
    return result;
}

/* An operand of a 3D copy that describes rows: elements of one byte, and one layer. */
static CUmemcpy3DOperand rows_at(void *address, size_t pitch, size_t rows)
{
    CUmemcpy3DOperand operand = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER};
    operand.op.ptr.ptr = cuda_address(address);
    operand.op.ptr.rowLength = pitch;
    operand.op.ptr.layerHeight = rows;
    return operand;
}

/* The driver has one of two signatures. */
static CUresult row_batch(const struct cecl_driver *cu, CUDA_MEMCPY3D_BATCH_OP *ops, size_t count,
                          CUstream stream)
{
    size_t failed = 0;
    return cu->batch_3d_13000 ? cu->batch_3d_13000(count, ops, 0, stream)
                              : cu->batch_3d_12080(count, ops, &failed, 0, stream);
}

static ceclResult_t issue_row_copies(struct cuda_device *cuda, CUstream stream,
                                     const struct cecl_row_copy *copies, size_t count)
{
    CUDA_MEMCPY3D_BATCH_OP ops[ROW_COPIES_MAX];
    while (count > 0) {
        const size_t n = count < ROW_COPIES_MAX ? count : ROW_COPIES_MAX;
        for (size_t i = 0; i < n; i++)
            ops[i] = (CUDA_MEMCPY3D_BATCH_OP){
                .src = rows_at(copies[i].src, copies[i].src_pitch, copies[i].rows),
                .dst = rows_at(copies[i].dst, copies[i].dst_pitch, copies[i].rows),
                .extent = {.width = copies[i].width, .height = copies[i].rows, .depth = 1},
                .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
        CECL_TRY(cecl_driver_check(cuda->cu, row_batch(cuda->cu, ops, n, stream),
                                   "cuMemcpy3DBatchAsync"));
        copies += n;
        count -= n;
    }
    return ceclSuccess;
}

ceclResult_t cuda_row_copies(struct cecl_device *dev, ceclStream_t work,
                             const struct cecl_row_copy *copies, size_t count, bool captured)
{
    if (captured)
        return cuda_capture_rows(dev, work, copies, count);
    CUDA_RETURN_WITHIN(cuda, dev, issue_row_copies(cuda, work, copies, count));
}

ceclResult_t cuda_reduce(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_reduction *reduction)
{
    CUDA_RETURN_WITHIN(cuda, dev, cecl_reduce_cuda(work, reduction));
}

ceclResult_t cuda_small(struct cecl_device *dev, ceclStream_t work, const struct cecl_small *small)
{
    CUDA_RETURN_WITHIN(cuda, dev, cecl_small_cuda(work, small));
}

ceclResult_t cuda_splits(struct cecl_device *dev, ceclStream_t work,
                         const struct cecl_splits *splits)
{
    CUDA_RETURN_WITHIN(cuda, dev, cecl_splits_cuda(work, splits));
}

ceclResult_t cuda_sum_rows(struct cecl_device *dev, ceclStream_t stream,
                           const struct cecl_row_sums *sums)
{
    CUDA_RETURN_WITHIN(cuda, dev, cecl_row_sums_cuda(stream, sums));
}

static void describe_wait(CUstreamBatchMemOpParams *params, const struct cecl_memop *op)
{
    static const unsigned flags[] = {/* GEQ compares modulo 2^32 */
                                     [CECL_MEMOP_WAIT] = CU_STREAM_WAIT_VALUE_GEQ,
                                     [CECL_MEMOP_WAIT_ANY] = CU_STREAM_WAIT_VALUE_AND,
                                     [CECL_MEMOP_WAIT_SAME] = CU_STREAM_WAIT_VALUE_EQ};
    params->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    params->waitValue.address = cuda_address(op->addr);
    params->waitValue.value = op->value;
    params->waitValue.flags = flags[op->kind];
}

/* Whether the first two operations write the two halves of one aligned word of 64 bits. */
static bool are_one_write(const struct cecl_memop *ops, size_t count)
{
    return count > 1 && ops[0].kind == CECL_MEMOP_WRITE && ops[1].kind == CECL_MEMOP_WRITE &&
           ops[0].addr != ops[1].addr &&
           (uintptr_t)ops[0].addr / sizeof(uint64_t) == (uintptr_t)ops[1].addr / sizeof(uint64_t);
}

/* Describes the first operation, which is a write; if it and the second one write the halves of one aligned word of 64
 * bits, describes both as one write, because each write takes 1.6 us. Returns how many operations it has described. The
 * default flags include a memory barrier, so peers see earlier copies before the word. */
static size_t describe_write(CUstreamBatchMemOpParams *params, const struct cecl_memop *ops,
                             size_t count)
{
    const bool both = are_one_write(ops, count);
    const struct cecl_memop *low = both && ops[1].addr < ops[0].addr ? &ops[1] : &ops[0],
                            *high = low == ops ? &ops[1] : &ops[0];
    params->writeValue.operation =
        both ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    params->writeValue.address = cuda_address(low->addr);
    params->writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    if (both)
        params->writeValue.value64 = (uint64_t)high->value << 32 | low->value;
    else
        params->writeValue.value = low->value;
    return both ? 2 : 1;
}

/* Returns how many entries of `params` are used. */
static unsigned describe_memops(CUstreamBatchMemOpParams *params, const struct cecl_memop *ops,
                                size_t count)
{
    unsigned used = 0;
    memset(params, 0, count * sizeof(params[0]));
    for (size_t i = 0; i < count; used++) {
        if (ops[i].kind == CECL_MEMOP_WRITE)
            i += describe_write(&params[used], &ops[i], count - i);
        else
            describe_wait(&params[used], &ops[i++]);
    }
    return used;
}

ceclResult_t cuda_memops(struct cecl_device *dev, ceclStream_t work, const struct cecl_memop *ops,
                         size_t count)
{
    struct cuda_device *cuda = cuda_of(dev);
    CUstreamBatchMemOpParams params[MEMOPS_MAX];
    ceclResult_t result = ceclSuccess;
    for (size_t first = 0; first < count && result == ceclSuccess; first += MEMOPS_MAX) {
        const size_t n = count - first < MEMOPS_MAX ? count - first : MEMOPS_MAX;
        const unsigned used = describe_memops(params, ops + first, n);
        CUDA_WITHIN(cuda, result, CUDA_CALL(cuda, cuStreamBatchMemOp, work, used, params, 0));
    }
    return result;
}

ceclResult_t cuda_memcpy_async(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                               ceclStream_t stream)
{
    CUDA_RETURN_WITHIN(
        cuda, dev,
        CUDA_CALL(cuda, cuMemcpyAsync, cuda_address(dst), cuda_address(src), bytes, stream));
}
