/* Finds the period in a sequence of calls. In training, the period is a step. Every rank of a communicator makes the
 * same sequence of collectives, so all ranks find the same period at the same call.
 *
 * Each call is represented by a number, its token. A run is a stretch of calls that repeat with one period. A period is
 * found when its run is three periods long, and at least 64 calls. Layers within a step also repeat, so if an earlier
 * run broke off, the new run must be three times as long as the earlier one. Once a period is found, a new period
 * begins whenever the last `length` calls were exactly one period. So a different step, such as an evaluation, is
 * skipped: periods begin again after the next regular step.
 *
 * The search looks at CECL_PERIOD_SEARCH calls at once, because a search at each call would cost more. So it finds a
 * period up to CECL_PERIOD_SEARCH - 1 calls late, but at the same call on all ranks.
 *
 * This file knows only numbers, and allocates nothing. A longer period takes no more time for a call. */
#ifndef CECL_NCCL_TRIAL_PERIOD_H
#define CECL_NCCL_TRIAL_PERIOD_H

#include <stdbool.h>
#include <stdint.h>

#define CECL_PERIOD_SEARCH 32u /* the search runs at each call whose number is a multiple of this */
#define CECL_PERIOD_MOST 4079  /* the longest period that can be found, in calls */
/* room for two of the longest periods, the calls of one search and one more number; a power of two */
#define CECL_PERIOD_RING 8192
#define CECL_PERIOD_BASE UINT64_C(0x9e3779b97f4a7c15)
#define CECL_PERIOD_SEEN 4096 /* a power of two */

/* Starts zeroed. */
struct cecl_period {
    uint64_t calls;   /* calls so far */
    uint32_t length;  /* calls in the period; 0: no period was found */
    uint64_t pattern; /* hash of a period's calls, from the period's first call on */
    uint64_t raised;  /* CECL_PERIOD_BASE to the power of `length` */
    uint64_t begun;   /* how many calls came before the first call of the latest period */
    /* when cecl_period_next returns true: the previous period was whole, and no call came after it */
    bool was_whole;
    /* -- the search -- */
    uint64_t searched;  /* how many calls the search has seen */
    uint32_t candidate; /* the guessed period; 0: no guess */
    uint64_t run;       /* length of the current run, in calls */
    uint64_t broken;    /* length of the longest recent run that broke off */
    uint64_t broken_at; /* the call at which that run broke off */
    uint32_t strikes;   /* how many runs in a row were short */
    /* [a call's number modulo the size] hash of all calls before that call */
    uint64_t hashes[CECL_PERIOD_RING]; /* polynomials in CECL_PERIOD_BASE, modulo 2^64 */
    struct {
        uint32_t gram; /* hash of the GRAM calls that end at `at` */
        uint32_t at;   /* the lower 32 bits of a call's number */
    } seen[CECL_PERIOD_SEEN];
};

/* The token of a call. `arguments` is a hash of the arguments that are equal on all ranks. `begins_group` says that the
 * call is the first of a group, or in no group; a period may begin with it. */
static inline uint64_t cecl_period_token(uint64_t arguments, bool begins_group)
{
    return arguments << 1 | begins_group;
}

/* Whether the latest call belongs to the latest period. If not, the period has ended and no other has begun. */
static inline bool cecl_period_is_within(const struct cecl_period *period)
{
    return period->calls - period->begun <= period->length;
}

/* Adds the next call. Returns whether it begins a period. */
bool cecl_period_next(struct cecl_period *period, uint64_t token);

#endif
