/* A launch: a call in flight. One or more calls of a communicator that are carried out as one.
 *
 *     DESCRIBED   its calls are there. Nobody else knows of them.
 *     TOLD        peers know of it, and rely on it.
 *     BOUND       it has a program with addresses. No peer relies on it: there was nothing to tell.
 *     OWED        it has a program, and peers rely on it: they were told, or a part is enqueued.
 *     ENQUEUED    all of it is on its stream. The word `done` (flags/flags.h) tells when the stream
 *                 has come to its end.
 *     BROKEN      it was given up, in whatever state it was.
 *
 * A lone call is a launch, and so are a group's collectives of one communicator, a group's
 * messages, and copies within this rank that another launch needs. A launch owns everything of a
 * call in flight: the description, what ranks told, the program, the windows and imports in use,
 * the order among the communicator's launches, and leases. A description never changes: a call with
 * a bounce buffer, with another window or with a layout from peers is a new description, derived
 * from the first.
 *
 * Launches come from their communicator's store (store.c) and go back there. A launch whose program
 * is new is kept instead (kept.c). An equal launch that comes later runs the kept one's program. */
#ifndef CECL_LAUNCH_LAUNCH_H
#define CECL_LAUNCH_LAUNCH_H

#include "alloc/places.h"
#include "call/describe.h"
#include "ce/bound.h"
#include "ce/messages.h"
#include "comm/comm.h"

enum cecl_launch_state {
    CECL_LAUNCH_DESCRIBED,
    CECL_LAUNCH_TOLD,
    CECL_LAUNCH_BOUND,
    CECL_LAUNCH_OWED,
    CECL_LAUNCH_ENQUEUED,
    CECL_LAUNCH_BROKEN,
    CECL_LAUNCH_STATES
};

enum cecl_launch_kind {
    CECL_LAUNCH_COLLECTIVES, /* calls that all ranks make */
    CECL_LAUNCH_MESSAGES,    /* ceclSend and ceclRecv: two ranks make each of them */
    CECL_LAUNCH_CARRIED      /* copies within this rank, before or behind another launch */
};

static inline enum cecl_launch_kind cecl_launch_kind_of(const struct cecl_op *op)
{
    return op->family == CECL_FAMILY_MESSAGE ? CECL_LAUNCH_MESSAGES : CECL_LAUNCH_COLLECTIVES;
}

/* Its place among the launches of its communicator. Launches run in the order in which they are
 * enqueued, on any streams. If a launch is on another stream than the one before, its stream first
 * waits until `done` says that the earlier launch has ended. */
struct cecl_order {
    ceclStream_t stream;
    int64_t deadline; /* when the host's waits for peers end (see cecl_deadline) */
};

/* A list of copies between buffers of this rank. */
struct cecl_carried {
    struct cecl_call *calls; /* [count] of the op CECL_OP_CARRY */
    uint32_t count, room;
};

/* Parts of the communicator's memory that a launch uses until it is enqueued or given up. Staging,
 * slots and halves need no lease, because their use follows the order of launches. */
struct cecl_leases {
    bool has_bounce;        /* it has a part of the bounce buffers: see bounce.h */
    uint64_t first, behind; /* which bytes, if they are the last ones leased */
    struct cecl_carried before, after;
    struct cecl_bounce *own; /* a request's bounce buffer, for as long as the request lives */
};

/* Facts about a call that are not part of its description. */
struct cecl_origin {
    size_t layout;    /* where the call's layout begins in `layouts`, in words */
    uint64_t changes; /* the registry's `changes` when the call's windows were found */
};

/* Where a message's bytes lie on both ranks. */
struct cecl_pair_place {
    const struct cecl_call *call;
    struct cecl_buffer here;       /* the caller's buffer */
    struct cecl_buffer posted;     /* what peers are told: `here`, or a bounce buffer */
    struct cecl_peer_buffer there; /* if this rank came second: the peer's buffer */
    /* how many messages about its memory the peer had sent by then */
    uint64_t version;
};

struct cecl_launch {
    ceclComm_t comm;
    struct cecl_launch *next; /* in the store, or in the list of launches that are made together */
    uint8_t state, kind;
    bool is_grouped;  /* its calls are not made by themselves */
    bool is_request;  /* it is made once and started often: see request.h */
    bool is_captured; /* a graph captures it, and replays it: captured.h */
    bool is_held;     /* kept for the graph that captured it */
    bool is_gone;     /* that graph is gone */
    struct cecl_capture capture;
    struct cecl_launch *next_held; /* in the list of launches that graphs hold */
    struct cecl_order order;
    struct cecl_leases leases;

    /* -- what is asked: calls, those without effect last -- */
    struct cecl_call *calls;
    struct cecl_origin *origins; /* [ncalls] */
    uint32_t ncalls, nfull, room;
    uint64_t *layouts; /* of all calls */
    size_t nlayouts, layouts_room;
    uint32_t signature; /* of the calls with effect; in a launch that owns a program */

