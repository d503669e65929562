/* The host device's streams: each is a thread with a queue of work. Work is copied into the queue, so callers may reuse
 * their arrays at once. A full queue grows and never shrinks, so once it is large enough, calls no longer allocate for
 * it. host_own.c makes streams and ends them. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "device/host.h"

static struct work *slot(struct host_stream *stream, size_t index)
{
    return &stream->queue[(stream->head + index) % stream->capacity];
}

/* Copies bytes. An aligned 32-bit word may be a flag, so this function stores it in one piece, after all earlier work,
 * and wakes threads that wait for it. */
static void perform_copy(const struct work *work)
{
    if (work->bytes == sizeof(uint32_t) && (uintptr_t)work->dst % sizeof(uint32_t) == 0)
        host_word_copy(work->dst, work->src);
    else if (work->kind == WORK_MOVE)
        memmove(work->dst, work->src, work->bytes);
    else
        memcpy(work->dst, work->src, work->bytes);
}

static void perform_rows(const struct work *work)
{
    for (size_t row = 0; row < work->rows; row++)
        memcpy((char *)work->dst + row * work->dst_pitch,
               (const char *)work->src + row * work->src_pitch, work->bytes);
}

/* Runs a small call, and wakes streams that may sleep until the call is done. */
static void perform_small(const struct cecl_small *small)
{
    cecl_small_host(small);
    if (small->meeting && (small->meeting->does & CECL_MEET_DONE))
        host_word_wake(small->meeting->done);
}

/* Waits until the stream has done `at` entries; UINT64_MAX: all that it holds now. */
static void await(struct host_stream *stream, uint64_t at)
{
    CECL_LOCKED(&stream->lock);
    at = at == UINT64_MAX ? host_stream_end_of(stream) : at;
    while (stream->finished < at) {
        if (stream->notify <= stream->finished || stream->notify > at)
            stream->notify = at;
        pthread_cond_wait(&stream->reached, &stream->lock);
    }
}

static void perform(const struct work *work)
{
    switch (work->kind) {
    case WORK_COPY:
    case WORK_MOVE: perform_copy(work); break;
    case WORK_ROWS: perform_rows(work); break;
    case WORK_REDUCE: cecl_reduce_host(work->own); break;
    case WORK_SMALL: perform_small(work->own); break;
    case WORK_SPLITS: cecl_splits_host(work->own); break;
    case WORK_SUMS: cecl_row_sums_host(work->own); break;
    case WORK_WRITE: host_word_write(work->dst, work->value); break;
    case WORK_WAIT:
        host_word_wait(work->src, work->value, (enum cecl_memop_kind)work->bytes);
        break;
    case WORK_AFTER: await(work->own, work->bytes); break;
    case WORK_DROP:
    case WORK_EVENT_WAIT:
    case WORK_EVENT_RECORD:
    case WORK_NOTHING: break;
    }
}

static void free_own(const struct work *work)
{
    if (work->kind == WORK_DROP)
        host_graph_drop(work->own);
    else if (work->kind == WORK_AFTER)
        host_stream_drop(work->own);
    else if (!work->lent)
        free(work->own);
}

/* Carries out the queue's work. Work leaves the queue only when it is done, so an empty queue means that all work has
 * ended. A thread inherits rounding and the treatment of subnormal numbers from its creator. Results must have equal
 * bits on all ranks, so each stream sets the defaults. */
void *host_stream_serve(void *argument)
{
    struct host_stream *stream = argument;
    cecl_thread_name("cecl-stream");
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->count == 0 && !stream->ending)
            pthread_cond_wait(&stream->filled, &stream->lock);
        if (stream->count == 0)
            break;
        const struct work work = *slot(stream, 0);
        pthread_mutex_unlock(&stream->lock);
        perform(&work);
        free_own(&work);
        pthread_mutex_lock(&stream->lock);
        stream->head = (stream->head + 1) % stream->capacity;
        stream->count--;
        if (++stream->finished == stream->notify)
            pthread_cond_broadcast(&stream->reached);
    }
    pthread_mutex_unlock(&stream->lock);
    host_stream_drop(stream);
    return NULL;
}

/* ---- places */

bool host_place_is_reached(const struct host_place *place)
{
    if (!place->stream)
        return true;
    CECL_LOCKED(&place->stream->lock);
    return place->stream->finished >= place->at;
}

