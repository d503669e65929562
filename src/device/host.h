/* Shared by the files of the host device. Ranks may be processes or threads. Memory is memfd pages;
 * a stream is a thread. */
#ifndef CECL_DEVICE_HOST_H
#define CECL_DEVICE_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "device/ops.h"

struct host_stream;

struct host_device {
    struct cecl_device base;
    /* the default stream, for NULL and CUDA's two handles of default streams. A communicator shares it with its
     * children, as communicators on one GPU do */
    struct host_stream *standard;
    uint64_t drained_at; /* a drain waits until `standard` has finished so many entries */
};

static inline struct host_device *host_of(struct cecl_device *dev)
{
    return (struct host_device *)dev;
}

#define OP(name) CECL_DEVICE_OP_DECLARED(host, name)
#include "device/ops_list.h"
CECL_DEVICE_OP_DECLARED(host, check_uses)

/* host_memory.c. Whether this process can read the first and the last byte of a range. */
bool host_ends_readable(const void *ptr, size_t bytes);
/* host_memory.c. Maps bytes of a file over reserved addresses. whose: "" or " of a peer", for messages. */
ceclResult_t host_map(void *addr, size_t bytes, int fd, int64_t offset, const char *whose);

/* host_words.c: words that streams write and wait for, across processes. */
/* Wakes the threads that sleep in host_word_wait, so that they look at the word again. */
void host_word_wake(const uint32_t *word);
void host_word_write(uint32_t *word, uint32_t value); /* also wakes these threads */
void host_word_copy(uint32_t *dst, const void *src);  /* `src` may be unaligned */
void host_word_wait(const uint32_t *word, uint32_t value, enum cecl_memop_kind kind);

/* host_own.c */
ceclResult_t host_standard_open(struct host_device *host);
/* Ends every stream of the device, without waiting: a stream that still holds work carries it out before it ends. */
void host_streams_end(struct host_device *host);

/* Reading /proc/self/maps, the list of this process's mappings. Linux 6.11 and later answer questions about single
 * mappings; there cecl asks only for the mappings that it needs. Every call on memory outside the pool reads the
 * mappings of its buffers, so these functions allocate nothing. */

/* A line of the file. If parts of a mapping differ, for example in access rights, the kernel makes a line of each; it
 * joins equal neighbours. */
struct host_mapping {
    uint64_t start, end;
    uint64_t offset, inode; /* inode 0: memory of no file */
    unsigned major, minor;
    bool readable, writable, shared;
};

/* Takes one mapping. Returns whether to go on with the next one. */
typedef bool host_mapping_taker(void *context, const struct host_mapping *mapping);

/* Calls `take` for each mapping that ends above `low`, in the order of addresses, until `take` returns false. */
ceclResult_t host_maps_read(uint64_t low, host_mapping_taker *take, void *context);

/* -- what a stream does: entries of work in its queue, or in a graph that it captures -- */

/* MOVE is a user's copy, whose ranges may overlap. COPY is a copy of a plan, where an overlap is a fault: it uses
 * memcpy, so that the address sanitizer reports the overlap. */
enum work_kind {
    WORK_COPY,
    WORK_MOVE,
    WORK_ROWS,
    WORK_REDUCE,
    WORK_SMALL,
    WORK_SPLITS,
    WORK_SUMS,
    WORK_WRITE,
    WORK_WAIT,
    WORK_AFTER,   /* waits until stream `own` has done `bytes` entries */
    WORK_DROP,    /* `own` is the graph whose launch ends here */
    WORK_NOTHING, /* host_add ignores it */
    /* -- only in graphs: what a launch enqueues for these two kinds depends on the event in `own` -- */
    WORK_EVENT_WAIT,
    WORK_EVENT_RECORD
};

struct work {
    enum work_kind kind;
    uint32_t value;
    void *dst;                         /* the destination; WRITE: the word to write */
    const void *src;                   /* the source; WAIT: the word to wait for */
    size_t bytes;                      /* ROWS: bytes of one row; WAIT: its cecl_memop_kind */
    size_t rows, dst_pitch, src_pitch; /* used by ROWS only */
    /* REDUCE: a struct cecl_reduction, followed by its sources; SMALL: a struct small_work; SPLITS: a struct
     * cecl_splits; SUMS: a struct cecl_row_sums */
    void *own;
    bool lent; /* `own` belongs to a graph, so the stream does not free it */
};

