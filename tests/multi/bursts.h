/* Bursts of random calls on the communicators of teams.h. The calls of a burst use any communicators and two streams of
 * each, one by one or in groups; a group may use several communicators. Between the calls, and in their groups, ranks
 * send each other messages (mail.h). Some bursts have one-sided calls, too (puts.h). Each rank draws the kinds and
 * places of its buffers by itself, frees memory and allocates it anew, registers some of it, and starts late at random.
 * Tests check every byte that a call may write, and the bytes around and between its blocks. */
#ifndef CECL_TEST_BURSTS_H
#define CECL_TEST_BURSTS_H

#include "mail.h"

#define BURST_CALLS 8

/* A call; `send` and `recv`: memory in its communicator's pool, in which its buffers may lie. */
struct burst_call {
    struct random_slot random;
    const struct team *team;
    ceclOptions_t options;
    bool after_barrier; /* a ceclBarrier comes before the call */
    struct memory send, recv;
};
extern struct burst_call burst[BURST_CALLS];

/* This rank's generator, for what may differ between ranks. What must be equal on all ranks comes from a generator `x`,
 * which all ranks start with the same seed. */
extern uint64_t bursts_own;
extern uint64_t bursts_windows; /* windows that this rank shared */

/* Allocates memory for bursts, by `all`, a communicator of all ranks. `x` is the seed of bursts_own. */
void bursts_open(ceclComm_t all, uint64_t x);
void bursts_close(void);
/* From now on `all` allocates memory. */
void bursts_move(ceclComm_t all);

/* Sometimes changes communicators and memory; then makes a burst. */
void bursts_step(uint64_t *x);
/* bursts_step in three parts: change communicators and memory, and draw the burst; make the calls, and check their
 * results; free memory. With hooks, ranks may die during the second part. */
void bursts_prepare(uint64_t *x);
void bursts_make(uint64_t *x);
void bursts_free(void);

struct bursts_hooks {
    /* Called when a call, or a wait for one, has failed; after a failed group, for the communicator of each call. */
    void (*excuse)(const struct team *team, ceclResult_t result, bool grouped);
    /* Called before the calls [first, end) of the burst are made: a single call, or a group. */
    void (*aside)(int first, int end);
    bool (*awaits)(const struct team *team);
};
/* NULL (the default): every call must succeed. */
extern const struct bursts_hooks *bursts_hooks;

/* For calls outside bursts: draws a call on `team`, with its buffers, on all ranks. Members allocate its pool memory. */
void burst_draw(struct burst_call *s, const struct team *team, uint64_t *x);
/* Makes the call on stream number `stream` of its team. Only members call this. */
ceclResult_t burst_make(struct burst_call *s, int stream, bool grouped);
/* Waits for the call. Returns its result; after ceclSuccess, checks the data. The communicator may fail meanwhile. */
ceclResult_t burst_finish(struct burst_call *s);

/* Draws environment variables, often defaults, for communicators made later. settings_clear unsets them all. */
void settings_draw(uint64_t *x);
void settings_clear(void);

#endif
