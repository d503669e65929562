/* The host device's streams: each is a thread with a queue of work. Work is copied into the queue,
 * so callers may reuse their arrays at once. A full queue grows, and it never shrinks, so calls
 * allocate nothing once it is large enough. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "device/drain.h"
#include "device/host_work.h"
#include "util/thread.h"

#define FIRST_CAPACITY 64

static struct work *slot(struct host_stream *stream, size_t index)
{
    return &stream->queue[(stream->head + index) % stream->capacity];
}

/* An aligned 32-bit word may be a flag. So it is stored in one piece, after all earlier work, and
 * threads that wait for it are woken. */
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

/* Runs a small call, and wakes streams that may sleep until it is done. */
static void perform_small(const struct cecl_small *small, const _Atomic bool *abandon)
{
    cecl_small_host(small, (const bool *)abandon);
    if (small->meeting && (small->meeting->does & CECL_MEET_DONE))
        host_word_wake(small->meeting->done);
}

static void perform(const struct work *work, const _Atomic bool *abandon)
{
    switch (work->kind) {
    case WORK_COPY:
    case WORK_MOVE: perform_copy(work); break;
    case WORK_ROWS: perform_rows(work); break;
    case WORK_REDUCE: cecl_reduce_host(work->own); break;
    case WORK_SMALL: perform_small(work->own, abandon); break;
    case WORK_CALL: ((struct cecl_stream_call *)work->own)->run(work->own, abandon); break;
    case WORK_SPLITS: cecl_splits_host(work->own); break;
    case WORK_SUMS: cecl_row_sums_host(work->own); break;
    case WORK_WRITE: host_word_write(work->dst, work->value); break;
    case WORK_WAIT: host_word_wait(work->src, work->value, CECL_MEMOP_WAIT, abandon); break;
    case WORK_WAIT_ANY: host_word_wait(work->src, work->value, CECL_MEMOP_WAIT_ANY, abandon); break;
    case WORK_DROP:
    case WORK_EVENT_WAIT:
    case WORK_EVENT_RECORD:
    case WORK_NOTHING: break;
    }
}

/* Work leaves the queue only when it is done, so an empty queue means that all work has ended. A thread begins with its
 * creator's rounding and treatment of subnormal numbers. Results have equal bits on all ranks, so a stream has the
 * default. */
static void *serve(void *argument)
{
    struct host_stream *stream = argument;
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->count == 0 && !stream->ending)
            pthread_cond_wait(&stream->filled, &stream->lock);
        if (stream->count == 0)
            break;
        const struct work work = *slot(stream, 0);
        pthread_mutex_unlock(&stream->lock);
        if (!atomic_load(&stream->host->closing))
            perform(&work, &stream->host->closing);
        if (work.kind == WORK_DROP)
            host_graph_drop(work.own);
        else if (!work.lent)
            free(work.own);
        pthread_mutex_lock(&stream->lock);
        stream->head = (stream->head + 1) % stream->capacity;
        stream->count--;
        if (++stream->finished == stream->notify)
            pthread_cond_broadcast(&stream->reached);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

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

ceclResult_t host_stream_find(struct cecl_device *dev, ceclStream_t handle,
                              struct host_stream **out)
{
    struct host_device *host = host_of(dev);
    if ((uintptr_t)handle <= 2) {
        *out = host->standard;
        return ceclSuccess;
    }
    pthread_mutex_lock(&host->lock);
    struct host_stream *stream = host->streams;
    while (stream && stream != (struct host_stream *)handle)
        stream = stream->next;
    pthread_mutex_unlock(&host->lock);
    *out = stream;
    return stream ? ceclSuccess
                  : cecl_fail(ceclInvalidArgument,
                              "stream %p: no stream of this communicator's device (destroyed?)",
                              (void *)handle);
}

/* Frees a stream whose thread has ended or never began. */
static void discard(struct host_stream *stream)
{
    if (stream->capture)
        host_graph_drop(stream->capture);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->filled);
    pthread_cond_destroy(&stream->reached);
    free(stream->queue);
    free(stream);
}

ceclResult_t host_stream_create(struct cecl_device *dev, ceclStream_t *out)
{
    static _Atomic uint64_t last_id;
    struct host_device *host = host_of(dev);
    struct host_stream *stream = calloc(1, sizeof(*stream));
    struct work *queue = malloc(FIRST_CAPACITY * sizeof(*queue));
    if (!stream || !queue) {
        free(stream);
        free(queue);
        return cecl_fail(ceclOutOfMemory, "no host memory for a stream");
    }
    stream->id = atomic_fetch_add(&last_id, 1) + 1;
    stream->host = host;
    stream->queue = queue;
    stream->capacity = FIRST_CAPACITY;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->filled, NULL);
    pthread_cond_init(&stream->reached, NULL);
    const int error = cecl_thread_start(&stream->thread, "cecl-stream", serve, stream);
    if (error) {
        discard(stream);
        return cecl_fail(ceclSystemError, "no thread for a stream: %s", strerror(error));
    }
    pthread_mutex_lock(&host->lock);
    stream->next = host->streams;
    host->streams = stream;
    pthread_mutex_unlock(&host->lock);
    *out = (ceclStream_t)stream;
    return ceclSuccess;
}

