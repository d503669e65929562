/* Trials: several arms (ways to carry calls out) take turns in a program's own periods, and the one
 * that makes periods shorter is kept.
 *
 * - IDLE: nothing is tried. An arm may be in force
 * - WAITING: a subject is wanted, or its trial was put off. After some periods this rank offers to begin
 * - OFFERED: this rank is ready, or has said that its process tries another communicator
 * - RUNNING: arms have turns
 *
 * All ranks of a communicator see the same sequence of calls, so they come to the same boundaries
 * between periods, at different times. What must be equal on all ranks, but does not follow from
 * the sequence, is a decision: one word in memory that all ranks share. The rank that comes to a
 * decision first makes it by compare-and-swap, from what all ranks have published by then; the
 * others read it. So ranks cannot differ, and nobody waits. Decisions are numbered, and no word is
 * used twice.
 *
 * Ranks that share no memory exchange what they publish, at boundaries that all know, and read it at the
 * boundary behind that. So all have the same words when they come to a decision, and make it alike.
 *
 * A turn has three periods of one arm. The first is not counted, because work of the turn before
 * still runs. Each rank publishes how long the second and third took, once its GPU has reached
 * their end. A decision before each turn says which arm is next: each arm once in a round, in an
 * order that is drawn from a hash. An arm whose periods are 1.25 x as long as arm 0's is dropped.
 * Behind the last turn the verdict is decided (verdict.h); if times are missing because a GPU is
 * behind, it is put off by a period, and after four times by more.
 *
 * This file knows no clock, no device and no call. docs/models/trial.pml is the model of starting
 * and deciding. One thread at a time may use a struct cecl_trial. */
#ifndef CECL_LEARN_TRIAL_H
#define CECL_LEARN_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "learn/verdict.h"

enum { CECL_TRIAL_IDLE, CECL_TRIAL_WAITING, CECL_TRIAL_OFFERED, CECL_TRIAL_RUNNING };

#define CECL_TRIAL_COUNTED 2u /* counted periods of a turn */
#define CECL_TRIAL_TURNS 20u  /* most turns of a trial: 60 periods */
#define CECL_TRIAL_SLOTS (CECL_TRIAL_TURNS * CECL_TRIAL_COUNTED)
#define CECL_TRIAL_DECISIONS 4096u /* decisions of a communicator; after these it learns no more */
#define CECL_TRIAL_ATTEMPTS 8u     /* attempts to begin a trial */
#define CECL_TRIAL_LEARNED 16u     /* verdicts that a communicator remembers */

