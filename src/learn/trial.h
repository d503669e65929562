/* Trials: several arms (ways to carry calls out) take turns in a program's own periods, and the one
 * that makes periods shorter is kept.
 *
 *     IDLE      nothing is tried; `arm` is in force
 *     WAITING   a period was found; the trial begins after some periods
 *     OFFERED   this rank is ready: no other communicator of its process tries
 *     RUNNING   turns
 *
 * All ranks of a communicator see the same sequence of calls, so they come to the same boundaries
 * between periods, at different times. What must be equal on all ranks and does not follow from the
 * sequence is a decision: one word in memory that all ranks share. Whoever comes to a decision first
 * makes it, from what all ranks have published by then, by compare-and-swap; the others read it. So
 * ranks cannot differ, and nobody waits. Decisions are numbered, and no word is used twice.
 *
 * A turn has three periods of one arm. The first is not counted, because work of the turn before
 * still runs. Each rank publishes how long the others took, once its GPU has come that far. Before
 * each turn it is decided which arm is next: each arm once in a round, in an order that is drawn from
 * a hash. An arm whose periods are 1.25 x as long as arm 0's is dropped. Behind the last turn the
 * verdict is decided (verdict.h); if times are missing because a GPU is behind, it is put off by a
 * period.
 *
 * This file knows no clock, no device and no call. docs/models/trial.pml is the model of starting and
 * deciding. Threads: one at a time for each struct cecl_trial. */
#ifndef CECL_LEARN_TRIAL_H
#define CECL_LEARN_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learn/verdict.h"

enum { CECL_TRIAL_IDLE, CECL_TRIAL_WAITING, CECL_TRIAL_OFFERED, CECL_TRIAL_RUNNING };

#define CECL_TRIAL_COUNTED 2u /* periods of a turn */
#define CECL_TRIAL_TURNS 20u  /* of a trial at most: 60 periods */
#define CECL_TRIAL_SLOTS (CECL_TRIAL_TURNS * CECL_TRIAL_COUNTED)
#define CECL_TRIAL_DECISIONS 4096u /* of a communicator. After these it learns no more */
#define CECL_TRIAL_ATTEMPTS 8u     /* to begin a trial */
#define CECL_TRIAL_LEARNED 16u     /* verdicts that a communicator remembers */

/* What ranks share. It begins zeroed. */
struct cecl_trial_rank {
    _Atomic uint64_t offer;                   /* the decision for which the rank is ready */
    _Atomic uint64_t times[CECL_TRIAL_SLOTS]; /* the trial's number << 48 | ns; 0 ns: lost */
};
struct cecl_trial_shared {
    _Atomic uint64_t id; /* of the communicator; equal on no two of them */
    _Atomic uint32_t decisions[CECL_TRIAL_DECISIONS];
    struct cecl_trial_rank ranks[];
};

/* What is timed, and so how ranks' times become one. */
enum cecl_trial_kind {
    /* The mean, as all ranks' periods together are as long. The verdict is remembered for a while. */
    CECL_TRIAL_PERIODS,
    /* The least, as the time of a rank that comes early includes its waiting. The caller remembers the
     * verdict (classes.h). */
    CECL_TRIAL_CALLS
};

/* What an engine asks of its process. */
struct cecl_trial_host {
    void *context;
    /* Lets the communicator `id` be the one of this process that tries; false: another one is. Each
     * true is given back by release. */
    bool (*reserve)(void *context, uint64_t id);
    void (*release)(void *context, uint64_t id);
    /* What was learned of this subject before; -1: nothing. */
    int (*recall)(void *context, uint64_t subject);
    bool only_recalls; /* nothing is tried; alike on all ranks */
};

/* A verdict that holds for a while. */
struct cecl_learned {
    uint64_t subject;
    uint32_t arm;
    uint32_t left; /* repetitions of the subject until it is tried anew */
};

struct cecl_trial {
    struct cecl_trial_shared *shared;
    struct cecl_trial_host host;
    uint64_t id;
    int rank, nranks;
    int state;
    uint32_t arm;     /* in force, if cecl_trial_has_arm */
    bool has_verdict; /* `arm` was decided */
    bool is_recalled; /* it is from an earlier run */
    /* -- what is tried -- */
    uint64_t subject; /* a hash that names it */
    uint32_t arms;    /* bit a: arm a takes part; arm 0 always does */
    enum cecl_trial_kind kind;
    /* -- how far it is -- */
    uint32_t decisions; /* made so far on the communicator */
    uint32_t trials;    /* begun so far */
    uint32_t attempt;
    uint32_t wait;    /* boundaries until the next step, where waiting or offered */
    bool holds;       /* this communicator is the one of its process that tries */
    uint32_t first;   /* the decision that began this trial; the next ones are of its turns */
    uint32_t turn;    /* turns so far, this one included */
    bool has_turn;    /* false: the verdict is put off */
    uint32_t period;  /* periods of this turn so far */
    uint32_t counted; /* of these, counted */
    uint32_t merged, repeated; /* repetitions of the subject that make a period; done so far */
    uint32_t put_off;          /* how often the verdict was */
    struct cecl_learned learned[CECL_TRIAL_LEARNED];
    uint32_t nlearned; /* so far; each takes the place of the oldest one */
};

/* What the caller is to do at a boundary. */
struct cecl_trial_mark {
    bool is_mark; /* note the time here */
    int slot;     /* publish the time since the mark before here; -1: it does not count */
};

static inline size_t cecl_trial_bytes(int nranks)
{
    return sizeof(struct cecl_trial_shared) + (size_t)nranks * sizeof(struct cecl_trial_rank);
}

/* drawn  a random number; the first rank's names the communicator */
void cecl_trial_open(struct cecl_trial *trial, void *shared, int rank, int nranks, uint64_t drawn,
                     const struct cecl_trial_host *host);

/* Wants `subject` tried, unless it was tried lately: then that verdict is in force. On all ranks at the
 * same call. Ends what was tried before. */
void cecl_trial_want(struct cecl_trial *trial, uint64_t subject, uint32_t arms,
                     enum cecl_trial_kind kind);

/* Ends what is tried or was decided. On all ranks at the same call. */
void cecl_trial_cancel(struct cecl_trial *trial);

/* A repetition of the subject begins with the next call.
 *
 * was_whole  the one before came right behind another, and has just ended
 * host_ns    how long the one before took on the host: decides how many make a period */
struct cecl_trial_mark cecl_trial_boundary(struct cecl_trial *trial, bool was_whole,
                                           uint64_t host_ns);

/* Tells how long the period of `slot` of trial number `number` (trial->trials at its mark) took.
 * ns  0: the time is lost */
void cecl_trial_publish(struct cecl_trial *trial, uint32_t number, int slot, uint64_t ns);

/* Whether `arm` is in force: it was decided, or has its turn. */
static inline bool cecl_trial_has_arm(const struct cecl_trial *trial)
{
    return trial->has_verdict || trial->state == CECL_TRIAL_RUNNING;
}

/* What is known of the trial that runs, or ran last, from all ranks' times. */
struct cecl_verdict cecl_trial_verdict(const struct cecl_trial *trial);

#endif