/* A copy of a small call, with copies of what it points to. */
struct small_work {
    struct cecl_small small;
    struct cecl_meeting meeting;
    struct cecl_counting counting;
};

struct host_stream {
    uint64_t id;
    const struct host_device *owner; /* the stream ends with this device; NULL: default stream */
    struct host_stream *next;        /* the next one in the process's list */
    unsigned
        users; /* of a default stream: how many devices have it; guarded by the process's lock */
    /* held by: the list, the thread, and each struct host_place of this stream */
    _Atomic unsigned references;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;  /* signalled when work was added or `ending` was set */
    pthread_cond_t reached; /* signalled when `finished` has reached `notify` */
    struct work *queue;     /* a ring of `capacity` entries */
    size_t capacity, head, count;
    uint64_t finished; /* number of entries done so far */
    uint64_t notify;   /* the smallest value of `finished` for which a thread waits */
    uint64_t batches;  /* number of batches enqueued so far */
    bool ending;
    struct host_graph *capture; /* what the stream captures; NULL: nothing */
};

/* A place in a stream's work: it is reached once the stream has done `at` entries. Holds a reference to the stream. All
 * zero: a place that is reached. */
struct host_place {
    struct host_stream *stream;
    uint64_t at;
};

/* What all communicators of a process share. */
extern struct host_process {
    pthread_mutex_t lock;        /* guards the list of streams */
    struct host_stream *streams; /* all living streams, default streams included */
    /* Guards the list of events and their places. Held while a thread enqueues a graph, or work whose order depends on
     * an event; taken before `lock` and before a stream's lock */
    pthread_mutex_t order;
    struct host_event *events; /* all events that exist */
} host_process;

/* Gives back a reference. The last one frees the stream. */
void host_stream_drop(struct host_stream *stream);
static inline void host_place_drop(struct host_place *place)
{
    if (place->stream)
        host_stream_drop(place->stream);
    *place = (struct host_place){0};
}
static inline struct host_place host_place_copy(struct host_place place)
{
    if (place.stream)
        atomic_fetch_add(&place.stream->references, 1);
    return place;
}
/* How many entries the stream will have done at the end of the work that it holds now. The caller holds its lock. */
static inline uint64_t host_stream_end_of(const struct host_stream *stream)
{
    return stream->finished + stream->count;
}
static inline struct host_place host_place_of(struct host_stream *stream)
{
    return host_place_copy((struct host_place){stream, host_stream_end_of(stream)});
}
bool host_place_is_reached(const struct host_place *place);
/* Work that waits for a place, and takes over the place's reference. */
static inline struct work host_work_after(struct host_place place)
{
    return place.stream
               ? (struct work){.kind = WORK_AFTER, .own = place.stream, .bytes = (size_t)place.at}
               : (struct work){.kind = WORK_NOTHING};
}

/* Finds the stream of a handle. NULL and CUDA's two handles of default streams name the device's default stream. */
ceclResult_t host_stream_find(struct cecl_device *dev, ceclStream_t handle,
                              struct host_stream **out);
/* Makes room for `count` entries, in the queue or in the graph that the stream captures. On success the
 * stream's lock is held; the caller gives it back. */
ceclResult_t host_begin_adding(struct cecl_device *dev, ceclStream_t handle, size_t count,
                               struct host_stream **out);
void host_add(struct host_stream *stream, struct work work);

/* A stream's thread. */
void *host_stream_serve(void *stream);
ceclResult_t host_refuse_capture(const struct host_stream *stream);

/* -- host_graph.c -- */

/* A function to call once the graph is gone. */
struct host_keeper {
    void (*gone)(void *context);
    void *context;
    struct host_keeper *next;
};

struct host_graph {
    uint64_t id;
    struct work *work; /* [count] */
    size_t count, room;
    struct host_keeper *keepers;
    _Atomic unsigned references; /* one for the owner, and one for each launch that is not done */
};

ceclResult_t host_graph_reserve(struct host_graph *graph, size_t more);
/* Gives back a reference: of the owner (during the capture: the stream), or of a launch. The last frees the graph. */
void host_graph_drop(struct host_graph *graph);

#endif