/* ---- using a stream */

/* The caller holds the lock. */
static ceclResult_t make_room(struct host_stream *stream, size_t more)
{
    size_t capacity = stream->capacity;
    while (capacity - stream->count < more)
        capacity *= 2;
    if (capacity == stream->capacity)
        return ceclSuccess;
    struct work *queue = malloc(capacity * sizeof(*queue));
    if (!queue)
        return cecl_fail(ceclOutOfMemory, "no host memory for a stream's queue of %zu entries",
                         capacity);
    for (size_t i = 0; i < stream->count; i++)
        queue[i] = *slot(stream, i);
    free(stream->queue);
    stream->queue = queue;
    stream->capacity = capacity;
    stream->head = 0;
    return ceclSuccess;
}

ceclResult_t host_refuse_capture(const struct host_stream *stream)
{
    return cecl_fail(ceclInvalidUsage, "stream %p: captures a graph; end the capture first",
                     (const void *)stream);
}

static ceclResult_t find_outside(struct cecl_device *dev, ceclStream_t handle,
                                 struct host_stream **out)
{
    CECL_TRY(host_stream_find(dev, handle, out));
    CECL_LOCKED(&(*out)->lock);
    return (*out)->capture ? host_refuse_capture(*out) : ceclSuccess;
}

/* Waits only for work that is enqueued now, as on a GPU, and not for work that another thread adds meanwhile. */
ceclResult_t host_stream_synchronize(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(find_outside(dev, handle, &stream));
    await(stream, UINT64_MAX);
    return ceclSuccess;
}

ceclResult_t host_stream_query(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(find_outside(dev, handle, &stream));
    CECL_LOCKED(&stream->lock);
    return stream->count > 0 ? ceclInProgress : ceclSuccess;
}

ceclResult_t host_stream_check(struct cecl_device *dev, ceclStream_t handle,
                               struct cecl_capture *capture)
{
    struct host_stream *stream;
    if (!capture)
        return find_outside(dev, handle, &stream);
    *capture = (struct cecl_capture){0};
    CECL_TRY(host_stream_find(dev, handle, &stream));
    CECL_LOCKED(&stream->lock);
    if (stream->capture)
        *capture = (struct cecl_capture){stream->capture->id, stream->capture};
    return ceclSuccess;
}

ceclResult_t host_stream_fork(struct cecl_device *dev, ceclStream_t handle, ceclStream_t *work)
{
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    *work = (ceclStream_t)stream;
    return ceclSuccess;
}

ceclResult_t host_stream_join(struct cecl_device *dev, ceclStream_t stream, ceclStream_t work)
{
    return ceclSuccess;
}

uint64_t host_stream_id(struct cecl_device *dev, ceclStream_t work)
{
    return ((struct host_stream *)work)->id;
}

ceclResult_t host_begin_adding(struct cecl_device *dev, ceclStream_t handle, size_t count,
                               struct host_stream **out)
{
    CECL_TRY(host_stream_find(dev, handle, out));
    pthread_mutex_lock(&(*out)->lock);
    ceclResult_t result =
        (*out)->capture ? host_graph_reserve((*out)->capture, count) : make_room(*out, count);
    if (result != ceclSuccess)
        pthread_mutex_unlock(&(*out)->lock);
    return result;
}

void host_add(struct host_stream *stream, struct work work)
{
    if (stream->capture) {
        stream->capture->work[stream->capture->count++] = work;
    } else if (work.kind != WORK_NOTHING) {
        if (stream->count == 0) /* the thread sleeps only while there is no work */
            pthread_cond_signal(&stream->filled);
        *slot(stream, stream->count++) = work;
    }
}

ceclResult_t host_stream_after(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier)
{
    struct host_stream *stream;
    CECL_TRY(find_outside(dev, earlier, &stream));
    pthread_mutex_lock(&stream->lock);
    struct host_place place = host_place_of(stream);
    pthread_mutex_unlock(&stream->lock);
    ceclResult_t result = find_outside(dev, later, &stream);
    if (result == ceclSuccess)
        result = host_begin_adding(dev, later, 1, &stream);
    if (result != ceclSuccess) {
        host_place_drop(&place);
        return result;
    }
    host_add(stream, host_work_after(place));
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}
