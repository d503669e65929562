/* The lanes on which the steps of a plan run, and the counters by which a rank knows how far its
 * peers are. */
#ifndef CECL_UTIL_LANE_H
#define CECL_UTIL_LANE_H

enum {
    CECL_LANE_MAIN, /* the caller's stream */
    CECL_LANE_SIDE, /* a stream of the communicator */
    /* how many lanes have epochs; lanes from this number on are streams for messages */
    CECL_LANES,
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
    /* For messages from one rank to another, which both ranks count alike; k is the number of a
     * message. Each name has two counters, the sender's and then the receiver's (enum
     * cecl_role): */
    CECL_COUNTER_READY = CECL_PHASED,            /* the rank's buffer may be used */
    CECL_COUNTER_MOVED = CECL_COUNTER_READY + 2, /* the rank has moved the bytes */
    /* how far a rank's own calls are, for its own host: messages that have begun, and calls that
     * are done */
    CECL_COUNTER_BEGUN = CECL_COUNTER_MOVED + 2,
    CECL_COUNTER_DONE,
    CECL_COUNTERS,
    CECL_COUNTERS_MAX = 16 /* room for counters of tests */
};

#endif