/* Ends the thread once it has finished all queued work. */
static void end(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_signal(&stream->filled);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
}

ceclResult_t host_stream_destroy(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_device *host = host_of(dev);
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    if (stream == host->standard)
        return cecl_fail(ceclInvalidArgument, "stream: the default stream cannot be destroyed");
    end(stream); /* before it leaves the list, so that a drain waits for its work */
    pthread_mutex_lock(&host->lock);
    struct host_stream **link = &host->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&host->lock);
    discard(stream);
    return ceclSuccess;
}

/* All threads end before any stream is freed, because a stream may wait for a word inside another one
 * (host_stream_after). */
void host_streams_end(struct host_device *host)
{
    atomic_store(&host->closing, true);
    for (struct host_stream *stream = host->streams; stream; stream = stream->next)
        end(stream);
    while (host->streams) {
        struct host_stream *stream = host->streams;
        host->streams = stream->next;
        discard(stream);
    }
}

static bool captures_now(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    const bool captures = stream->capture != NULL;
    pthread_mutex_unlock(&stream->lock);
    return captures;
}

static ceclResult_t refuse_capture(const struct host_stream *stream)
{
    return cecl_fail(ceclInvalidUsage, "stream %p: captures a graph; end the capture first",
                     (const void *)stream);
}

static ceclResult_t find_outside(struct cecl_device *dev, ceclStream_t handle,
                                 struct host_stream **out)
{
    CECL_TRY(host_stream_find(dev, handle, out));
    return captures_now(*out) ? refuse_capture(*out) : ceclSuccess;
}

/* Waits for what is enqueued now, as on a GPU; not for work that another thread adds meanwhile. */
ceclResult_t host_stream_synchronize(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(find_outside(dev, handle, &stream));
    pthread_mutex_lock(&stream->lock);
    const uint64_t target = stream->finished + stream->count;
    while (stream->finished < target) {
        if (stream->notify <= stream->finished || stream->notify > target)
            stream->notify = target;
        pthread_cond_wait(&stream->reached, &stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return ceclSuccess;
}

ceclResult_t host_stream_query(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(find_outside(dev, handle, &stream));
    pthread_mutex_lock(&stream->lock);
    const bool busy = stream->count > 0;
    pthread_mutex_unlock(&stream->lock);
    return busy ? ceclInProgress : ceclSuccess;
}

/* Counts busy streams. Holds the list's lock, so that no stream ends meanwhile. */
static ceclResult_t count_busy(struct cecl_device *dev, size_t *busy)
{
    struct host_device *host = host_of(dev);
    ceclResult_t result = ceclSuccess;
    pthread_mutex_lock(&host->lock);
    for (struct host_stream *stream = host->streams; stream; stream = stream->next) {
        pthread_mutex_lock(&stream->lock);
        *busy += stream->count > 0;
        if (stream->capture) /* as on a GPU */
            result = refuse_capture(stream);
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&host->lock);
    return result;
}

ceclResult_t host_streams_drain(struct cecl_device *dev, int64_t deadline)
{
    return cecl_drain(dev, count_busy, deadline);
}

ceclResult_t host_stream_check(struct cecl_device *dev, ceclStream_t handle, bool *captures)
{
    struct host_stream *stream;
    if (!captures)
        return find_outside(dev, handle, &stream);
    CECL_TRY(host_stream_find(dev, handle, &stream));
    *captures = captures_now(stream);
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
    (void)dev;
    (void)stream;
    (void)work;
    return ceclSuccess;
}

uint64_t host_stream_id(struct cecl_device *dev, ceclStream_t work)
{
    (void)dev;
    return ((struct host_stream *)work)->id;
}

size_t host_stream_capacity(ceclStream_t stream)
{
    return ((struct host_stream *)stream)->capacity;
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
        host_graph_add(stream->capture, work);
        return;
    }
    *slot(stream, stream->count) = work;
    stream->count++;
}

void host_finish_adding(struct host_stream *stream)
{
    pthread_cond_signal(&stream->filled);
    pthread_mutex_unlock(&stream->lock);
}
