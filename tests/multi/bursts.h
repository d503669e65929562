/* Bursts of random calls on the communicators of teams.h, for tests. The calls of a burst go to any
 * communicators and to two streams of each, one by one or in groups, which may have calls on several
 * communicators. Between the calls, and in their groups, ranks send each other messages (mail.h). Each
 * rank draws the kinds of memory of its buffers and their places by itself, frees memory and allocates
 * it anew, registers some, and comes late. Every byte that a call may write is checked, and so are the
 * bytes around its blocks and between them. */
#ifndef CECL_TEST_BURSTS_H
#define CECL_TEST_BURSTS_H

#include "mail.h"

#define BURST_CALLS 8

/* A call, and memory in its communicator's pool that is allocated for this call. */
struct burst_call {
    struct random_slot random;
    const struct team *team;
    ceclOptions_t options;
    bool after_barrier; /* a ceclBarrier comes before it */
    struct memory send, recv;
};
extern struct burst_call burst[BURST_CALLS];

/* This rank's own generator of random numbers, for what may differ between ranks. What must be alike
 * is drawn from a generator `x`, with equal numbers on all ranks. */
extern uint64_t bursts_own;

/* Takes memory for bursts. `all` is a communicator of all ranks, which only serves to allocate
 * memory of each kind. `x` is where both generators begin. */
void bursts_open(ceclComm_t all, uint64_t x);
void bursts_close(void);
/* From here on `all` is the communicator that serves to allocate memory. */
void bursts_move(ceclComm_t all);

/* Changes communicators and memory, or leaves them, and makes a burst. */
void bursts_step(uint64_t *x);
/* The same in three parts: changes and draws; makes calls and checks what came of them; frees. Ranks may
 * die during the second one, if there are hooks. */
void bursts_prepare(uint64_t *x);
void bursts_make(uint64_t *x);
void bursts_free(void);

struct bursts_hooks {
    /* A call, or waiting for one, has failed. A group is refused as a whole, and this is called for each
     * communicator of its calls. */
    void (*excuse)(const struct team *team, ceclResult_t result, bool grouped);
    /* The calls [first, end) of the burst come next: alone, or as a group. */
    void (*aside)(int first, int end);
    /* Whether to wait for a call on this communicator. */
    bool (*awaits)(const struct team *team);
};
/* NULL, as it is at first: every call must succeed. */
extern const struct bursts_hooks *bursts_hooks;

/* For calls outside bursts: draws a call on `team`, with its buffers. All ranks draw it, and memory of
 * a pool is allocated on members. */
void burst_draw(struct burst_call *s, const struct team *team, uint64_t *x);
/* Makes the call, on stream `stream` of its team. Members alone do. */
ceclResult_t burst_make(struct burst_call *s, int stream, bool grouped);
/* Waits for the call. Returns what the library says of it, and checks the result if that is
 * ceclSuccess. The communicator may fail meanwhile. */
ceclResult_t burst_finish(struct burst_call *s);

#endif
