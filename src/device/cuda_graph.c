/* Events and graphs of CUDA: events of the driver, what the program's streams capture, and the events by which launches
 * of graphs run in order.
 *
 * CUDA refuses batches of copies on a stream that captures ("operation not permitted"), so each copy is a node of its
 * own. A batch of stream memory operations is one node. Waits for cecl's events, and records of them, are external
 * nodes: CUDA uses the event itself at each launch of the graph, and does not capture it as a dependency. Every result
 * of the driver is checked, because a refused copy would silently be missing from the graph. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"

/* ---- events */

/* Names what is wrong with the caller's event, as far as CUDA tells. */
static ceclResult_t check(struct cuda_device *cuda, CUresult result, CUevent event,
                          const char *call)
{
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return cecl_fail(ceclInvalidArgument,
                         "event %p: no event of this process and of GPU %d (destroyed?)",
                         (void *)event, cuda->base.ordinal);
    return cecl_driver_check(cuda->cu, result, call);
}

ceclResult_t cuda_event_create(struct cecl_device *dev, ceclEvent_t *event)
{
    CUDA_RETURN_BESIDE(cuda, dev, CUDA_CALL(cuda, cuEventCreate, event, CU_EVENT_DISABLE_TIMING));
}

ceclResult_t cuda_event_destroy(struct cecl_device *dev, ceclEvent_t event)
{
    CUDA_RETURN_BESIDE(cuda, dev,
                       check(cuda, cuda->cu->cuEventDestroy(event), event, "cuEventDestroy"));
}

ceclResult_t cuda_event_record(struct cecl_device *dev, ceclEvent_t event, ceclStream_t stream)
{
    CUDA_RETURN_WITHIN(cuda, dev,
                       check(cuda, cuda->cu->cuEventRecord(event, stream), event, "cuEventRecord"));
}

ceclResult_t cuda_event_wait(struct cecl_device *dev, ceclStream_t stream, ceclEvent_t event)
{
    CUDA_RETURN_WITHIN(
        cuda, dev,
        check(cuda, cuda->cu->cuStreamWaitEvent(stream, event, 0), event, "cuStreamWaitEvent"));
}

ceclResult_t cuda_event_query(struct cecl_device *dev, ceclEvent_t event)
{
    CUDA_RETURN_BESIDE(cuda, dev, cuda_answer(cuda, cuda->cu->cuEventQuery(event), "cuEventQuery"));
}

/* ---- what a stream captures */

struct info {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *from; /* [nfrom] the nodes that the stream's next node follows */
    size_t nfrom;
};

static ceclResult_t ask(struct cuda_device *cuda, CUstream stream, struct info *info)
{
    const CUgraphEdgeData *edges = NULL;
    return CUDA_CALL(cuda, cuStreamGetCaptureInfo, stream, &info->status, &info->id, &info->graph,
                     &info->from, &edges, &info->nfrom);
}

/* Checks that a stream which captures belongs to this GPU. cuStreamGetDevice would fail on it and break the capture. So
 * this function asks for the stream's context; it skips the check if CUDA does not tell it, as for a green context. */
static ceclResult_t check_owner(struct cuda_device *cuda, CUstream stream)
{
    const struct cecl_driver *cu = cuda->cu;
    CUcontext owner = NULL, popped = NULL;
    CUdevice device = cuda->device;
    if (stream == CU_STREAM_PER_THREAD || cu->cuStreamGetCtx(stream, &owner) != CUDA_SUCCESS ||
        owner == cuda->context)
        return ceclSuccess;
    CECL_TRY(CUDA_CALL(cuda, cuCtxPushCurrent, owner));
    const ceclResult_t result = CUDA_CALL(cuda, cuCtxGetDevice, &device);
    cu->cuCtxPopCurrent(&popped);
    CECL_TRY(result);
    return device == cuda->device
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "stream %p: a stream of another GPU; a stream of GPU %d is expected",
                           (void *)stream, cuda->base.ordinal);
}

