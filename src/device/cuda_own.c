/* The CUDA device's own streams: made, kept in a table, awaited, destroyed. Also the wait for all work of the GPU. */
#include <stdatomic.h>

#include "device/cuda.h"
#include "device/ops.h"
#include "util/grow.h"

/* ---- the living streams of stream_create, of all devices of the process: one device may destroy another's stream */

struct own {
    const struct cuda_device *owner;
    int ordinal; /* the owner's, which may be closed */
    CUstream stream;
    /* If the program destroys this stream by CUDA's own function, a later stream may get its address, but not its id */
    unsigned long long id;
};

/* Guards the list. It is not held during a wait for a stream. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own *list; /* [count], unordered */
static size_t count, room;

static ceclResult_t keep(const struct cuda_device *cuda, CUstream stream)
{
    struct own own = {.owner = cuda, .ordinal = cuda->base.ordinal, .stream = stream};
    CECL_TRY(CUDA_CALL(cuda, cuStreamGetId, stream, &own.id));
    CECL_LOCKED(&lock);
    const bool has_room = CECL_HAS_ROOM(list, count, room);
    if (has_room)
        list[count++] = own;
    return has_room ? ceclSuccess : cecl_fail(ceclOutOfMemory, "no host memory for a stream");
}

/* Removes a stream from the list, if it is there. The caller holds the lock. */
static void forget(CUstream stream)
{
    for (size_t i = count; i-- > 0;)
        if (list[i].stream == stream)
            list[i] = list[--count];
}

/* ---- creating and destroying */

static ceclResult_t create(struct cuda_device *cuda, bool urgent, CUstream *stream)
{
    CUstream made = NULL;
    int least = 0, most = 0;
    if (urgent)
        CECL_TRY(CUDA_CALL(cuda, cuCtxGetStreamPriorityRange, &least, &most));
    CECL_TRY(CUDA_CALL(cuda, cuStreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, most));
    ceclResult_t result = keep(cuda, made);
    if (result == ceclSuccess)
        *stream = made;
    else
        cuda->cu->cuStreamDestroy(made);
    return result;
}

ceclResult_t cuda_stream_create(struct cecl_device *dev, bool urgent, ceclStream_t *stream)
{
    CUDA_RETURN_BESIDE(cuda, dev, create(cuda, urgent, stream));
}

/* The stream stays in the list during the wait for its work, so that a drain waits, too. This function holds the
 * lock while it removes and destroys the stream, so that a drain never queries a destroyed stream. */
static ceclResult_t destroy(struct cuda_device *cuda, CUstream stream)
{
    ceclResult_t waited = CUDA_CALL(cuda, cuStreamSynchronize, stream);
    CECL_LOCKED(&lock);
    forget(stream);
    ceclResult_t result = CUDA_CALL(cuda, cuStreamDestroy, stream);
    return waited != ceclSuccess ? waited : result;
}

ceclResult_t cuda_stream_destroy(struct cecl_device *dev, ceclStream_t stream)
{
    if (cuda_is_legacy(stream) || stream == CU_STREAM_PER_THREAD)
        return cecl_fail(ceclInvalidArgument, "stream %p: a default stream cannot be destroyed",
                         (void *)stream);
    CUDA_RETURN_WITHIN(cuda, dev, destroy(cuda, stream));
}

/* ---- waiting for all streams */

ceclResult_t cuda_refuse_capture(struct cuda_device *cuda, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CECL_TRY(CUDA_CALL(cuda, cuStreamIsCapturing, stream, &status));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE)
        return ceclSuccess;
    return cecl_fail(ceclInvalidUsage,
                     "stream %p: captures a graph, so CUDA cannot tell whether earlier work on it "
                     "is done; end the capture first",
                     (void *)stream);
}

static ceclResult_t ask(struct cuda_device *cuda, CUstream stream, size_t *busy)
{
    const ceclResult_t result = cuda_answer(cuda, cuda->cu->cuStreamQuery(stream), "cuStreamQuery");
    *busy += result == ceclInProgress;
    return result == ceclInProgress ? ceclSuccess : result;
}