/* What one rank writes and all ranks read. Starts zeroed. */
struct cecl_trial_rank {
    /* a decision << 1: the rank is ready for it; + 1: its process tries another communicator */
    _Atomic uint64_t offer;
    /* the trial's number << 48 | ns; 0 ns: the time is lost */
    _Atomic uint64_t times[CECL_TRIAL_SLOTS];
    /* for ranks that share no memory, which take rank 0's: how many repetitions make a period, + (the arm that
     * was learned earlier, + 1) << 16 */
    _Atomic uint64_t hint;
};
struct cecl_trial_shared {
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

/* What a trial asks of its process. */
struct cecl_trial_host {
    void *context;
    /* Reserves trials of this process for communicator `id`; false: another one has them. Each true
     * is given back by `release`. */
    bool (*reserve)(void *context, uint64_t id);
    void (*release)(void *context, uint64_t id);
    /* What was learned earlier about this subject; -1: nothing. */
    int (*recall)(void *context, uint64_t subject);
    /* NULL: ranks share memory. Otherwise it ends the exchange that was begun last, if there is one: what each
     * rank gave is then in `all`. And it begins another one, with `mine` as it is now. Called on all ranks at the
     * same boundaries */
    void (*exchange)(void *context, const struct cecl_trial_rank *mine,
                     struct cecl_trial_rank *all);
    /* only verdicts of earlier runs count; nothing is tried. Equal on all ranks */
    bool only_recalls;
};

/* A verdict that holds for a while. */
struct cecl_learned {
    uint64_t subject;
    uint32_t arm;
    uint32_t left; /* repetitions of the subject until it is tried again: 10,000 periods */
};

struct cecl_trial {
    struct cecl_trial_shared *shared;
    struct cecl_trial_rank *mine; /* where this rank publishes */
    struct cecl_trial_rank own;   /* the same, if ranks share no memory */
    struct cecl_trial_host host;
    uint64_t id;
    int rank, nranks;
    int state;
    uint32_t arm;     /* valid if cecl_trial_has_arm */
    bool has_verdict; /* `arm` follows from a verdict */
    bool is_recalled; /* the verdict is from an earlier run */
    /* -- the subject: what is tried -- */
    uint64_t subject; /* a hash that names the subject */
    uint32_t arms;    /* bit a: arm a takes part; arm 0 always does */
    enum cecl_trial_kind kind;
    /* -- how far it is -- */
    uint32_t decisions; /* made so far on this communicator */
    uint32_t trials;    /* trials begun so far */
    uint32_t attempt;
    uint32_t wait;   /* boundaries until the next step; 0: there is none */
    uint32_t offers; /* for how many boundaries the next offer stands */
    bool is_busy;    /* the last attempt failed because another communicator was tried */
    /* how long repetitions took on the host since the subject was wanted, and how many of them */
    uint64_t host_ns, longest_ns;
    uint32_t seen;
    bool holds;       /* this communicator has reserved the trials of its process */
    uint32_t first;   /* the decision that began this trial; its turns are the next decisions */
    uint32_t turn;    /* number of the current turn, from 1 */
    bool has_turn;    /* false: the verdict was put off */
    uint32_t period;  /* periods of this turn so far */
    uint32_t counted; /* how many of these are counted */
    /* how many repetitions of the subject make a period; how many are done */
    uint32_t merged, repeated;
    uint32_t put_off; /* how often the verdict was put off */
    struct cecl_learned learned[CECL_TRIAL_LEARNED];
    uint32_t nlearned; /* verdicts so far; a new one replaces the oldest */
};

/* What the caller is to do at a boundary. */
struct cecl_trial_mark {
    bool is_mark; /* note the time here */
    /* publish, under this slot, the time from the mark before to here; -1: that time does not
     * count */
    int slot;
};

static inline size_t cecl_trial_bytes(int nranks)
{
    return sizeof(struct cecl_trial_shared) + (size_t)nranks * sizeof(struct cecl_trial_rank);
}

/* shared  of cecl_trial_bytes, zeroed; if ranks share no memory, this rank's own
 * drawn   a random number, equal on all ranks; names the communicator */
void cecl_trial_open(struct cecl_trial *trial, void *shared, int rank, int nranks, uint64_t drawn,
                     const struct cecl_trial_host *host);

/* Asks for a trial of `subject`. If it was tried lately, that verdict is in force instead. Ends
 * what was tried before. Called on all ranks at the same call. */
void cecl_trial_want(struct cecl_trial *trial, uint64_t subject, uint32_t arms,
                     enum cecl_trial_kind kind);

/* Ends the trial, or the verdict in force. Called on all ranks at the same call. */
void cecl_trial_cancel(struct cecl_trial *trial);

/* Tells that a repetition of the subject begins with the next call.
 *
 * was_whole  the repetition before followed another one directly, and has just ended
 * host_ns    how long that repetition took on the host; decides how many make a period */
struct cecl_trial_mark cecl_trial_boundary(struct cecl_trial *trial, bool was_whole,
                                           uint64_t host_ns);

/* Publishes how long the period of `slot` took, in trial number `number` (trial->trials at the
 * mark).
 *   ns  0: the time is lost */
void cecl_trial_publish(struct cecl_trial *trial, uint32_t number, int slot, uint64_t ns);

/* Whether no decision falls at the next boundary, so no time needs to be published before it. */
static inline bool cecl_trial_is_within(const struct cecl_trial *trial)
{
    return trial->state == CECL_TRIAL_RUNNING && trial->repeated + 1 < trial->merged;
}

/* Whether `arm` is in force: by a verdict, or because it has its turn. */
static inline bool cecl_trial_has_arm(const struct cecl_trial *trial)
{
    return trial->has_verdict || trial->state == CECL_TRIAL_RUNNING;
}

/* What all ranks' times say of the current trial, or else of the last one. */
struct cecl_verdict cecl_trial_verdict(const struct cecl_trial *trial);

#endif