ceclResult_t cuda_read_capture(struct cuda_device *cuda, CUstream stream,
                               struct cecl_capture *capture)
{
    struct info info = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
    CECL_TRY(check_owner(cuda, stream));
    CECL_TRY(ask(cuda, stream, &info));
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return cecl_fail(ceclInvalidUsage, "stream %p: its capture was broken by an earlier error",
                         (void *)stream);
    *capture = (struct cecl_capture){info.id, info.graph};
    return ceclSuccess;
}

/* ---- order */

/* If this capture already has a record of the order's event, the stream's next node follows that record node. The node
 * now records `spare`, for which no stream waits, because a later node will record the event. */
static ceclResult_t follow(struct cuda_device *cuda, struct cecl_order *order, CUstream stream)
{
    struct info info = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
    CUgraphNode node = (CUgraphNode)order->end;
    if (!node)
        return ceclSuccess;
    order->end = 0;
    CECL_TRY(CUDA_CALL(cuda, cuGraphEventRecordNodeSetEvent, node, order->spare));
    CECL_TRY(ask(cuda, stream, &info));
    for (size_t i = 0; i < info.nfrom; i++)
        if (info.from[i] == node)
            return ceclSuccess;
    return CUDA_CALL(cuda, cuStreamUpdateCaptureDependencies, stream, &node, NULL, 1,
                     CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
}

static ceclResult_t begin(struct cuda_device *cuda, struct cecl_order *order, CUstream stream,
                          const struct cecl_capture *capture)
{
    if (order->capture == capture->id)
        return follow(cuda, order, stream);
    CECL_TRY(CUDA_CALL(cuda, cuStreamWaitEvent, stream, order->event, CU_EVENT_WAIT_EXTERNAL));
    order->capture = capture->id;
    order->end = 0;
    return ceclSuccess;
}

ceclResult_t cuda_order_begin(struct cecl_device *dev, struct cecl_order *order,
                              ceclStream_t stream, const struct cecl_capture *capture)
{
    CUDA_RETURN_WITHIN(cuda, dev, begin(cuda, order, stream, capture));
}

static ceclResult_t end(struct cuda_device *cuda, struct cecl_order *order, CUstream stream)
{
    struct info info = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
    CECL_TRY(
        CUDA_CALL(cuda, cuEventRecordWithFlags, order->event, stream, CU_EVENT_RECORD_EXTERNAL));
    CECL_TRY(ask(cuda, stream, &info));
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE || info.nfrom != 1)
        return cecl_fail(ceclUnhandledCudaError,
                         "stream %p: after an event's record node the capture continues from %zu "
                         "nodes; 1 is expected",
                         (void *)stream, info.nfrom);
    order->end = (uintptr_t)info.from[0];
    return ceclSuccess;
}

ceclResult_t cuda_order_end(struct cecl_device *dev, struct cecl_order *order, ceclStream_t stream,
                            const struct cecl_capture *capture)
{
    CUDA_RETURN_WITHIN(cuda, dev, end(cuda, order, stream));
}

/* ---- what is captured */

/* In a graph a copy begins once the copy before it has ended, which leaves the links idle for about 2 us.
 * So the copies of a large batch are captured as two chains, which the graph runs at the same time. More chains are
 * slower, because peers then write to one rank at the same time. Below this size two chains are no faster than one
 * (docs/data/results.md, "Captured calls"). */
#define TWO_CHAINS_BYTES ((size_t)16 << 20) /* bytes of the batch */

