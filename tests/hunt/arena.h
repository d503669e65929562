/* What the processes of a run share. A seat is a rank's number at the start of the run. */
#ifndef CECL_TEST_HUNT_ARENA_H
#define CECL_TEST_HUNT_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SEATS 8 /* most ranks in a run */
#define HUNTS 2 /* most hunts in a run */
#define KILLS 2 /* most ranks killed in one hunt */

enum pattern {
    AMID_CALLS, /* all victims die while calls are made */
    IN_SHRINK,  /* the last victim dies while ranks shrink after the death of the others */
    PATTERNS
};

/* One hunt: which ranks are killed, and how long after the hunt's start. */
struct hunt {
    enum pattern pattern;
    int victims[KILLS], count; /* the seats of the ranks to kill */
    unsigned delays_us[KILLS];
};

/* A run, which follows from its seed. */
struct run {
    uint64_t seed;
    int nranks, count;
    struct hunt hunts[HUNTS];
};

struct arena {
    _Atomic int arrived[SEATS]; /* how many meeting points the seat's rank has reached */
    _Atomic int dead[SEATS];    /* the seat's process was reaped */
    /* [hunt][0]: the hunt's calls have begun; [hunt][1]: its shrink has begun */
    _Atomic int begun[HUNTS][2];
    /* by seat, a bit for each team. failed: its communicator has failed; bound: a group with its calls was refused */
    _Atomic uint32_t failed[SEATS], bound[SEATS];
    unsigned char shared[256]; /* data that rank 0 sends to all ranks */
    _Atomic int excused,
        made; /* during hunts: calls that failed; additional communicators that were made */
    const char *_Atomic doing[SEATS];
};

void run_draw(struct run *run, uint64_t seed);
_Noreturn void life_run(const struct run *run, struct arena *arena, int seat);

#endif
