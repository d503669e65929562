/* Communicators that are made out of one another at random, for tests. Every rank knows all of
 * them, with their members, also those that it is not in. So all ranks draw the same changes from
 * one generator `x`. What may differ between ranks is drawn from each rank's own generator `y`. */
#ifndef CECL_TEST_TEAMS_H
#define CECL_TEST_TEAMS_H

#include "memory.h"
#include "random_call.h"

#define TEAMS 8
#define TEAM_STREAMS 2
#define TEAM_REGISTRATIONS 3

/* A communicator, and what goes with it. */
struct team {
    bool alive;
    int world[RANKS], n; /* its members: their ranks in the world, in the order of their ranks */
    int me; /* this rank's number; -1: it is no member, and what follows is not there */
    ceclComm_t comm;
    ceclStream_t streams[TEAM_STREAMS]; /* the default stream, and one of its own */
    struct memory lent;                 /* of its pool: calls on other communicators use it, too */
    ceclRegistration_t registrations[TEAM_REGISTRATIONS]; /* NULL: none */
};

extern struct team teams[TEAMS];
/* Bytes of `lent`. The test sets it before the first communicator is made. */
extern size_t teams_lent;
/* How many communicators of all ranks were made, how many were divided, and what came of it. */
extern int teams_worlds, teams_splits, teams_shrinks, teams_children;

/* The configuration of a communicator of all ranks: a pool that leaves room for TEAMS others. */
ceclConfig_t teams_config(void);

/* A communicator that is alive, larger ones more often than small ones. There must be one. */
struct team *teams_pick(uint64_t *x);

/* Divides a communicator or ends one, in 5 of 16 cases. Ranks may come late to it. Leaves one
 * communicator at least. */
void teams_change(uint64_t *x, uint64_t *y);

/* A communicator of those of t's ranks that do not leave: one at least. They alone call. There must be
 * room for it; t may have failed. */
void teams_shrink(struct team *t, const bool *leaves, uint64_t *x, uint64_t *y);
bool teams_full(void);

/* Ends all, in any order. */
void teams_end_all(uint64_t *x);

/* Sleeps up to 2 ms, in one case of `often`. */
void teams_come_late(uint64_t *y, unsigned often);

#endif
