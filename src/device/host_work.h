/* What a stream of the host device does: entries of work in its queue, or in a graph that it captures. */
#ifndef CECL_DEVICE_HOST_WORK_H
#define CECL_DEVICE_HOST_WORK_H

#include "device/host.h"

/* MOVE is a copy by a user, whose ranges may overlap. In a plan's batch an overlap is a fault: COPY
 * uses memcpy there, so that the address sanitizer reports it. */
enum work_kind {
    WORK_COPY,
    WORK_MOVE,
    WORK_ROWS,
    WORK_REDUCE,
    WORK_SMALL,
    WORK_CALL,
    WORK_SPLITS,
    WORK_SUMS,
    WORK_WRITE,
    WORK_WAIT,
    WORK_WAIT_ANY,
    WORK_DROP, /* `own` is the graph whose launch ends here */
    /* -- only in graphs: what a launch enqueues for these depends on the event in `own` -- */
    WORK_EVENT_WAIT,
    WORK_EVENT_RECORD,
    WORK_NOTHING
};

struct work {
    enum work_kind kind;
    uint32_t value;
    void *dst;                         /* WRITE: the word to write */
    const void *src;                   /* WAIT: the word to wait for */
    size_t bytes;                      /* ROWS: bytes in one row */
    size_t rows, dst_pitch, src_pitch; /* used by ROWS only */
    /* REDUCE: a struct cecl_reduction with its sources behind it; SMALL: a struct small_work;
     * CALL: what begins with a struct cecl_stream_call; SPLITS: a struct cecl_splits; SUMS: a
     * struct cecl_row_sums */
    void *own;
    bool lent; /* `own` belongs to the graph */
};

/* A copy of a small call, with copies of what it points to. */
struct small_work {
    struct cecl_small small;
    struct cecl_meeting meeting;
    struct cecl_counting counting;
};

struct host_stream {
    uint64_t id;
    struct host_device *host;
    struct host_stream *next; /* the next one in the device's list */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;  /* signalled when work was added or `ending` was set */
    pthread_cond_t reached; /* signalled when `finished` has reached `notify` */
    struct work *queue;     /* a ring of `capacity` entries */
    size_t capacity, head, count;
    uint64_t finished; /* number of entries done so far */
    uint64_t notify;   /* the smallest value of `finished` that a thread waits for */
    uint64_t batches;  /* number of batches enqueued so far */
    /* for host_stream_after: how many marks were given out, and the last mark that was reached */
    uint32_t marks, mark;
    bool ending;
    struct host_graph *capture; /* what the stream captures; NULL: nothing */
};

/* Finds the stream of a handle. NULL and CUDA's two handles of default streams name the device's
 * default stream. */
ceclResult_t host_stream_find(struct cecl_device *dev, ceclStream_t handle,
                              struct host_stream **out);
/* Makes room for `count` entries, in the queue or in the graph that the stream captures. On success the
 * stream's lock is held until host_finish_adding. */
ceclResult_t host_begin_adding(struct cecl_device *dev, ceclStream_t handle, size_t count,
                               struct host_stream **out);
void host_add(struct host_stream *stream, struct work work);
void host_finish_adding(struct host_stream *stream);

/* host_capture.c */
ceclResult_t host_graph_reserve(struct host_graph *graph, size_t more);
void host_graph_add(struct host_graph *graph, struct work work);
/* Gives back a reference: the owner's, the capturing stream's or a launch's. */
void host_graph_drop(struct host_graph *graph);
extern const struct cecl_capture_ops host_capture_ops;

#endif