    /* -- what was told -- */
    uint64_t slot; /* a request's: what peers signal when its buffers may be written; see early.h */
    struct cecl_places *ring;        /* in which ranks tell it */
    struct cecl_places_group places; /* where ranks meet */
    bool is_open;                    /* published, and the outcome is not known yet */
    struct cecl_told told;           /* what ranks told; its arrays are these: */
    struct cecl_peer_buffer *buffers;
    uint64_t *send_at, *outside;
    struct cecl_buffer *lent; /* this rank's inputs, or bounce buffers that peers use instead */
    uint32_t told_room;       /* calls for which these four have room */

    /* -- how it goes -- */
    /* the launch whose program it runs: itself or a kept one; NULL: none */
    struct cecl_launch *runs;
    struct cecl_bound *program;  /* its own program */
    struct cecl_imports imports; /* the peers' windows that the program uses */
    uint64_t checked; /* kept: the generation of memory when its buffers were last checked */
    uint64_t hash;    /* hash of its calls with effect, by which it is kept */
    uint32_t users;   /* kept: launches that are about to run its program */
    bool is_kept;

    /* -- messages -- */
    struct cecl_message *messages;     /* [nmessages] messages with peers */
    struct cecl_pair_place *places_of; /* [nmessages] */
    struct cecl_ends *ends;            /* [nmessages] where the bytes lie that this rank moves */
    uint32_t nmessages, messages_room;
    uint32_t npulled, npushed; /* how many messages this rank moves */

    char path[64];    /* how the call went, for the trace */
    uint32_t said[3]; /* the numbers in `path`: nmessages, npushed and npulled */
};

/* -- store.c -- */

/* Takes a launch without calls, or returns NULL if there is no host memory. */
struct cecl_launch *cecl_launch_take(ceclComm_t comm, enum cecl_launch_kind kind,
                                     ceclStream_t stream);
/* Puts one more launch into the store. Returns false without host memory. */
bool cecl_launch_spare(ceclComm_t comm);
/* Ends the use of a launch: gives back its windows and leases. A launch whose program is new is
 * kept; others go back to the store. If the communicator has ended since, the launch is freed. NULL
 * has no effect. */
void cecl_launch_drop(struct cecl_launch *launch);
/* The same for a thread that is not inside the communicator. */
void cecl_launch_return(struct cecl_launch *launch);
/* Takes in what other threads have returned. */
void cecl_launch_take_returned(ceclComm_t comm);
/* Puts a kept launch that has lost its place back into the store. */
void cecl_launch_unkeep(struct cecl_launch *launch);
void cecl_launch_free(struct cecl_launch *launch);
/* Whether its communicator has ended, or belongs to the parent of a forked process. */
bool cecl_launch_is_left(const struct cecl_launch *launch);

/* Adds a call: a copy of the description, which holds its windows. *index: its index. This may
 * change the index of an empty call that was added before. */
ceclResult_t cecl_launch_add(struct cecl_launch *launch, const struct cecl_call *call,
                             uint32_t *index);
/* Replaces call `index` by one that was derived from it. Both must have layouts of equal size. */
void cecl_launch_derive(struct cecl_launch *launch, uint32_t index,
                        const struct cecl_call *derived);
/* Makes room for what ranks tell of the calls with effect. */
ceclResult_t cecl_launch_reserve_told(struct cecl_launch *launch);
/* Frees memory that a kept launch does not need. */
void cecl_launch_trim(struct cecl_launch *launch);

/* -- state.c -- */

/* Whether a launch may go from one state to another. Has the only table of that. */
bool cecl_launch_may(enum cecl_launch_state from, enum cecl_launch_state to);
void cecl_launch_go(struct cecl_launch *launch, enum cecl_launch_state to);
/* Whether peers rely on it, and not all of it is enqueued yet. */
static inline bool cecl_launch_is_owed(const struct cecl_launch *launch)
{
    return launch->state == CECL_LAUNCH_TOLD || launch->state == CECL_LAUNCH_OWED;
}
/* Peers rely on it from now on, if it has not ended: TOLD, or OWED if it has a program. */
void cecl_launch_owe(struct cecl_launch *launch);
/* It has a program: BOUND, or OWED if peers rely on it. */
void cecl_launch_bound(struct cecl_launch *launch);
/* Gives a launch up, in whatever state it is, because of an error whose message is recorded. If
 * peers rely on the launch, the communicator fails. Returns the communicator's error, or `result`.
 * Does nothing to a launch that has ended. */
ceclResult_t cecl_launch_give_up(struct cecl_launch *launch, ceclResult_t result);
/* Starts the time limit of the host's waits for peers of this launch. */
void cecl_launch_bound_waits(struct cecl_launch *launch);
/* -- missing.c -- */

/* A rank that has left, or made another call, without making this request; or -1. Calls that are no
 * requests do not wait for long. */
int cecl_launch_gone(const struct cecl_launch *launch);
/* The error of a wait that cecl_launch_goes_on ended. */
ceclResult_t cecl_launch_wait_ended(const struct cecl_launch *launch);
/* Whether the host's waits for peers go on. They do while the communicator has not failed, and the
 * launch that is being made is in time. For the registry and the places. */
bool cecl_launch_goes_on(void *comm);

#endif
