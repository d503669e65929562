/* The lanes on which the steps of a plan run, and the counters by which a rank knows how far its
 * peers are. */
#ifndef CECL_UTIL_LANE_H
#define CECL_UTIL_LANE_H

enum {
    CECL_LANE_MAIN, /* the caller's stream */
    CECL_LANE_SIDE, /* a stream of the communicator */
    CECL_LANES,     /* lanes from here on are streams without epochs: for messages, or */
    CECL_LANE_NET = CECL_LANES, /* for what leaves the node. Its counter is CECL_COUNTER_NET */
    CECL_LANES_MAX = CECL_LANES + 64
};

/* Steps name a counter and a number k. `flags/counters.h` says for each counter where its words lie
 * and how a value travels.
 *
 * The first counters are the epochs of the lanes, and have the lanes' numbers. For epochs and
 * slots, k is a phase; a plan has the same phases on all ranks. */
enum {
    /* the number of small calls; its flags are those between the data in the slots */
    CECL_COUNTER_SLOTS = CECL_LANES,
    CECL_PHASED, /* counters from here on have no phases */
    /* Of messages from one rank to another, which both count alike; k is the number of a message. One
     * counter is the sender's and the next one the receiver's (enum cecl_role): */
    CECL_COUNTER_READY = CECL_PHASED,            /* its buffer may be used */
    CECL_COUNTER_MOVED = CECL_COUNTER_READY + 2, /* it has moved the bytes */
    /* Of requests that are made ready before they are started: the rank's buffers may be written. Each request
     * has words of its own (a slot), and the caller gives slot and value; k is which of them. */
    CECL_COUNTER_EARLY = CECL_COUNTER_MOVED + 2,
    /* Of one-sided calls: how many signals of one number this rank has sent to the peer. Each number has words
     * of its own (a slot); as with EARLY, the caller gives slot and value. */
    CECL_COUNTER_SIGNAL,
    /* a rank tells its own host how far its calls are: messages that have begun, and all that is done */
    CECL_COUNTER_BEGUN,
    CECL_COUNTER_DONE,
    CECL_COUNTER_NET, /* how many exchanges with other nodes have ended on this rank */
    /* of one-sided calls, in slots: how many calls of a line are done (flags/lines.h), and for which signal a
     * stream waits (flags/signals.h) */
    CECL_COUNTER_LINE,
    CECL_COUNTER_REACHED,
    /* Of captured one-sided calls, in slots (flags/handed.h): a signal is there; it was taken; and whether a stream
     * waits for one of the two (enum cecl_replay_state) */
    CECL_COUNTER_HANDED,
    CECL_COUNTER_TAKEN,
    CECL_COUNTER_HOLDS,
    /* a rank tells its own host of a captured call that runs (enum cecl_replay_state) */
    CECL_COUNTER_REPLAY,
    /* the phases of captured calls take these in turn: whoever waits for such a word resets it */
    CECL_COUNTER_TURN,
    CECL_TURNS = 8,
    CECL_COUNTERS = CECL_COUNTER_TURN + CECL_TURNS,
    CECL_COUNTERS_MAX = CECL_COUNTERS + 8 /* room for counters that a table has beside these */
};

#endif