static ceclResult_t ask_own(struct cuda_device *cuda, const struct own *own, size_t *busy)
{
    unsigned long long id = 0;
    CECL_TRY(cuda_refuse_capture(cuda, own->stream));
    CECL_TRY(CUDA_CALL(cuda, cuStreamGetId, own->stream, &id));
    return id == own->id ? ask(cuda, own->stream, busy) : ceclSuccess;
}

/* If a stream cannot be queried, keeps the error and goes on with the next stream. */
static ceclResult_t count_busy(struct cecl_device *dev, size_t *busy)
{
    struct cuda_device *cuda = cuda_of(dev);
    ceclResult_t result = ask(cuda, cuda->legacy, busy);
    if (atomic_load(&cuda->unlanded) && result == ceclSuccess)
        result = ask(cuda, cuda->release, busy);
    if (atomic_load(&cuda->unlanded) && result == ceclSuccess)
        result = ask(cuda, cuda->side, busy);
    CECL_LOCKED(&lock);
    for (size_t i = 0; i < count; i++) {
        const ceclResult_t asked =
            list[i].owner == cuda ? ask_own(cuda, &list[i], busy) : ceclSuccess;
        if (asked != ceclSuccess)
            result = asked; /* the last error, because the recorded message belongs to it */
    }
    return result;
}

ceclResult_t cuda_streams_drain(struct cecl_device *dev, int64_t deadline)
{
    CUDA_RETURN_BESIDE(cuda, dev, cecl_drain(dev, count_busy, deadline));
}

/* ---- all work of the GPU */

/* Refuses while a stream captures, as far as cecl can tell: asks the GPU's streams of stream_create, and the legacy
 * stream, which answers with an error while any blocking stream captures. Invalidates no capture. */
static ceclResult_t refuse_captures(struct cuda_device *cuda)
{
    CECL_TRY(cuda_refuse_capture(cuda, CU_STREAM_LEGACY));
    CECL_LOCKED(&lock);
    for (size_t i = 0; i < count; i++)
        if (list[i].ordinal == cuda->base.ordinal)
            CECL_TRY(cuda_refuse_capture(cuda, list[i].stream));
    return ceclSuccess;
}

static ceclResult_t await(struct cuda_device *cuda, CUevent event, bool (*go_on)(void *context),
                          void *context)
{
    ceclResult_t result;
    while ((result = cuda_answer(cuda, cuda->cu->cuEventQuery(event), "cuEventQuery")) ==
               ceclInProgress &&
           go_on(context))
        cecl_pause_us(50);
    return result;
}

static ceclResult_t quiet(struct cuda_device *cuda, bool (*go_on)(void *context), void *context)
{
    CUevent event = NULL;
    CECL_TRY(refuse_captures(cuda));
    CECL_TRY(CUDA_CALL(cuda, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING));
    ceclResult_t result = CUDA_CALL(cuda, cuCtxRecordEvent, cuda->context, event);
    if (result == ceclSuccess)
        result = await(cuda, event, go_on, context);
    cuda->cu->cuEventDestroy(event);
    return result;
}

ceclResult_t cuda_quiet(struct cecl_device *dev, bool (*go_on)(void *context), void *context)
{
    CUDA_RETURN_BESIDE(cuda, dev, quiet(cuda, go_on, context));
}

/* cuStreamDestroy does not wait for a busy stream: CUDA frees the stream's resources when its work is done. */
bool cuda_streams_end(struct cuda_device *cuda)
{
    size_t busy = 0;
    const bool idle = count_busy(&cuda->base, &busy) == ceclSuccess && busy == 0;
    CECL_LOCKED(&lock);
    for (size_t i = count; i-- > 0;) {
        const struct own own = list[i];
        unsigned long long id = 0;
        if (own.owner != cuda)
            continue;
        if (cuda->cu->cuStreamGetId(own.stream, &id) == CUDA_SUCCESS && id == own.id)
            cuda->cu->cuStreamDestroy(own.stream);
        list[i] = list[--count];
    }
    return idle;
}
