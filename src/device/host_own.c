/* The streams of the process on the host device: making them, keeping them in a list, waiting for the streams of
 * a communicator, ending them.
 *
 * As on a GPU, a stream serves all communicators of the process. It ends with the communicator that made it, but only
 * after it has carried out the work that it still holds, which may be another communicator's. */
#include <stdlib.h>
#include <string.h>

#include "device/host.h"
#include "device/ops.h"
#include "util/thread.h"

#define FIRST_CAPACITY 64 /* entries of a stream's queue at first */

/* ---- the list of living streams */

struct host_process host_process = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                    .order = PTHREAD_MUTEX_INITIALIZER};

/* A forked child has none of its parent's streams. The forking thread holds the locks during the fork, so that no other
 * thread holds them in the child. */
static void before_fork(void)
{
    pthread_mutex_lock(&host_process.order);
    pthread_mutex_lock(&host_process.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&host_process.lock);
    pthread_mutex_unlock(&host_process.order);
}

static void begin_child(void)
{
    host_process.streams = NULL;
    host_process.events = NULL;
    after_fork();
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, begin_child);
}

ceclResult_t host_stream_find(struct cecl_device *dev, ceclStream_t handle,
                              struct host_stream **out)
{
    if ((uintptr_t)handle <= 2) {
        *out = host_of(dev)->standard;
        return ceclSuccess;
    }
    CECL_LOCKED(&host_process.lock);
    struct host_stream *stream = host_process.streams;
    while (stream && stream != (struct host_stream *)handle)
        stream = stream->next;
    *out = stream;
    return stream ? ceclSuccess
                  : cecl_fail(ceclInvalidArgument,
                              "stream %p: no stream of this process (destroyed?)", (void *)handle);
}

/* ---- making and ending */

void host_stream_drop(struct host_stream *stream)
{
    if (atomic_fetch_sub(&stream->references, 1) > 1)
        return;
    if (stream->capture)
        host_graph_drop(stream->capture);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->filled);
    pthread_cond_destroy(&stream->reached);
    free(stream->queue);
    free(stream);
}

/* Makes a stream that ends with `owner`. */
static ceclResult_t make(struct host_device *owner, struct host_stream **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Atomic uint64_t last_id;
    struct host_stream *stream = calloc(1, sizeof(*stream));
    struct work *queue = malloc(FIRST_CAPACITY * sizeof(*queue));
    pthread_once(&once, watch_forks);
    if (!stream || !queue) {
        free(stream);
        free(queue);
        return cecl_fail(ceclOutOfMemory, "no host memory for a stream");
    }
    stream->id = atomic_fetch_add(&last_id, 1) + 1;
    stream->owner = owner;
    stream->users = 1;
    stream->references = 2;
    stream->queue = queue;
    stream->capacity = FIRST_CAPACITY;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->filled, NULL);
    pthread_cond_init(&stream->reached, NULL);
    const int error = cecl_thread_start(&stream->thread, host_stream_serve, stream);
    if (error) {
        stream->references = 1;
        host_stream_drop(stream);
        return cecl_fail(ceclSystemError, "no thread for a stream: %s", strerror(error));
    }
    CECL_LOCKED(&host_process.lock);
    stream->next = host_process.streams;
    host_process.streams = stream;
    *out = stream;
    return ceclSuccess;
}

ceclResult_t host_stream_create(struct cecl_device *dev, bool urgent, ceclStream_t *out)
{
    struct host_stream *stream;
    CECL_TRY(make(host_of(dev), &stream));
    *out = (ceclStream_t)stream;
    return ceclSuccess;
}

/* Tells the thread to end once it has finished all queued work. Returns whether there is such work. */
static bool end(struct host_stream *stream)
{
    CECL_LOCKED(&stream->lock);
    const bool busy = stream->count > 0;
    stream->ending = true;
    pthread_cond_signal(&stream->filled);
    return busy;
}

/* The caller holds the process's lock. */
static void take_out(struct host_stream *stream)
{
    struct host_stream **link = &host_process.streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
}

