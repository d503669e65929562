/* What a communicator needs for its launches. */
#ifndef CECL_LAUNCH_LAUNCHER_H
#define CECL_LAUNCH_LAUNCHER_H

#include "alloc/posts.h"
#include "launch/bounce.h"
#include "launch/launch.h"
#include "launch/one_sided.h"

#define CECL_KEPT_SETS 64
#define CECL_KEPT_WAYS 4

/* Requests with so many calls may be made before one of them is started. */
#define CECL_REQUEST_ENTRIES 1024u

/* What messages need beside their launch. */
struct cecl_messenger {
    struct cecl_posts posts;
    /* plan of the last launch of messages; later launches reuse the memory */
    struct cecl_plan plan;
    struct cecl_bound bound;
    uint64_t groups;     /* number of groups that this rank has posted */
    uint32_t *counts;    /* [CECL_ROLES][nranks] messages of the group that is being made */
    ceclStream_t *lanes; /* [nlanes] streams of the communicator's own, which outlive plans */
    int nlanes;
    uint32_t *order; /* [room] for lowering */
    uint32_t room;   /* messages that fit into `order` */
};

struct cecl_launcher {
    struct cecl_launch *spare; /* the store */
    /* launches that were dropped by threads which were not inside the communicator */
    _Atomic(struct cecl_launch *) returned;
    struct cecl_launch *kept[CECL_KEPT_SETS][CECL_KEPT_WAYS];
    struct cecl_launch *captured;      /* a list: those that graphs hold */
    unsigned victim[CECL_KEPT_SETS];   /* which of each set is replaced next */
    const struct cecl_launch *making;  /* whose deadline ends the host's waits; NULL: none */
    struct cecl_places places;         /* where ranks tell each other places */
    struct cecl_places request_places; /* the same of requests */
    ceclRequest_t requests;            /* a list, the oldest first */
    uint32_t nrequests;                /* with collectives, so far */
    struct cecl_bounces bounces;
    struct cecl_messenger messenger;
    struct cecl_one_sided_room one_sided;
    /* rooms for what is made one at a time */
    struct cecl_place_record *records; /* [records_room] this rank's records of its calls */
    uint32_t records_room;
    struct cecl_place_record *gathered; /* over hosts: [nranks] times the records of a launch */
    uint64_t *layout; /* for the call that is being described; room for the longest layout */
    void *exchange;   /* [nranks + 1] layouts: see exchange.c */
    /* for a group: on which other communicators it compares calls, as a hash; 0: none */
    uint64_t compared;
    /* the last comparison found that all ranks compare on the same communicators */
    bool compares_alike;
    uint64_t plans_made; /* counted for a test that repeated calls make no plan */
};

/* Local. Returns false without host memory. */
bool cecl_launcher_new(ceclComm_t comm);
/* Opens the ring of places, the posts and the counters of messages. comm->shared must be open, and
 * comm->hosted if there are peers. All ranks must do this before any rank makes a call. Local. */
ceclResult_t cecl_launcher_open(ceclComm_t comm);
/* Frees the launcher, while the device is still open. If work is pending (not `drained`), the
 * launcher stays. */
void cecl_launcher_free(ceclComm_t comm, bool drained);

#endif
