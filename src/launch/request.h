/* Requests: launches that are made once and started often.
 *
 *     made      described, settled and checked. Its places are published in a ring of places that only
 *               requests use, so that no rank waits for its peers here.
 *     read      the places that the peers published for it are read: when another request is made and all
 *               ranks have published, or at the first start, which waits until they have. No rank is late to
 *               a request.
 *     bound     at the first start. It has a program of its own.
 *     started   any number of times: the cells of the program are filled, and it is issued.
 *
 * Requests are read in the order in which they were made. All ranks make requests in the same order. A
 * start knows the places of all ranks, so a peer that has not started yet costs the host nothing: the
 * stream waits for it, in the program's first barrier.
 *
 * Messages of a request are described and settled once. Each start posts them as all messages are posted,
 * because the rank that comes second moves the bytes.
 *
 * A start on a stream that captures a graph makes new launches from the request's calls, which the graph holds. So
 * it uses no program of the request, needs no peer to have made the request, and does not count as a start.
 *
 * Threads: those that are inside the communicator, one at a time. */
#ifndef CECL_LAUNCH_REQUEST_H
#define CECL_LAUNCH_REQUEST_H

#include "launch/launch.h"

#define CECL_REQUEST_MAGIC 0x63657271u

/* Bytes that each start checks: of a registered window, or of private memory that the device can check. */
struct cecl_watched {
    const struct cecl_window *window;
    struct cecl_use use;
    struct cecl_range *ranges; /* the ranges of `use`, or NULL */
};

struct ceclRequest {
    uint32_t magic;
    ceclComm_t comm;                 /* NULL: the communicator has ended */
    struct cecl_launch *collectives; /* NULL: no collectives */
    struct cecl_launch *messages;    /* NULL: no messages. Only their descriptions are used */
    bool is_read;                    /* the places that peers published were read */
    bool is_bound;                   /* the request has its program */
    bool is_grouped;                 /* the request has several calls */
    bool is_stale;                   /* memory of the pool that the request uses was freed */
    bool is_freed;   /* the caller has freed the request, but the library still needs it */
    bool is_started; /* the request was started at least once */
    bool is_used; /* starts have enqueued work, which has ended once `done` has reached `target` */
    uint32_t target;
    /* -- the last start that was not refused -- */
    uint32_t begun;               /* the epoch of the main lane before the start */
    uint32_t end;                 /* the value of `done` after the start */
    const struct cecl_bound *ran; /* the program that the start ran */
    /* number of the request among the communicator's requests with collectives; equal on all ranks */
    uint32_t number;
    uint32_t signature; /* signature of a start, for the history */
    struct cecl_early_part {
        /* making the request ready has an effect, because all its calls are all-gathers and each rank has a
         * slot. Equal on all ranks */
        bool may;
        uint32_t slot,
            /* this rank's slot and value; the value grows each time that the request is made ready */
            value;
        /* [nranks] each rank's slot and the slot's first value; NULL: these were not read yet */
        uint64_t *slots;
        uint32_t count;  /* how often the request was made ready */
        uint64_t *given; /* [2 * nranks] the slots and values that `signals` is issued with */
        bool
            is_awaited; /* if is_ready: the start waits for early signals instead of the first barrier */
        uint64_t
            awaited[2]; /* given values for `program`: a slot of this rank, and the awaited value */
        struct cecl_bound *signals, *program; /* made when first needed */
    } early;
    bool is_ready;                /* the request was made ready, and not started since */
    struct cecl_watched *watched; /* [nwatched] */
    uint32_t nwatched;
    uint64_t send_bytes, recv_bytes; /* for the trace */
    struct ceclRequest
        *next; /* in the communicator's list, oldest first, or in the list of freed handles */
};

/* -- request_make.c -- */

/* Makes a request from described launches, and takes them over even on failure. `local`: the result of
 * describing the calls, with its message recorded. `call`: the description that ranks compare, if it is a
 * lone call; NULL for a group. *made is written only on success. */
ceclResult_t cecl_request_make(ceclComm_t comm, struct cecl_launch *collectives,
                               struct cecl_launch *messages, const struct cecl_call *call,
                               ceclResult_t local, ceclRequest_t *made);
