/* Proves that a sequence of calls, and of messages between them, is right. It examines the plans of all ranks and runs
 * nothing.
 *
 * It builds the happens-before order that flags and streams guarantee (vector clocks), then proves the following. No
 * deadlock is possible. Any two accesses to the same byte are ordered if one is a write: within a call, between calls,
 * and against the user's own accesses before and after. Every output byte is written exactly once in a call, from the
 * right source byte. No byte outside the output and staging is written. A rank leaves a barrier only after all ranks
 * have come to it. */
#ifndef CECL_VERIFY_VERIFY_H
#define CECL_VERIFY_VERIFY_H

#include "plan/plan.h"

/* `ncalls` calls one after the other on the same buffers; plans[c * nranks + r] is rank r's plan of call c. All plans
 * have the same nranks. Buffers are as large as the largest call needs. Between calls each rank's user reads the output
 * and writes new input.
 *
 * The verifier tracks every single byte, so keep call.bytes small (tens of bytes). The calls must be valid and equal on
 * all ranks; the plans may be wrong. Returns ceclSuccess, ceclOutOfMemory, or ceclInternalError if it finds a fault;
 * cecl_message() then describes the first one (call, rank, step, bytes). */
ceclResult_t cecl_verify(const struct cecl_plan *plans, int ncalls, int nranks);

/* A message or a put, which is no call of all ranks. It has memory of its own at both ranks: the sender's user writes
 * it before the launch that has the message, and the receiver's user reads it after that launch. */
struct cecl_verify_message {
    int from, to;
    uint32_t bytes; /* size of the message's memory at both ends; all bytes must arrive */
};

/* A rank's launch: its plan of a call, or of messages. Part i of a plan of messages is message messages[i]. */
struct cecl_verify_launch {
    int call;                     /* index of the call; -1: messages */
    const struct cecl_plan *plan; /* the plan of messages */
    const uint32_t *messages;     /* [nmessages] */
    uint32_t nmessages;
};

/* Each rank has its own sequence of launches. All ranks have the same calls, in order; each rank distributes its
 * messages over launches as it likes. */
struct cecl_verify_program {
    int nranks;
    const struct cecl_plan *plans; /* [ncalls][nranks] */
    int ncalls;
    const struct cecl_verify_message *messages; /* [nmessages] */
    uint32_t nmessages;
    const struct cecl_verify_launch *launches[CECL_MAX_RANKS];
    int nlaunches[CECL_MAX_RANKS];
    /* How many counters the plans name, from CECL_COUNTERS on. Bit c of `resets`: a wait for counter c resets its word
     * (CECL_REPLAY_RESET), so a signal must find it reset. Bit c of `counted`: a wait for counter c counts as the wait
     * for all its earlier signals. */
    uint32_t ncounters, resets;
    uint64_t counted;
    uint64_t order; /* not 0: the seed of a random order in which the lanes of all ranks go on */
};

/* As cecl_verify, for a program. Proves also that every signal of a counter without phases has exactly one wait. */
ceclResult_t cecl_verify_program(const struct cecl_verify_program *program);

#endif
