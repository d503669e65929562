/* Requests: launches that are made once and started often.
 *
 *     made      described, settled and checked. Its places are published in a ring of places that only
 *               requests use, so that no rank waits for its peers here.
 *     read      what the peers published for it is read: when another request is made and all of them have
 *               published, or at its first start, which waits until they have. Nobody is late to a request.
 *     bound     at its first start. It has a program of its own.
 *     started   any number of times: the cells of the program are filled, and it is issued.
 *
 * Requests are read in the order in which they were made, which is the same on all ranks. A start knows
 * the places of all ranks, so a peer that has not come yet costs nothing here: the stream waits for it, in
 * the program's first barrier.
 *
 * Messages of a request are described and settled once. At each start they are posted as all messages are,
 * because who comes second moves the bytes.
 *
 * Threads: those that are inside the communicator, one at a time. */
#ifndef CECL_LAUNCH_REQUEST_H
#define CECL_LAUNCH_REQUEST_H

#include "launch/launch.h"

#define CECL_REQUEST_MAGIC 0x63657271u

/* Bytes of a registered window, or of private memory that the device checks, which a start looks at. */
struct cecl_watched {
    const struct cecl_window *window;
    struct cecl_use use;
    struct cecl_range *ranges; /* of the use, if it has any */
};

struct ceclRequest {
    uint32_t magic;
    ceclComm_t comm;                 /* NULL: it has ended */
    struct cecl_launch *collectives; /* NULL: it has none */
    struct cecl_launch *messages;    /* NULL: it has none. Only their descriptions are used */
    bool is_read;                    /* what the peers published is read */
    bool is_bound;                   /* it has its program */
    bool is_grouped;                 /* several calls */
    bool is_stale;                   /* memory of the pool that it uses was freed */
    bool is_freed;                   /* by the caller, and kept for the library */
    bool is_started;                 /* at least once; then: */
    uint32_t target;                 /* the flags' `done` after its last start */
    /* -- of its last start that was not refused -- */
    uint32_t begun;               /* the epoch of the main lane before it */
    uint32_t end;                 /* the flags' `done` after it */
    const struct cecl_bound *ran; /* its program */
    /* a number of its own among the communicator's requests with collectives; equal on all ranks */
    uint32_t number;
    uint32_t signature; /* of a start, for the history */
    struct cecl_early_part {
        /* it may be made ready: all of its calls gather, and each rank has a slot for it; equal on all ranks */
        bool may;
        uint32_t slot, value; /* this rank's; the value grows each time that it is made ready */
        uint64_t *slots;      /* [nranks] of all ranks: slot and first value; NULL: not read yet */
        uint32_t count;       /* how often it was made ready */
        uint64_t *given;      /* [2 * nranks] what `signals` takes */
        bool is_awaited;      /* ready: the start waits for signals, and exchanges no flags */
        uint64_t awaited[2];  /* what `program` takes: whose slot here, and which value */
        struct cecl_bound *signals, *program; /* made when they are first needed */
    } early;
    bool is_ready;                /* it was made ready, and not started since */
    struct cecl_watched *watched; /* [nwatched] */
    uint32_t nwatched;
    uint64_t send_bytes, recv_bytes; /* for the timeline */
    struct ceclRequest
        *next; /* in the communicator's list, oldest first, or in the list of freed handles */
};

/* -- request_make.c -- */

/* Makes a request of launches that are described, and takes them over also on failure. `local` is this
 * rank's verdict on the calls, with its message recorded. `call` is what ranks compare of a lone call,
 * NULL for a group.
 * *made is written on success only. */
ceclResult_t cecl_request_make(ceclComm_t comm, struct cecl_launch *collectives,
                               struct cecl_launch *messages, const struct cecl_call *call,
                               ceclResult_t local, ceclRequest_t *made);
/* Reads what the peers published for this request, and gives it a program. Waits for the peers to make it. */
ceclResult_t cecl_request_bind(ceclRequest_t request);

/* -- request.c -- */

/* A request that is all zero; NULL without host memory. */
ceclRequest_t cecl_request_take(void);
/* Adds it to its communicator's list. */
void cecl_request_enlist(ceclRequest_t request);
/* Takes it out of the list, if it is there, and lets go of all that it has. No work of it may be pending. */
void cecl_request_discard(ceclRequest_t request);
/* Refuses a handle that is NULL, freed, or of a communicator that has ended. */
ceclResult_t cecl_request_check(ceclRequest_t request);
/* Frees a request, unless it is pending. */
ceclResult_t cecl_request_free(ceclRequest_t request);
/* Frees the handle of a request whose communicator has ended; false: it has not. */
bool cecl_request_forget(ceclRequest_t request);
/* Notes which requests can no longer be started, because memory of the pool that they use was freed. */
void cecl_requests_lose_memory(ceclComm_t comm);
/* The communicator ends. Its requests can only be freed from now on. `drained`: no work is pending. */
void cecl_requests_end(ceclComm_t comm, bool drained);

/* Refuses a start whose memory is not what it was. A look as a start takes it. */
ceclResult_t cecl_request_check_memory(ceclRequest_t request);

/* -- early_slot.c: what requests that may be made ready have at each rank -- */

/* Whether all calls of a launch are all-gathers. */
bool cecl_early_gathers(const struct cecl_launch *launch);
/* Takes a slot for a request whose calls all gather, before it is told. */
void cecl_early_begin(ceclRequest_t request);
/* Keeps what the peers told of their slots. */
ceclResult_t cecl_early_read(ceclRequest_t request);
/* Gives back what a request has. No work of it may be pending. */
void cecl_early_end(ceclRequest_t request, bool frees_slot);

/* -- early.c: requests that are made ready before they are started -- */

/* Tells all peers, in the order of `stream`, that they may write to the buffers of these requests, with one
 * exchange of flags for all of them. They are of one communicator. */
ceclResult_t cecl_requests_ready(ceclRequest_t *requests, int count, ceclStream_t stream);

/* -- chunk.c -- */

/* Makes a stream wait until a chunk of a rank's block, or with peer -1 of all ranks', has come in the last start. */
ceclResult_t cecl_request_wait_chunk(ceclRequest_t request, int peer, int chunk,
                                     ceclStream_t stream);

/* -- start.c -- */

ceclResult_t cecl_request_start(ceclRequest_t request, ceclStream_t stream);

#endif
