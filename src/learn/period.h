/* Finds the period in a sequence of calls: in a training it is the step. Every rank of a
 * communicator makes the same sequence of collectives, so all ranks find the same period at the
 * same call.
 *
 * A call is one number, its token. A period is found when the sequence has repeated itself three
 * times, over at least 64 calls. If a shorter repetition broke off before, the run must be three
 * times as long as that one, because layers within a step repeat, too. Once a period is found, a
 * call begins a new one whenever the last `length` calls were exactly one period. So a different
 * step, such as an evaluation, costs only itself: periods begin again behind the next regular step.
 *
 * This file knows numbers alone. The time of a call does not depend on the length of the period,
 * and nothing is allocated. */
#ifndef CECL_LEARN_PERIOD_H
#define CECL_LEARN_PERIOD_H

#include <stdbool.h>
#include <stdint.h>

#define CECL_PERIOD_MOST 4095 /* calls of the longest period that is found */
#define CECL_PERIOD_RING 8192 /* room for two such periods and one number more; a power of two */
#define CECL_PERIOD_SEEN 4096 /* a power of two */

/* All zero: no call has come yet. */
struct cecl_period {
    uint64_t calls;   /* so far */
    uint32_t length;  /* calls of the period; 0: none was found */
    uint64_t pattern; /* hash of the calls of a period, beginning where periods begin */
    uint64_t raised;  /* BASE to the power of `length` */
    uint64_t begun;   /* how many calls came before the first call of the latest period */
    /* after cecl_period_next returned true: whether a whole period has just ended */
    bool was_whole;
    /* -- the search -- */
    uint32_t candidate; /* the sequence may repeat itself after so many calls; 0: no guess */
    uint64_t run;       /* how many calls in a row equal the call `candidate` calls before */
    uint64_t broken;    /* the longest recent run that broke off */
    uint64_t broken_at; /* the call at which it broke off */
    uint32_t strikes;   /* how many runs of the period in a row were short */
    /* [number modulo the size] hash of all calls before a call */
    uint64_t hashes[CECL_PERIOD_RING];
    struct {
        uint32_t gram; /* hash of the GRAM calls that end at `at` */
        uint32_t at;   /* the lower 32 bits of a call's number */
    } seen[CECL_PERIOD_SEEN];
};

/* The token of a call. `arguments` is a hash of what is equal on all ranks. A period begins with a
 * call that begins a group or is in no group. */
static inline uint64_t cecl_period_token(uint64_t arguments, bool begins_group)
{
    return arguments << 1 | begins_group;
}

/* Adds the next call. Returns whether it begins a period. */
bool cecl_period_next(struct cecl_period *period, uint64_t token);

#endif