/* The stream's next node follows `nodes`, and nothing else. */
static ceclResult_t go_on_from(struct cuda_device *cuda, CUstream stream, CUgraphNode *nodes,
                               size_t count)
{
    return CUDA_CALL(cuda, cuStreamUpdateCaptureDependencies, stream, nodes, NULL, count,
                     CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

/* Copies of bytes or of rows. */
struct copies {
    const struct cecl_batch *batch; /* NULL: of rows */
    const struct cecl_row_copy *rows;
    size_t count;
};

static ceclResult_t add_copy(struct cuda_device *cuda, CUstream stream, const struct copies *copies,
                             size_t i)
{
    const struct cecl_batch *batch = copies->batch;
    if (batch)
        return CUDA_CALL(cuda, cuMemcpyAsync, cuda_address(batch->dst[i]),
                         cuda_address(batch->src[i]), batch->bytes[i], stream);
    const struct cecl_row_copy *rows = &copies->rows[i];
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = cuda_address(rows->src),
                                .srcPitch = rows->src_pitch,
                                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .dstDevice = cuda_address(rows->dst),
                                .dstPitch = rows->dst_pitch,
                                .WidthInBytes = rows->width,
                                .Height = rows->rows};
    return CUDA_CALL(cuda, cuMemcpy2DAsync, &copy, stream);
}

/* Adds copies first, first + step, first + 2 * step, ..., each after the one before. */
static ceclResult_t add_chain(struct cuda_device *cuda, CUstream stream,
                              const struct copies *copies, size_t first, size_t step)
{
    for (size_t i = first; i < copies->count; i += step)
        CECL_TRY(add_copy(cuda, stream, copies, i));
    return ceclSuccess;
}

/* Adds two chains, both of which follow the nodes `from`. What the stream captures next follows both chains. */
static ceclResult_t add_chains_from(struct cuda_device *cuda, CUstream stream,
                                    const struct copies *copies, CUgraphNode *from, size_t nfrom)
{
    CUgraphNode ends[2];
    for (size_t chain = 0; chain < 2; chain++) {
        struct info info = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
        CECL_TRY(go_on_from(cuda, stream, from, nfrom));
        CECL_TRY(add_chain(cuda, stream, copies, chain, 2));
        CECL_TRY(ask(cuda, stream, &info));
        if (info.nfrom != 1)
            return cecl_fail(ceclUnhandledCudaError,
                             "stream %p: after a copy the capture continues from %zu nodes; 1 is "
                             "expected",
                             (void *)stream, info.nfrom);
        ends[chain] = info.from[0];
    }
    return go_on_from(cuda, stream, ends, 2);
}

static ceclResult_t add_two_chains(struct cuda_device *cuda, CUstream stream,
                                   const struct copies *copies)
{
    struct info info = {.status = CU_STREAM_CAPTURE_STATUS_NONE};
    CECL_TRY(ask(cuda, stream, &info));
    const size_t nfrom = info.nfrom;
    CUgraphNode *from = calloc(nfrom + 1, sizeof(*from)); /* a copy: the driver's list changes */
    if (!from)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    memcpy(from, info.from, nfrom * sizeof(*from));
    const ceclResult_t result = add_chains_from(cuda, stream, copies, from, nfrom);
    free(from);
    return result;
}

static ceclResult_t add_copies(struct cuda_device *cuda, CUstream stream,
                               const struct copies *copies)
{
    size_t bytes = 0;
    for (size_t i = 0; i < copies->count; i++)
        bytes +=
            copies->batch ? copies->batch->bytes[i] : copies->rows[i].width * copies->rows[i].rows;
    return copies->count < 2 || bytes < TWO_CHAINS_BYTES ? add_chain(cuda, stream, copies, 0, 1)
                                                         : add_two_chains(cuda, stream, copies);
}

ceclResult_t cuda_capture_copies(struct cecl_device *dev, ceclStream_t stream,
                                 const struct cecl_batch *batch)
{
    const struct copies copies = {batch, NULL, batch->count};
    CUDA_RETURN_WITHIN(cuda, dev, add_copies(cuda, stream, &copies));
}

ceclResult_t cuda_capture_rows(struct cecl_device *dev, ceclStream_t stream,
                               const struct cecl_row_copy *rows, size_t count)
{
    const struct copies copies = {NULL, rows, count};
    CUDA_RETURN_WITHIN(cuda, dev, add_copies(cuda, stream, &copies));
}

/* What a graph owns until it is gone: a function to call then. */
struct keeper {
    void (*gone)(void *context);
    void *context;
};

static void let_go(void *argument)
{
    struct keeper *keeper = argument;
    if (keeper->gone)
        keeper->gone(keeper->context);
    free(keeper);
}

/* CUDA calls let_go once the graph, its clones, and the executable graphs made of them are gone. Once the
 * user object exists, only let_go frees the keeper. */
ceclResult_t cuda_graph_keep(struct cecl_device *dev, const struct cecl_capture *capture,
                             void (*gone)(void *context), void *context)
{
    struct cuda_device *cuda = cuda_of(dev);
    struct keeper *keeper = malloc(sizeof(*keeper));
    CUuserObject object = NULL;
    if (!keeper)
        return cecl_fail(ceclOutOfMemory, "no host memory for a graph");
    *keeper = (struct keeper){gone, context};
    ceclResult_t result = CUDA_CALL(cuda, cuUserObjectCreate, &object, keeper, let_go, 1,
                                    CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != ceclSuccess) {
        free(keeper);
        return result;
    }
    result = CUDA_CALL(cuda, cuGraphRetainUserObject, capture->graph, object, 1,
                       CU_GRAPH_USER_OBJECT_MOVE);
    if (result != ceclSuccess) {
        keeper->gone = NULL; /* the release below makes CUDA's thread call let_go */
        cuda->cu->cuUserObjectRelease(object, 1);
    }
    return result;
}

/* ---- for ceclStreamBeginCapture and the related calls */

ceclResult_t cuda_capture_begin(struct cecl_device *dev, ceclStream_t stream)
{
    struct cecl_capture capture;
    if (cuda_is_legacy(stream))
        return cecl_fail(ceclInvalidUsage,
                         "stream %p: the legacy default stream cannot capture; pass a stream of "
                         "your own",
                         (void *)stream);
    CECL_TRY(cuda_stream_check(dev, stream, &capture));
    if (capture.id != 0)
        return cecl_fail(ceclInvalidUsage, "stream %p: captures a graph already", (void *)stream);
    CUDA_RETURN_WITHIN(
        cuda, dev,
        CUDA_CALL(cuda, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static ceclResult_t instantiate(struct cuda_device *cuda, CUstream stream, void **out)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    CECL_TRY(CUDA_CALL(cuda, cuStreamEndCapture, stream, &graph));
    const ceclResult_t result = CUDA_CALL(cuda, cuGraphInstantiateWithFlags, &made, graph, 0);
    cuda->cu->cuGraphDestroy(graph);
    if (result == ceclSuccess)
        *out = made;
    return result;
}

/* Ends even a broken capture, because its stream cannot be used before; then returns the driver's error. */
static ceclResult_t end_capture(struct cuda_device *cuda, CUstream stream, void **graph)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!cuda_is_legacy(stream)) /* the legacy stream cannot capture */
        CECL_TRY(CUDA_CALL(cuda, cuStreamIsCapturing, stream, &status));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE)
        return cecl_fail(ceclInvalidUsage, "stream %p: captures no graph", (void *)stream);
    CECL_TRY(check_owner(cuda, stream));
    return instantiate(cuda, stream, graph);
}

ceclResult_t cuda_capture_end(struct cecl_device *dev, ceclStream_t stream, void **graph)
{
    CUDA_RETURN_WITHIN(cuda, dev, end_capture(cuda, stream, graph));
}

ceclResult_t cuda_graph_launch(struct cecl_device *dev, void *graph, ceclStream_t stream)
{
    struct cecl_capture capture;
    CECL_TRY(cuda_stream_check(dev, stream, &capture));
    if (capture.id != 0)
        return cecl_fail(ceclInvalidUsage,
                         "stream %p: captures a graph, which cannot contain another graph",
                         (void *)stream);
    CUDA_RETURN_WITHIN(cuda, dev, CUDA_CALL(cuda, cuGraphLaunch, graph, stream));
}

ceclResult_t cuda_graph_destroy(void *graph)
{
    const struct cecl_driver *cu = cecl_driver_get(NULL);
    return cu ? cecl_driver_check(cu, cu->cuGraphExecDestroy(graph), "cuGraphExecDestroy")
              : ceclSuccess;
}
