/* The lanes on which the steps of a plan run, and the counters by which a rank knows how far its peers are. */
#ifndef CECL_UTIL_LANE_H
#define CECL_UTIL_LANE_H

enum {
    CECL_LANE_MAIN, /* the caller's stream */
    CECL_LANE_SIDE, /* a stream of the communicator */
    CECL_LANES,     /* lanes from this number on are for messages, and have no epochs */
    CECL_LANES_MAX = CECL_LANES + 64
};

/* Steps name a counter and a number k. `flags->counters` says for each counter where its words lie
 * and how a value travels.
 *
 * The first counters are the epochs of the lanes, and have the lanes' numbers. For them and for CECL_COUNTER_SLOTS, k
 * is a phase. A plan has the same phases on all ranks. */
enum {
    /* how many small calls were made; this counter's flags lie between the data in the slots */
    CECL_COUNTER_SLOTS = CECL_LANES,
    CECL_PHASED, /* counters from here on have no phases */
    /* Messages from one rank to another, numbered alike by both; k is a message's number. READY and MOVED have two
     * counters each: first the sender's, then the receiver's (enum cecl_role). */
    CECL_COUNTER_READY = CECL_PHASED,            /* that rank's buffer may be used */
    CECL_COUNTER_MOVED = CECL_COUNTER_READY + 2, /* that rank has moved the bytes */
    /* One-sided calls: how many signals this rank has sent to the peer. Each signal number has its own count (a slot).
     * The caller gives the value and the slot (flags/counters.h). */
    CECL_COUNTER_SIGNAL = CECL_COUNTER_MOVED + 2,
    /* Captured messages, in slots. HANDED: the bytes have been moved. TAKEN: the receiver's buffer may be written. */
    CECL_COUNTER_HANDED,
    CECL_COUNTER_TAKEN,
    /* A rank tells its own host how far it is. BEGUN: which group of messages has begun. DONE: which calls are done.
     * WAITS, in slots: the value for which a stream waits at a word of SIGNAL, HANDED or TAKEN (flags/awaited.h). LINE,
     * in slots: how many one-sided calls of a line are done (flags/lines.c). */
    CECL_COUNTER_BEGUN,
    CECL_COUNTER_DONE,
    CECL_COUNTER_WAITS,
    CECL_COUNTER_LINE,
    /* a rank tells its own host whether a captured call runs, for calls whose signals do not show that
     * (cecl_replay_state) */
    CECL_COUNTER_REPLAY,
    /* how far a rank is in its captured calls: a word that it writes for all peers. k is a set of bits
     * (flags/turns.h) */
    CECL_COUNTER_TURN,
    /* beside TURN: which captured call a rank is in. k is the call's number; 0: in none */
    CECL_COUNTER_CALL,
    CECL_COUNTERS,
    CECL_COUNTERS_MAX = CECL_COUNTERS + 8 /* room for further counters in a table */
};

#endif
