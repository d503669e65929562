/* Finds the period in a sequence of calls: in a training it is the step. Every rank of a communicator
 * makes the same sequence of collectives, so all ranks find the same period at the same call.
 *
 * A call is one number, its token. A period is found when the sequence has repeated itself often
 * enough: three times, over 64 calls at least, and three times as long as a shorter repetition that
 * broke off before (layers of one step repeat, too, but the step ends). From then on the next call
 * begins a period whenever the last `length` calls were exactly one. So a step that differs, such as
 * an evaluation, costs no more than itself: periods begin again behind the first regular one.
 *
 * This file knows numbers alone. It takes no time that depends on the length, and allocates nothing. */
#ifndef CECL_LEARN_PERIOD_H
#define CECL_LEARN_PERIOD_H

#include <stdbool.h>
#include <stdint.h>

#define CECL_PERIOD_MOST 4095 /* calls of the longest period that is found */
#define CECL_PERIOD_RING 8192 /* two such periods, and one more number; a power of two */
#define CECL_PERIOD_SEEN                                                                           \
    4096 /* a power of two; enough that of the longest period some are still there */

/* All zero: no calls yet. */
struct cecl_period {
    uint64_t calls;   /* so far */
    uint32_t length;  /* calls of the period; 0: none was found */
    uint64_t pattern; /* a hash of the calls of a period, from where periods begin */
    uint64_t raised;  /* what such a hash needs */
    uint64_t begun;   /* how many calls came before the last period's first one */
    bool was_whole;   /* after cecl_period_next said true: a whole period has just ended */
    /* -- the search -- */
    uint32_t candidate; /* the sequence may repeat itself after so many calls; 0: no guess */
    uint64_t run;       /* so many calls in a row repeat themselves after `candidate` calls */
    uint64_t broken;    /* the longest run that broke off lately */
    uint64_t broken_at; /* when */
    uint32_t strikes;   /* runs of the period in a row that were short */
    uint64_t hashes[CECL_PERIOD_RING]; /* of all calls before each of the last ones */
    struct {
        uint32_t gram; /* a hash of the calls that ended at `at` */
        uint32_t at;   /* the lower half of a number */
    } seen[CECL_PERIOD_SEEN];
};

/* The token of a call. `arguments` is a hash of what is equal on all ranks. Periods begin with a call
 * that begins a group, or is in none. */
static inline uint64_t cecl_period_token(uint64_t arguments, bool begins_group)
{
    return arguments << 1 | begins_group;
}

/* Adds the next call. Returns whether it begins a period. */
bool cecl_period_next(struct cecl_period *period, uint64_t token);

#endif
