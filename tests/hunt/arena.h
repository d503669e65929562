/* What the processes of a run share, and how they meet. Ranks have seats: their numbers at the start.
 * Some of them die. */
#ifndef CECL_TEST_HUNT_ARENA_H
#define CECL_TEST_HUNT_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SEATS 8 /* most ranks of a run */
#define HUNTS 2 /* most times that ranks are killed in a run */
#define KILLS 2 /* most ranks that are killed each time */

/* How the ranks of a hunt are killed. */
enum pattern {
    AMID_CALLS, /* all while calls are made */
    IN_SHRINK,  /* the last one while the survivors of the others shrink */
    PATTERNS
};

/* One hunt: who is killed, and how long after its begin. */
struct hunt {
    enum pattern pattern;
    int victims[KILLS], count; /* seats */
    unsigned delays_us[KILLS];
};

/* A run: everything that follows from its seed. */
struct run {
    uint64_t seed;
    int nranks, count;
    struct hunt hunts[HUNTS];
};

struct arena {
    _Atomic int arrived[SEATS]; /* meeting points that the seat has come to */
    _Atomic int dead[SEATS];    /* the seat's process was reaped */
    /* [hunt][0]: its calls have begun; [hunt][1]: its shrink has */
    _Atomic int begun[HUNTS][2];
    /* by seat, a bit for each team: it failed there; it was in a group there that was refused */
    _Atomic uint32_t failed[SEATS], bound[SEATS];
    unsigned char shared[256]; /* what rank 0 tells all */
    _Atomic int excused, made; /* during hunts: calls that failed; communicators made beside them */
    const char *_Atomic doing[SEATS];
};

/* Draws a run. */
void run_draw(struct run *run, uint64_t seed);
/* The life of the rank in `seat`. Does not return. */
_Noreturn void life_run(const struct run *run, struct arena *arena, int seat);

#endif
