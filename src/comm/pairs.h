/* Messages between two ranks: ceclSend and ceclRecv.
 *
 * Only the two ranks of a message take part, so nothing of a collective applies: no rank compares the
 * call with its peers, and other ranks count no epoch for it. The messages of a group, or the one
 * message of a call outside of groups, go through three steps:
 *
 *     check   Everything that can be refused is checked here. A rank waits at most until each peer has
 *             room for the messages, which it has unless it is hundreds of messages behind.
 *     post    Tells the peers where the buffers lie (alloc/posts.h). From here on they rely on it.
 *             Each message finds out which of its ranks came second. No rank waits long for another
 *             one: a group that exchanges much posts what it receives, waits some microseconds for
 *             the peers to do the same, and then posts what it sends. If all come in time, each rank
 *             comes second to what it sends, and the copy engines of all move a part.
 *     issue   Enqueues what this rank does (ce/pairs.h). The rank that came second waits here for memory
 *             of the peer's that is still being imported.
 *
 * Private memory of the rank that came first has a bounce buffer, because the other rank moves the
 * bytes. What a rank sends to itself is carried as private memory is (carry.h). */
#ifndef CECL_COMM_PAIRS_H
#define CECL_COMM_PAIRS_H

#include "alloc/posts.h"
#include "ce/pairs.h"
#include "comm/carry.h"

struct cecl_pair_place;

/* What a communicator needs for messages. */
struct cecl_pairs {
    struct cecl_posts posts;
    struct cecl_pair_flags flags;
    struct cecl_pair_plan plan;
    uint64_t groups; /* that this rank has posted */
    /* -- of the group that is being made -- */
    bool owes;                      /* it is posted, and not enqueued yet */
    struct cecl_message *messages;  /* [count] those with peers */
    struct cecl_pair_place *places; /* [count] */
    uint32_t count, room;
    uint32_t pulled;                   /* how many of them this rank receives and moves */
    uint32_t pushed;                   /* how many of them this rank sends and moves */
    struct cecl_carried before, after; /* copies within this rank */
    struct cecl_memop *ops;
    void **pointers;
    size_t *bytes;
    uint32_t *counts;    /* [CECL_ROLES][nranks] */
    ceclStream_t *lanes; /* [nlanes] */
    int nlanes, lane_room;
    char path[64]; /* how the last group went, for the timeline */
};

/* Local. `memory`: of cecl_posts_bytes, shared and zeroed. comm->hosted is open if there are peers.
 * It must be done on all ranks before any of them sends. */
ceclResult_t cecl_pairs_open(ceclComm_t comm, void *memory);
/* A zeroed communicator's may be closed. No work may be pending. */
void cecl_pairs_close(ceclComm_t comm);

/* Refuses messages that this rank must not send or receive. `calls`: of one group. */
ceclResult_t cecl_pairs_check(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                              ceclStream_t stream);
/* Posts messages that passed the check. A failure fails the communicator, if a peer knows of the group
 * by then.
 *
 * may_wait  false: nothing waits for peers, because other communicators of the group have not told
 *           theirs yet, or because the host is to wait for late ranks at the group's
 *           collectives. */
ceclResult_t cecl_pairs_post(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                             bool may_wait);
/* Enqueues what is posted. A failure fails the communicator. */
ceclResult_t cecl_pairs_issue(ceclComm_t comm, ceclStream_t stream);

/* What is posted will not be enqueued, because of an error whose message is recorded: the communicator
 * fails. No effect where nothing is posted. Returns the communicator's error, or this one. */
ceclResult_t cecl_pairs_break(ceclComm_t comm, ceclResult_t result);

/* All three, for a call outside of groups. */
ceclResult_t cecl_pairs_call(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream);

/* Adds the messages of a group to the explanation of its collectives, or of nothing. */
ceclResult_t cecl_pairs_explain(ceclComm_t comm, const struct cecl_call *calls, uint32_t count,
                                ceclExplanation_t *explanation);

#endif