ceclResult_t host_stream_destroy(struct cecl_device *dev, ceclStream_t handle)
{
    struct host_stream *stream;
    CECL_TRY(host_stream_find(dev, handle, &stream));
    if (!stream->owner)
        return cecl_fail(ceclInvalidArgument, "stream: the default stream cannot be destroyed");
    (void)end(stream); /* while it is in the list, so that a drain waits for its work */
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&host_process.lock);
    take_out(stream);
    pthread_mutex_unlock(&host_process.lock);
    host_stream_drop(stream);
    return ceclSuccess;
}

/* Ends a stream that is no longer in the list, without waiting for its work. */
static void leave(struct host_stream *stream)
{
    if (end(stream))
        pthread_detach(stream->thread);
    else
        pthread_join(stream->thread, NULL);
    host_stream_drop(stream);
}

ceclResult_t host_standard_open(struct host_device *host)
{
    return make(NULL, &host->standard);
}

/* Gives up this device's use of its default stream. */
static void standard_leave(struct host_device *host)
{
    pthread_mutex_lock(&host_process.lock);
    const bool last = --host->standard->users == 0;
    if (last)
        take_out(host->standard);
    pthread_mutex_unlock(&host_process.lock);
    if (last)
        leave(host->standard);
}

void cecl_host_inherit(struct cecl_device *dev, const struct cecl_device *parent)
{
    if (dev->kind != CECL_KIND_HOST || parent->kind != CECL_KIND_HOST)
        return;
    standard_leave(host_of(dev));
    CECL_LOCKED(&host_process.lock);
    host_of(dev)->standard = ((const struct host_device *)parent)->standard;
    host_of(dev)->standard->users++;
}

/* Takes a stream that ends with this device out of the list; NULL: there is none. */
static struct host_stream *take_own(const struct host_device *host)
{
    CECL_LOCKED(&host_process.lock);
    struct host_stream *stream = host_process.streams;
    while (stream && stream->owner != host)
        stream = stream->next;
    if (stream)
        take_out(stream);
    return stream;
}

void host_streams_end(struct host_device *host)
{
    for (struct host_stream *stream; (stream = take_own(host));)
        leave(stream);
    if (host->standard)
        standard_leave(host);
}

/* ---- waiting for all streams */

/* Whether a drain of this device still waits for a stream. A drain waits for all work of the device's own streams. On
 * the default stream, which other communicators may use, it waits only for work that was there when the drain began. */
static bool is_waited_for(const struct host_device *host, const struct host_stream *stream)
{
    return stream == host->standard ? stream->finished < host->drained_at
                                    : stream->owner == host && stream->count > 0;
}

/* Counts busy streams. Holds the list's lock, so that no stream ends meanwhile. */
static ceclResult_t count_busy(struct cecl_device *dev, size_t *busy)
{
    struct host_device *host = host_of(dev);
    ceclResult_t result = ceclSuccess;
    pthread_mutex_lock(&host_process.lock);
    for (struct host_stream *stream = host_process.streams; stream; stream = stream->next) {
        CECL_LOCKED(&stream->lock);
        *busy += is_waited_for(host, stream);
        if (stream->capture && stream->owner == host) /* cannot be queried, as on a GPU */
            result = host_refuse_capture(stream);
    }
    pthread_mutex_unlock(&host_process.lock);
    return result;
}

ceclResult_t host_streams_drain(struct cecl_device *dev, int64_t deadline)
{
    struct host_device *host = host_of(dev);
    pthread_mutex_lock(&host->standard->lock);
    host->drained_at = host_stream_end_of(host->standard);
    pthread_mutex_unlock(&host->standard->lock);
    return cecl_drain(dev, count_busy, deadline);
}

/* Nothing to do: on the host device closing memory waits for nothing. */
ceclResult_t host_quiet(struct cecl_device *dev, bool (*go_on)(void *context), void *context)
{
    return ceclSuccess;
}
