/* Communicators that are made from one another at random. Every rank knows all of them with their members, even those
 * in which it is no member. So all ranks draw the same changes from one generator `x`. What may differ between ranks
 * comes from each rank's own generator `y`. */
#ifndef CECL_TEST_TEAMS_H
#define CECL_TEST_TEAMS_H

#include "memory.h"
#include "random_call.h"

#define TEAMS 8
#define TEAM_STREAMS 2
#define TEAM_REGISTRATIONS 3

struct team {
    bool alive;
    /* its members: their ranks in the world, in the order of their ranks in `comm` */
    int world[RANKS], n;
    int me; /* this rank's rank in `comm`; -1: no member, and the fields below are unset */
    ceclComm_t comm;
    ceclStream_t streams[TEAM_STREAMS]; /* the default stream, and a stream of the team */
    /* memory of its pool, which calls on other communicators use, too */
    struct memory lent;
    ceclRegistration_t registrations[TEAM_REGISTRATIONS]; /* NULL: none */
};

extern struct team teams[TEAMS];
/* Bytes of `lent`. The test sets this before it makes the first communicator. */
extern size_t teams_lent;
/* How many communicators of all ranks were made, how many splits and shrinks, and how many children by these. */
extern int teams_worlds, teams_splits, teams_shrinks, teams_children;

/* The configuration of a communicator of all ranks. Its pool is so small that TEAMS of them fit. */
ceclConfig_t teams_config(void);

/* Draws a communicator that is alive, larger ones more often than small ones. At least one must be alive. */
struct team *teams_pick(uint64_t *x);

/* In 5 of 16 cases, splits or shrinks a communicator, or ends one if it is not the last. Ranks may come late. */
void teams_change(uint64_t *x, uint64_t *y);

/* Shrinks `t` to the ranks that do not leave, at least one. Only these ranks call. There must be room for another team;
 * t may have failed. */
void teams_shrink(struct team *t, const bool *leaves, uint64_t *x, uint64_t *y);
bool teams_full(void);

void teams_end_all(uint64_t *x);

/* Sleeps up to 2 ms, with a probability of 1 / `often`. */
void teams_come_late(uint64_t *y, unsigned often);

#endif
