/* The launcher: a communicator's state for its launches. */
#ifndef CECL_LAUNCH_LAUNCHER_H
#define CECL_LAUNCH_LAUNCHER_H

#include "alloc/posts.h"
#include "launch/launch.h"
#include "launch/one_sided.h"

#define CECL_KEPT_SETS 64
#define CECL_KEPT_WAYS 4

/* Entries of `ends`. If this rank is ahead of a peer by more launches, its GPU counts as not behind. */
#define CECL_TOLD_ENDS 64u

/* Bounce buffers: registered memory of the communicator, which peers use instead of private memory. A launch leases a
 * part of a bounce buffer until the launch is dropped. */
struct cecl_bounce;

struct cecl_bounces {
    struct cecl_bounce *memory; /* a list of bounce buffers; new leases are in the first one */
    uint64_t used;              /* how many bytes of the first buffer are leased */
    uint32_t leases;            /* how many launches have a lease */
};

/* The program of a launch of messages, or of a one-sided call. Issued once; the next such program reuses its memory. */
struct cecl_once {
    struct cecl_plan plan;
    struct cecl_bound bound;
    uint64_t *given; /* [given_room] values for cells of the program */
    uint32_t given_room;
};

/* A communicator's state for messages. */
struct cecl_messenger {
    struct cecl_posts posts;
    uint64_t groups; /* how many groups this rank has posted, not counting captured ones */
    uint64_t group;  /* number of the group that is being posted; if captured, its ticket */
    /* [CECL_ROLES][nranks] how many messages the group that is being made has, by role and peer */
    uint32_t *counts;
    ceclStream_t *lanes; /* [nlanes] streams of the communicator, which plans of messages use */
    int nlanes;
};

struct cecl_launcher {
    struct cecl_launch *spare; /* the store */
    /* launches that threads outside the communicator have handed over (cecl_launch_return) */
    _Atomic(struct cecl_launch *) returned;
    struct cecl_launch *kept[CECL_KEPT_SETS][CECL_KEPT_WAYS];
    struct cecl_launch *captured; /* a list of the launches that graphs hold */
    int gone_ms; /* most ms to wait until the device reports that a graph was destroyed; tests change it */
    unsigned victim[CECL_KEPT_SETS]; /* which launch of each set is replaced next */
    /* the launch that is being made: its deadline ends the host's waits; NULL: no deadline does */
    const struct cecl_launch *making;
    struct cecl_places places; /* where ranks publish the places of buffers */
    /* A ring of the latest enqueued launches whose places were published. call: the number of a launch's last call in
     * `places`. target: the value of `done` once the launch is done. nends: entries written so far. */
    struct cecl_told_end {
        uint64_t call;
        uint32_t target;
    } ends[CECL_TOLD_ENDS];
    uint64_t nends;
    struct cecl_bounces bounces;
    struct cecl_once once;
    struct cecl_messenger messenger;
    struct cecl_one_sided_room one_sided;
    /* `layout`, `exchange`: memory that one call at a time uses */
    uint64_t *layout; /* for the call that is being described; room for the longest layout */
    void *exchange;   /* what all ranks have sent in the latest exchange: see exchange.h */
    /* a hash of all communicators on which the group that is being made compares calls; 0: this communicator alone */
    uint64_t compared;
    /* in the last comparison all ranks had the same `compared` */
    bool compares_alike;
    uint64_t plans_made; /* for a test that repeated calls make no plans */
};

/* Makes room for the values of a program that is issued once. */
ceclResult_t cecl_once_reserve(struct cecl_once *once, uint32_t ngiven);
/* Returns the plan that a lowering is to fill. aside: see struct cecl_plan. */
struct cecl_plan *cecl_once_plan(ceclComm_t comm, bool captured, bool aside);
/* Makes the program from the plan. ends: see struct cecl_bound. */
ceclResult_t cecl_once_bind(ceclComm_t comm, const struct cecl_ends *ends);

/* Makes a launcher. Returns false without host memory. */
bool cecl_launcher_new(ceclComm_t comm);
/* Opens the places, the posts and the counters of messages. comm->shared must be open. All
 * ranks must call this before any rank makes a call. Local. */
ceclResult_t cecl_launcher_open(ceclComm_t comm);
/* Frees the launcher, unless work is pending (`drained` is false). The device must still be open. */
void cecl_launcher_free(ceclComm_t comm, bool drained);

#endif
