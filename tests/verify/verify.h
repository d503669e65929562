/* Proves that a sequence of calls, and of messages between them, is right, from the plans of all ranks, without running anything.
 *
 * It builds the happens-before order that flags and streams guarantee (vector clocks), then shows
 * the following. There is no deadlock. Any two accesses to the same byte, of which one is a write,
 * have an order: within a call, between calls, and with the user's own use of the buffers before and
 * after. Every output byte is written exactly once in a call, from the right source byte. No byte
 * outside the output and staging is written. A rank leaves a barrier after all ranks have come to it.
 *
 * Over several nodes copies and flags stay within a node, and what two ranks of different nodes send and
 * receive meets in order and size. What an exchange sends must stay, and what it receives is used, until it
 * has ended. */
#ifndef CECL_VERIFY_VERIFY_H
#define CECL_VERIFY_VERIFY_H

#include "plan/plan.h"

/* `ncalls` calls one after the other on the same buffers; plans[c * nranks + r] is rank r's plan of
 * call c. All plans have the same nranks.
 *
 * Buffers are as large as the largest call needs. Between calls each rank's user reads the output
 * and writes new input.
 *
 * The verifier tracks every byte by itself, so keep call.bytes small (tens of bytes). It accepts
 * broken plans, because finding them is its purpose.
 *
 * Returns ceclSuccess, ceclOutOfMemory, or ceclInternalError; then cecl_message() describes the
 * first fault (call, rank, step, bytes). */
ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks);

/* What ranks launch that is no call of all of them: messages, and puts. Each has memory of its own at both
 * ranks. The sender's user writes it before the launch that has the message, and the receiver's user
 * reads it behind. */
struct cecl_verify_message {
    int from, to;
    uint32_t bytes; /* of the memory at both ends */
    uint32_t moved; /* how many of them are to arrive */
};

/* What a rank launches: its plan of a call of all ranks, or of messages. Part i of a plan of messages is
 * message messages[i]. */
struct cecl_verify_launch {
    int call; /* -1: messages */
    /* not 0: the launch makes call ready - 1 ready. The buffers are the user's before it and behind that
     * call, and not between them. */
    int ready;
    const struct cecl_plan *plan; /* of messages */
    const uint32_t *messages;     /* [nmessages] */
    uint32_t nmessages;
    const uint64_t *given; /* what copies of these plans name as their number of bytes */
};

/* Each rank has a sequence of launches of its own. All have the same calls, in order, and each rank
 * has its messages in launches as it likes. */
struct cecl_verify_program {
    int nranks;
    const struct cecl_plan *plans; /* [ncalls][nranks] */
    int ncalls;
    const struct cecl_verify_message *messages; /* [nmessages] */
    uint32_t nmessages;
    const struct cecl_verify_launch *launches[CECL_MAX_RANKS];
    int nlaunches[CECL_MAX_RANKS];
    /* How many counters from CECL_COUNTERS on plans name. Bit c of `resets`: whoever waits for counter c
     * resets its word (CECL_REPLAY_RESET), so a signal must find it reset. Bit c of `counted`: a wait for
     * counter c takes all signals up to its number, and not that one alone. */
    uint32_t ncounters, resets;
    uint64_t counted;
    uint64_t order; /* not 0: lanes of all ranks go on in a random order that begins with this */
};

/* Proves the same of a program. Besides, every signal of a counter without phases has its one wait. */
ceclResult_t cecl_verify_program(const struct cecl_verify_program *program);

#endif
