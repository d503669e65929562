/* The life of a rank in the suites fault and exhaust, where each rank is a process: what it tells, how it meets the
 * others, and what it checks at its end. A suite's struct life begins with AS_PLAYER. */
#ifndef CECL_TESTS_WORLD_LIFE_H
#define CECL_TESTS_WORLD_LIFE_H

#include <stddef.h>

#include "calls.h"

#define EXCHANGES_MOST 16 /* in one join by callbacks */
#define PART_BYTES 16384

/* Shared by the ranks of a case. */
struct venue {
    _Atomic int passed; /* arrivals at meeting points: the sum over all ranks */
    /* how many parts of each exchange by callbacks have come */
    _Atomic int brought[EXCHANGES_MOST];
    char parts[EXCHANGES_MOST][PLAYERS_MOST][PART_BYTES];
};

#define STEP(life, text) atomic_store(&(life)->report->told.step, text)

_Noreturn void life_fail(struct life *life, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The settings that all lives have. */
void life_begin(void);
/* A barrier of all ranks. Ends the process if a rank has failed. */
void life_meet(struct life *life);
void life_open_buffers(struct life *life);
/* All-gathers, as a callback of ceclOob_t; context: the life. Writes this rank's part, then calls `within`, so peers
 * have the part even if this rank ends there. Waits for all parts; returns 1 if `gives_up` returns true first. */
int life_exchange(void *context, const void *send, void *recv, size_t bytes);
/* Checks calls on the communicator, and ends it. Fails if anything is wrong. `members`: see comm_works. */
void life_prove(struct life *life, ceclComm_t comm, const int *members, int count);
/* Fails if the process holds more than at the start. */
void life_check_left(struct life *life);
_Noreturn void life_end(struct life *life);

#endif
