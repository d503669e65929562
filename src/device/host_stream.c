/* The host device's streams: each is a thread with a queue of work. Work is copied into the queue,
 * so callers may reuse their arrays at once. A full queue grows, and it never shrinks, so calls
 * allocate nothing once it is large enough. */
#include <errno.h>
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
    case WORK_WAIT: host_word_wait(work->src, work->value, abandon); break;
    case WORK_DROP:
    case WORK_EVENT_WAIT:
    case WORK_EVENT_RECORD:
    case WORK_NOTHING: break;
    }
}

/* Work leaves the queue only when it is done, so an empty queue means that all work has ended. */
static void *serve(void *argument)
{
    struct host_stream *stream = argument;
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

/* Ends the thread once it has finished all queued work, then frees the stream. */
static void end(struct host_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_signal(&stream->filled);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    discard(stream);
}

ceclResult_t host_stream_destroy(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_device *host = host_of(dev);
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    if (stream == host->standard)
        return cecl_fail(ceclInvalidArgument, "stream: the default stream cannot be destroyed");
    pthread_mutex_lock(&host->lock);
    struct host_stream **link = &host->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&host->lock);
    end(stream);
    return ceclSuccess;
}

void host_streams_end(struct host_device *host)
{
    atomic_store(&host->closing, true);
    while (host->streams) {
        struct host_stream *stream = host->streams;
        host->streams = stream->next;
        end(stream);
    }
}

/* Finds a stream, and refuses one that captures. */
static ceclResult_t find_outside(struct cecl_device *dev, ceclStream_t handle,
                                 struct host_stream **out)
{
    CECL_TRY(host_stream_find(dev, handle, out));
    pthread_mutex_lock(&(*out)->lock);
    const bool captures = (*out)->capture != NULL;
    pthread_mutex_unlock(&(*out)->lock);
    return captures
               ? cecl_fail(ceclInvalidUsage, "stream %p: captures a graph; end the capture first",
                           (void *)handle)
               : ceclSuccess;
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
    pthread_mutex_lock(&host->lock);
    for (struct host_stream *stream = host->streams; stream; stream = stream->next) {
        pthread_mutex_lock(&stream->lock);
        *busy += stream->count > 0;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&host->lock);
    return ceclSuccess;
}

ceclResult_t host_streams_drain(struct cecl_device *dev, int64_t deadline)
{
    return cecl_drain(dev, count_busy, deadline);
}

ceclResult_t host_stream_check(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    return find_outside(dev, handle, &stream);
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

ceclResult_t host_copies(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_batch *batch)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, batch->count, &stream));
    /* A batch promises no order. Every other batch runs backwards, so that no plan can rely on one. */
    const bool backwards = stream->batches++ % 2;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t i = backwards ? batch->count - 1 - n : n;
        host_add(stream, (struct work){.kind = WORK_COPY,
                                       .dst = batch->dst[i],
                                       .src = batch->src[i],
                                       .bytes = batch->bytes[i]});
    }
    host_finish_adding(stream);
    return ceclSuccess;
}

ceclResult_t host_row_copies(struct cecl_device *dev, ceclStream_t handle,
                             const struct cecl_row_copy *copies, size_t count)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, count, &stream));
    const bool backwards = stream->batches++ % 2; /* for the same reason as in host_copies */
    for (size_t n = 0; n < count; n++) {
        const struct cecl_row_copy *copy = &copies[backwards ? count - 1 - n : n];
        host_add(stream, (struct work){.kind = WORK_ROWS,
                                       .dst = copy->dst,
                                       .src = copy->src,
                                       .bytes = copy->width,
                                       .rows = copy->rows,
                                       .dst_pitch = copy->dst_pitch,
                                       .src_pitch = copy->src_pitch});
    }
    host_finish_adding(stream);
    return ceclSuccess;
}

/* Enqueues work that does not fit into a queue entry. Takes over `own`, which is freed when the
 * work is done, or here on failure. */
static ceclResult_t add_own(struct cecl_device *dev, ceclStream_t handle, enum work_kind kind,
                            void *own)
{
    struct host_stream *stream;
    const ceclResult_t result = host_begin_adding(dev, handle, 1, &stream);
    if (result != ceclSuccess) {
        free(own);
        return result;
    }
    host_add(stream, (struct work){.kind = kind, .own = own});
    host_finish_adding(stream);
    return ceclSuccess;
}

