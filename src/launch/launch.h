/* A launch: a call in flight, or several calls of a communicator that are carried out as one.
 *
 * A launch is a lone call, or a group's collectives on one communicator, or a group's messages on one, or copies within
 * this rank that another launch needs. A launch owns everything of a call in flight: the description, what ranks have
 * told each other, the program, the windows and imports in use, and leases. A description never changes. If a call gets
 * a bounce buffer, another window, or a layout from peers, a new description is derived from the first one.
 *
 * A launch comes from its communicator's store (store.c) and goes back to it. But most launches for which a program was
 * made are kept (plan.c). A later launch with an equal key (calls, and what ranks told) runs that program. */
#ifndef CECL_LAUNCH_LAUNCH_H
#define CECL_LAUNCH_LAUNCH_H

#include "alloc/places.h"
#include "ce/bound.h"
#include "ce/messages.h"
#include "comm/comm.h"
#include "plan/describe.h"

enum cecl_launch_state {
    CECL_LAUNCH_BEGUN,
    CECL_LAUNCH_ENQUEUED, /* all of it is on its stream; the word `done` shows when the stream has executed it */
    CECL_LAUNCH_BROKEN /* given up after an error */
};

enum cecl_launch_kind {
    CECL_LAUNCH_COLLECTIVES, /* calls that all ranks make */
    CECL_LAUNCH_MESSAGES,    /* ceclSend and ceclRecv: two ranks take part in each message */
    CECL_LAUNCH_ALLOCATIONS, /* a group's calls of ceclMemAlloc, which come before its other calls; never enqueued */
    CECL_LAUNCH_CARRIED /* copies within this rank, before or after another launch */
};

static inline enum cecl_launch_kind cecl_launch_kind_of(const struct cecl_op *op)
{
    return op->family == CECL_FAMILY_MESSAGE ? CECL_LAUNCH_MESSAGES : CECL_LAUNCH_COLLECTIVES;
}

/* Parts of the communicator's memory that a launch uses until it is dropped. Staging and the slots of small calls need
 * no lease, because launches use them one after the other. */
struct cecl_leases {
    bool has_bounce; /* the launch has leased a part of a bounce buffer (launcher.h) */
    uint64_t first,
        behind; /* where the launch's first lease begins in the bounce buffer, and where its last lease ends */
    struct cecl_launch *before, *after; /* lists of CARRIED launches around this one */
};

/* Facts about a call that are not part of its description. */
struct cecl_origin {
    size_t layout;    /* index of the layout's first word in `layouts` */
    uint64_t changes; /* value of the registry's `changes` when the call's windows were found */
    /* the caller's recvbuff, if the call has a bounce buffer in its place; otherwise NULL */
    const void *recv;
    /* the buffer from which peers that come later fetch the input: the call's own, or a bounce buffer */
    struct cecl_buffer lent;
    uint32_t number; /* the call's number in its group, from 1 on; 0: it is in no group */
};

/* An allocation of a group. */
struct cecl_wish {
    void **ptr; /* the caller's variable */
    size_t bytes;
    void *got; /* the allocation, for *ptr */
};

/* Where a message's bytes lie on both ranks. */
struct cecl_pair_place {
    const struct cecl_call *call;
    struct cecl_buffer here;       /* the caller's buffer */
    struct cecl_buffer posted;     /* the buffer that peers use: `here`, or a bounce buffer */
    struct cecl_peer_buffer there; /* the peer's buffer, if this rank came second */
    /* how many notices about memory the peer had sent before it posted this message */
    uint64_t version;
};

struct cecl_launches;
struct cecl_launch {
    ceclComm_t comm;
    struct cecl_launch *next; /* in the store, or in a list of launches that are made together */
    uint8_t state, kind;
    /* peers rely on the launch: they know of it, or a part of it is enqueued */
    bool is_owed;
    bool is_grouped;  /* the launch's calls are in a group */
    bool is_asked;    /* the stream was valid when the launch was taken */
    bool is_captured; /* a graph captures the launch; see captured.c below */
    bool is_held;     /* a graph holds the launch */
    bool is_gone;     /* the graph that held the launch is gone */
    struct cecl_capture capture;
    struct cecl_launch *next_held; /* in the list of launches that graphs hold */
    ceclStream_t stream;
    int64_t deadline; /* when the host stops waiting for peers (see cecl_deadline) */
    struct cecl_leases leases;

    /* -- the calls: first `nfull` calls that do something, then those that do nothing (cecl_call_is_empty) -- */
    struct cecl_call *calls;
    struct cecl_origin *origins; /* [ncalls] */
    uint32_t ncalls, nfull, room;
    /* in a group. number: the latest call's. group_calls: how many calls the group has; set at the group's end */
    uint32_t number, group_calls;
    uint64_t *layouts; /* the layouts of all calls */
    size_t nlayouts, layouts_room;
    uint32_t signature; /* signature of the first `nfull` calls; set if the launch owns a program */
    /* for check.c: the list that this launch is in. NULL: ranks do not compare the launch's calls */
    const struct cecl_launches *all;
    ceclResult_t compared; /* the comparison's result; ceclInProgress: not compared yet */

    /* -- what ranks have told each other -- */
    struct cecl_places_group places; /* the launch's entries in the ring of places */
    bool is_open;                    /* published, but whether a rank is late is not known yet */
    struct cecl_told told;           /* its arrays belong to the launch */
    uint32_t told_room;              /* for how many calls the arrays of `told` have room */

