/* Groups of messages (ceclSend and ceclRecv): what a rank does for the messages of one group, as data,
 * and issuing that.
 *
 * Two ranks take part in a message. They meet in host memory (alloc/posts.h), where one of them comes
 * second and knows both buffers. That rank moves the bytes: the sender pushes them, or the receiver
 * pulls them. The signals are in flags/pairs.h.
 *
 *     the first    signal ready                             wait for done
 *     the second                 wait for ready, copy, signal done
 *
 * A group in the stream of its caller, where this rank came second in messages with peers a and b:
 *
 *     caller's stream   signal ready of all messages         wait for done of all messages
 *                       in which this rank came first   \    in which this rank came first
 *                                                        \ _________________________________/
 *     lane of a         wait for ready, copies, signal done  |
 *     lane of b         wait for ready, copies, signal done  |
 *
 * No deadlock. Say that a group has begun where its stream has come to it. A message ends once both of
 * its groups have begun, whatever other messages do:
 * - The first rank signals as its group begins, and waits for nothing before that.
 * - The second rank waits for it on the lane of that peer. What stands before that on the lane are
 *   messages with earlier groups of the same peer. The peer's groups follow each other, so these have
 *   ended when the peer's group begins. That is why a lane has the messages of one peer, in the order
 *   of that peer's groups.
 * So a group ends once the groups that it has messages with have begun, which is NCCL's rule: a program
 * that ends with groups of any shape by this rule ends here. With one lane for all peers it would not:
 * a copy for one peer would wait behind a peer that comes later, perhaps because it waits for the
 * former.
 *
 * A GPU may run several streams through one hardware queue, in the order of issue. Lanes therefore have
 * streams of the highest priority, which a caller's stream rarely has, and what waits for peers in the
 * caller's stream is issued behind all lanes.
 *
 * Knows addresses, words and the device, and no communicator. */
#ifndef CECL_CE_PAIRS_H
#define CECL_CE_PAIRS_H

#include "ce/engine.h"
#include "flags/pairs.h"

/* A message of a group, as one of its two ranks sees it after both places were told. */
struct cecl_message {
    int32_t peer;
    uint8_t role;   /* enum cecl_role: what this rank does */
    bool second;    /* the peer came first, so this rank moves the bytes */
    uint64_t bytes; /* may be 0: then nothing is copied */
    uint64_t number;
    uint64_t group;     /* second: the number of the peer's group */
    void *here, *there; /* second: where the bytes lie on this rank, and at the peer */
};

enum cecl_pair_step_kind {
    CECL_PAIR_STEP_SIGNAL, /* writes `signal` at the peer */
    CECL_PAIR_STEP_WAIT,   /* waits for the peer's `signal` */
    CECL_PAIR_STEP_COPIES, /* messages [first, first + count) of the plan's order, as one batch */
    CECL_PAIR_STEP_FORK,   /* the lane waits for all that the caller's stream has so far */
    CECL_PAIR_STEP_JOIN    /* the caller's stream waits for all that the lane has so far */
};

#define CECL_PAIR_MAIN (-1) /* the lane that is the caller's stream */

struct cecl_pair_step {
    uint8_t kind;
    uint8_t signal, role; /* SIGNAL, WAIT: enum cecl_pair_signal; this rank's role */
    int32_t lane;         /* CECL_PAIR_MAIN, or 0 to nlanes - 1 */
    int32_t peer;
    uint32_t first, count;
    uint64_t number; /* SIGNAL, WAIT: of the message */
};

/* What a rank does for a group. Each lane runs its steps in the order in which they stand. */
struct cecl_pair_plan {
    struct cecl_pair_step *steps; /* [nsteps] */
    uint32_t nsteps;
    uint32_t *order; /* indices of messages; COPIES name stretches of them */
    int nlanes;      /* beside the caller's stream */
    uint32_t room;   /* messages for which both arrays have room */
};

/* Makes room for so many messages. A zeroed plan has none. */
ceclResult_t cecl_pair_plan_reserve(struct cecl_pair_plan *plan, uint32_t count);
void cecl_pair_plan_free(struct cecl_pair_plan *plan);

/* Makes the plan of a group. Pure, and allocates nothing: there must be room. No message is with this
 * rank itself. Messages of one role and peer stand in the order of their numbers. */
void cecl_lower_pairs(const struct cecl_message *messages, uint32_t count,
                      struct cecl_pair_plan *plan);

/* What cecl_pairs_run needs. */
struct cecl_pair_work {
    const struct cecl_message *messages; /* [count] */
    uint32_t count;
    const struct cecl_pair_plan *plan;
    struct cecl_pair_flags *flags;
    ceclStream_t *lanes;    /* [plan->nlanes] streams of the device's own */
    struct cecl_memop *ops; /* [2 * count] room */
    void **pointers;        /* [2 * count] room */
    size_t *bytes;          /* [count] room */
};

/* Enqueues a group. *started: as in cecl_engine_run. */
ceclResult_t cecl_pairs_run(struct cecl_engine *engine, const struct cecl_pair_work *work,
                            ceclStream_t stream, bool *started);

#endif