/* Reads the places that peers published for this request, and gives it a program. Waits until the peers have
 * made the request. */
ceclResult_t cecl_request_bind(ceclRequest_t request);
/* Returns the error of a program that could not be made, of which nothing was enqueued. If a peer has freed or
 * replaced memory, only this start is refused. Other errors fail the communicator if peers rely on the request. */
ceclResult_t cecl_request_unbound(ceclRequest_t request, ceclResult_t result);

/* -- request.c -- */

/* Takes a zeroed request; NULL without host memory. */
ceclRequest_t cecl_request_take(void);
/* Adds a request to its communicator's list. */
void cecl_request_enlist(ceclRequest_t request);
/* Takes a request out of the list, if it is there, and frees everything that it has. No work of it may be
 * pending. */
void cecl_request_discard(ceclRequest_t request);
/* Refuses a handle that is NULL or freed, or whose communicator has ended. */
ceclResult_t cecl_request_check(ceclRequest_t request);
/* Frees a request, unless it is pending. */
ceclResult_t cecl_request_free(ceclRequest_t request);
/* Frees the handle of a request whose communicator has ended. Returns false if it has not ended. */
bool cecl_request_forget(ceclRequest_t request);
/* Notes which requests can no longer be started, because memory of the pool that they use was freed. */
void cecl_requests_lose_memory(ceclComm_t comm);
/* Call it when the communicator ends: from now on its requests can be freed, but not used. `drained`: no
 * work is pending. */
void cecl_requests_end(ceclComm_t comm, bool drained);

/* Returns an error if the request's memory was freed or replaced. Each start calls it. */
ceclResult_t cecl_request_check_memory(ceclRequest_t request);
/* Records the error of a start for which a peer's memory is missing. */
ceclResult_t cecl_request_refuse_replaced(void);
/* Whether memory of the request was freed or replaced, here or at a peer, so that it can never be started. */
bool cecl_request_is_lost(ceclRequest_t request);

/* -- early_slot.c: the slots of requests that can be made ready -- */

/* Whether all calls of a launch are all-gathers. */
bool cecl_early_gathers(const struct cecl_launch *launch);
/* Takes a slot for a request whose calls all gather, before the request's places are published. */
void cecl_early_begin(ceclRequest_t request);
/* Keeps the slots that the peers have published. */
ceclResult_t cecl_early_read(ceclRequest_t request);
/* Frees the slot and the programs. No work of the request may be pending. */
void cecl_early_end(ceclRequest_t request, bool frees_slot);

/* -- early.c: requests that are made ready before they are started -- */

/* Signals to all peers, in the order of `stream`, that they may write to the buffers of these requests. One
 * exchange of flags serves all requests, which must be on one communicator. */
ceclResult_t cecl_requests_ready(ceclRequest_t *requests, int count, ceclStream_t stream);

/* -- chunk.c -- */

/* Tells a kernel how it can wait for chunks of the last start. */
ceclResult_t cecl_request_describe_chunks(ceclRequest_t request, ceclDeviceChunks_t *chunks);
/* Makes a stream wait until a chunk has arrived in the last start: the chunk of `peer`'s block, or with peer
 * -1 the chunks of all ranks' blocks. */
ceclResult_t cecl_request_wait_chunk(ceclRequest_t request, int peer, int chunk,
                                     ceclStream_t stream);

/* -- start.c -- */

#define CECL_START_ON_SIGNAL "ceclStartOnSignal"
/* A word of the program's for which the stream waits first (flags/gates.h). */
struct cecl_start_signal {
    uint32_t *word, value;
};
/* If the stream captures a graph, captures the request's calls.
 *
 * signal  NULL: the stream waits for no word.
 * path    [out] how captured calls are carried out, for the trace; not written by other starts. */
ceclResult_t cecl_request_start(ceclRequest_t request, const struct cecl_start_signal *signal,
                                ceclStream_t stream, const char **path);

/* -- request_captured.c -- */

/* Captures the request's calls. The request stays as it is. `local`: the result of this rank's checks so far, with
 * its message recorded. *path: [out] as above; valid inside the communicator. */
ceclResult_t cecl_request_capture(ceclRequest_t request, const struct cecl_start_signal *signal,
                                  ceclStream_t stream, ceclResult_t local, const char **path);

#endif