    /* -- the program -- */
    /* the launch whose program this launch runs: itself or a kept launch; NULL: no program */
    struct cecl_launch *runs;
    struct cecl_bound *program;  /* the launch's own program */
    struct cecl_imports imports; /* the peers' windows that the program uses */
    /* for a kept launch: generation_of() (plan.c) when its buffers were last checked */
    uint64_t checked;
    uint64_t hash; /* hash of the first `nfull` calls; by it kept launches are found */
    int like; /* index of the first kept launch with equal calls in its set; CECL_KEPT_WAYS: none */
    uint32_t users; /* for a kept launch: how many launches are about to run its program */
    bool is_kept;

    /* -- messages -- */
    struct cecl_message *messages;     /* [nmessages] messages with peers */
    struct cecl_pair_place *places_of; /* [nmessages] */
    struct cecl_ends *ends;            /* [nmessages] addresses of the bytes that this rank moves */
    uint32_t *order;                   /* [nmessages] for lowering */
    uint32_t nmessages, messages_room;

    struct cecl_wish *wishes; /* [nwishes] allocations of a group */
    uint32_t nwishes, wishes_room;
};

/* -- store.c -- */

/* Takes a launch, without calls, from the store. NULL: there is no host memory. */
struct cecl_launch *cecl_launch_take(ceclComm_t comm, enum cecl_launch_kind kind,
                                     ceclStream_t stream);
/* Puts one more launch into the store. Returns false without host memory. */
bool cecl_launch_spare(ceclComm_t comm);
/* Ends the use of a launch, and gives back its leases. If it is neither kept nor held by a graph, gives back its
 * windows, and puts it into the store. If the communicator has ended, only frees the launch. NULL has no effect. */
void cecl_launch_drop(struct cecl_launch *launch);
/* Like cecl_launch_drop, for a thread that is not inside the communicator. */
void cecl_launch_return(struct cecl_launch *launch);
/* Drops the launches that cecl_launch_return has handed over. */
void cecl_launch_take_returned(ceclComm_t comm);
void cecl_launch_free(struct cecl_launch *launch);
void cecl_launch_free_list(struct cecl_launch *launch);
/* Whether the launch's communicator has ended, or belongs to the parent of this forked process. */
bool cecl_launch_is_left(const struct cecl_launch *launch);

/* Adds a copy of a call's description. The copy holds references to the call's windows. *index: [out] the call's index.
 * An empty call that was added before may get another index. */
ceclResult_t cecl_launch_add(struct cecl_launch *launch, const struct cecl_call *call,
                             uint32_t *index);
/* Replaces call `index` by a call that was derived from it and has a layout of the same size. */
void cecl_launch_derive(struct cecl_launch *launch, uint32_t index,
                        const struct cecl_call *derived);
/* Refuses a stream on which the launch cannot be enqueued or captured. */
ceclResult_t cecl_launch_check_stream(const struct cecl_launch *launch);
/* If `result` is an error of call `index` of a group, makes the recorded message name the call. Returns `result`. */
ceclResult_t cecl_launch_blame(const struct cecl_launch *launch, uint32_t index,
                               ceclResult_t result);
/* Makes room for what ranks tell about the first `nfull` calls. Must be called before ranks compare calls. */
ceclResult_t cecl_launch_reserve_told(struct cecl_launch *launch);
/* Frees memory that a kept launch does not need. */
void cecl_launch_trim(struct cecl_launch *launch);

/* -- describe.c -- */

/* What a description needs to know of the communicator, with its current options. */
struct cecl_scope cecl_comm_scope(ceclComm_t comm);

/* -- state.c -- */

/* Gives up a launch because of the error `result`, whose message must be recorded. If peers rely on the launch, the
 * communicator fails. Returns the communicator's error, or `result`. A launch that was enqueued or given up before does
 * not change. */
ceclResult_t cecl_launch_give_up(struct cecl_launch *launch, ceclResult_t result);
/* Starts the time limit for the host's waits for peers in this launch. */
void cecl_launch_bound_waits(struct cecl_launch *launch);
/* The error of a wait that ended because cecl_launch_goes_on returned false. */
ceclResult_t cecl_launch_wait_ended(const struct cecl_launch *launch);
/* Whether the host may go on waiting for peers: false if the communicator has failed, if the time limit of the launch
 * that is being made has passed, or if this launch is captured and a rank will not come to it. The registry and the
 * places call this function while they wait. */
bool cecl_launch_goes_on(void *comm);
/* Whether the call that is being made is captured. */
bool cecl_launch_captures(const void *comm);

/* -- captured.c: If a call's stream captures a graph, the graph holds the call's launch: the program, the windows and
 * the imports stay until the graph and all that was made from the graph are gone. All ranks must capture a collective,
 * both ranks a message. During the capture ranks learn each other's places, once for all replays.
 *
 * A launch that a graph holds is in the launcher's list. When the graph is gone, a thread of the device hands the
 * launch over (cecl_launch_return), and the communicator's next call drops it. -- */

/* Makes the graph hold the launch. The launch stays held even if only a part of it can be captured afterwards, because
 * a graph with that part may be launched. If this function fails, it has changed nothing. */
ceclResult_t cecl_captured_hold(struct cecl_launch *launch);

/* Waits up to 2 s (gone_ms of the launcher) until no graph holds a call of the communicator. Returns how many calls
 * graphs still hold. Only for a caller that is ending the communicator. */
uint32_t cecl_captured_await(ceclComm_t comm);
/* Returns an error if a captured call uses the allocation at `offset` of the pool. */
ceclResult_t cecl_captured_check_free(ceclComm_t comm, uint64_t offset);

#endif