/* Each reduction is copied to the heap, because its number of sources varies. */
ceclResult_t host_reduce(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_reduction *reduction)
{
    const size_t bytes = reduction->nsrc * sizeof(*reduction->src);
    struct cecl_reduction *own = malloc(sizeof(*own) + bytes);
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for a reduction of %u sources",
                         reduction->nsrc);
    *own = *reduction;
    own->src = memcpy(own + 1, reduction->src, bytes);
    return add_own(dev, handle, WORK_REDUCE, own);
}

/* Each small call is copied to the heap, because it is several times as large as a queue entry. */
ceclResult_t host_small(struct cecl_device *dev, ceclStream_t handle,
                        const struct cecl_small *small)
{
    CECL_TRY(cecl_small_check(small));
    struct small_work *own = calloc(1, sizeof(*own));
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for a small collective");
    own->small = *small;
    if (small->meeting) {
        own->meeting = *small->meeting;
        own->small.meeting = &own->meeting;
    }
    if (small->counting) {
        own->counting = *small->counting;
        own->small.counting = &own->counting;
    }
    return add_own(dev, handle, WORK_SMALL, own);
}

ceclResult_t host_call(struct cecl_device *dev, ceclStream_t handle, struct cecl_stream_call *call)
{
    return add_own(dev, handle, WORK_CALL, call);
}

/* Enqueues work with a copy of the `bytes` bytes that describe it. */
static ceclResult_t add_copy_of(struct cecl_device *dev, ceclStream_t handle, enum work_kind kind,
                                const void *described, size_t bytes)
{
    void *own = malloc(bytes);
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu bytes of a stream's work", bytes);
    return add_own(dev, handle, kind, memcpy(own, described, bytes));
}

ceclResult_t host_splits(struct cecl_device *dev, ceclStream_t handle,
                         const struct cecl_splits *splits)
{
    return add_copy_of(dev, handle, WORK_SPLITS, splits, sizeof(*splits));
}

ceclResult_t host_sum_rows(struct cecl_device *dev, ceclStream_t handle,
                           const struct cecl_row_sums *sums)
{
    return add_copy_of(dev, handle, WORK_SUMS, sums, sizeof(*sums));
}

/* `later` waits for a word inside `earlier`. This is safe even if `earlier` is destroyed: first its
 * remaining work is finished. That work writes the word, and so ends the wait. */
ceclResult_t host_stream_after(struct cecl_device *dev, ceclStream_t later, ceclStream_t earlier)
{
    struct host_stream *before, *after;
    CECL_TRY(host_begin_adding(dev, earlier, 1, &before));
    const uint32_t value = ++before->marks;
    host_add(before, (struct work){.kind = WORK_WRITE, .value = value, .dst = &before->mark});
    host_finish_adding(before);
    CECL_TRY(host_begin_adding(dev, later, 1, &after));
    host_add(after, (struct work){.kind = WORK_WAIT, .value = value, .src = &before->mark});
    host_finish_adding(after);
    return ceclSuccess;
}

ceclResult_t host_memops(struct cecl_device *dev, ceclStream_t handle, const struct cecl_memop *ops,
                         size_t count)
{
    struct host_stream *stream;
    CECL_TRY(host_begin_adding(dev, handle, count, &stream));
    for (size_t i = 0; i < count; i++)
        host_add(stream,
                 (struct work){.kind = ops[i].kind == CECL_MEMOP_WRITE ? WORK_WRITE : WORK_WAIT,
                               .value = ops[i].value,
                               .dst = ops[i].addr,
                               .src = ops[i].addr});
    host_finish_adding(stream);
    return ceclSuccess;
}

ceclResult_t host_memcpy_async(struct cecl_device *dev, void *dst, const void *src, size_t bytes,
                               ceclStream_t handle)
{
    struct host_stream *stream;
    if (bytes == 0)
        return host_stream_check(dev, handle);
    CECL_TRY(host_check_pointer(dev, dst, bytes, "dst"));
    CECL_TRY(host_check_pointer(dev, src, bytes, "src"));
    CECL_TRY(host_begin_adding(dev, handle, 1, &stream));
    host_add(stream, (struct work){.kind = WORK_MOVE, .dst = dst, .src = src, .bytes = bytes});
    host_finish_adding(stream);
    return ceclSuccess;
}
