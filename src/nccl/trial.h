/* Trials: several arms (ways to carry out calls) take turns in a program's own periods, and the arm that makes periods
 * shorter is kept.
 *
 * - IDLE: nothing is tried. Calls may go by an earlier verdict
 * - WAITING: a trial was asked for, or its start was put off. After some period boundaries this rank offers to begin
 * - OFFERED: this rank has offered to begin, or said that it is busy: another communicator of its process has a trial
 * - RUNNING: arms take turns
 *
 * The subject of a trial is a period of the program's calls. The start is put off if a rank has not offered yet or is
 * busy. It is also put off if the subject is short and has not come often enough: a benchmark that calls each size some
 * hundred times ends before a trial could tell anything.
 *
 * All ranks of a communicator see the same sequence of calls, so they reach the same boundaries between periods, at
 * different times. Some things must be equal on all ranks, but do not follow from the sequence: on these, ranks agree
 * by decisions. A decision is a word in memory that all ranks share. The first rank that needs a decision makes it by
 * compare-and-swap, from what all ranks have published so far; the others read it. So ranks cannot differ, and no rank
 * waits. Decisions are numbered, and no word is used twice.
 *
 * A turn has three whole periods of one arm. The first period is not counted, because it overlaps work of the turn
 * before. Each rank publishes how long the second and the third period took, once its GPU has reached their end. A
 * decision before each turn says which arm is next: each arm has one turn in a round, in an order that is drawn from a
 * hash. An arm whose periods are more than 1.25 times as long as arm 0's is dropped. After three rounds only arm 0 and
 * the arm that seems best get turns: with more measured times, small gains become clear. The decision after the last
 * turn is the verdict (trial_verdict.h). If times are missing because a GPU is behind, the verdict is put off by one
 * period, and from the fifth time on by more.
 *
 * This file knows no clock, no device and no call. docs/models/trial.pml is the model of starting
 * and deciding. One thread at a time may use a struct cecl_trial. */
#ifndef CECL_NCCL_TRIAL_H
#define CECL_NCCL_TRIAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/trial_verdict.h"

enum { CECL_TRIAL_IDLE, CECL_TRIAL_WAITING, CECL_TRIAL_OFFERED, CECL_TRIAL_RUNNING };

#define CECL_TRIAL_COUNTED 2u /* periods of a turn that are counted */
#define CECL_TRIAL_TURNS 20u  /* most turns of a trial: 60 whole periods */
#define CECL_TRIAL_SAMPLES (CECL_TRIAL_TURNS * CECL_TRIAL_COUNTED)
#define CECL_TRIAL_DECISIONS 4096u /* decisions of a communicator; after them it begins no trial */
#define CECL_TRIAL_ATTEMPTS 8u     /* attempts to begin a trial before a long wait */
#define CECL_TRIAL_LEARNED 16u     /* verdicts that a communicator remembers */

/* The words that one rank writes and all ranks read. Starts zeroed. */
struct cecl_trial_rank {
    /* (D + 1) << 1: the rank has offered to begin at decision number D. The lowest bit: the rank is busy */
    _Atomic uint64_t offer;
    /* the trial's number << 48 | ns; 0 ns: the time was not measured */
    _Atomic uint64_t times[CECL_TRIAL_SAMPLES];
};
struct cecl_trial_shared {
    _Atomic uint32_t decisions[CECL_TRIAL_DECISIONS];
    struct cecl_trial_rank ranks[];
};

/* What a trial needs from its process. */
struct cecl_trial_host {
    void *context;
    /* Reserves trials in this process for communicator `id`. Returns false if another communicator has reserved them.
     * `release` ends the reservation. */
    bool (*reserve)(void *context, uint64_t id);
    void (*release)(void *context, uint64_t id);
};

/* A verdict that holds for a while. */
struct cecl_learned {
    uint64_t subject;
    uint32_t arm;
    uint32_t left; /* repetitions of the subject until its next trial; at first 10,000 periods */
};

struct cecl_trial {
    struct cecl_trial_shared *shared;
    struct cecl_trial_rank *mine; /* this rank's words */
    struct cecl_trial_host host;
    uint64_t id;
    int nranks;
    int state;
    uint32_t arm;     /* the arm by which calls go, if cecl_trial_has_arm */
    bool has_verdict; /* a verdict has set `arm` */
    /* -- the subject -- */
    uint64_t subject; /* a hash that names the subject */
    uint32_t arms;    /* bit a: arm a takes part; arm 0 always does */
    /* -- the progress of the trial -- */
    uint32_t decisions; /* decisions so far on this communicator */
    uint32_t trials;    /* trials begun so far */
    uint32_t attempt;
    uint32_t wait;   /* boundaries until the next step of this state; 0: there is none */
    uint32_t offers; /* for how many boundaries the next offer lasts */
    bool is_busy;    /* the last attempt to begin failed because a rank was busy */
    /* how long the subject's repetitions took on the host: the sum, and the longest; `seen`: boundaries so far */
    uint64_t host_ns, longest_ns;
    uint32_t seen;
    bool holds;       /* this communicator has reserved trials in this process */
    uint32_t first;   /* number of the decision that began this trial; those on its turns follow */
    uint32_t turn;    /* number of the current turn, from 1 */
    bool has_turn;    /* false: the trial waits for the verdict */
    uint32_t period;  /* periods of the current turn so far */
    uint32_t counted; /* how many of the turn's periods were counted */
    /* how many repetitions of the subject make a period; how many of the current period are done */
    uint32_t merged, repeated;
    uint32_t put_off; /* how often the verdict was put off */
    struct cecl_learned learned[CECL_TRIAL_LEARNED];
    uint32_t nlearned; /* verdicts so far; a new verdict replaces the oldest */
};

/* What the caller must do at a boundary. */
struct cecl_trial_mark {
    bool is_mark; /* note the time at this boundary */
    /* number of the sample that is the time since the previous mark; -1: that time does not count */
    int sample;
};

static inline size_t cecl_trial_bytes(int nranks)
{
    return sizeof(struct cecl_trial_shared) + (size_t)nranks * sizeof(struct cecl_trial_rank);
}

/* shared  cecl_trial_bytes bytes, zeroed, which all ranks share
 * drawn   a random number, equal on all ranks, which identifies the communicator */
void cecl_trial_open(struct cecl_trial *trial, void *shared, int rank, int nranks, uint64_t drawn,
                     const struct cecl_trial_host *host);

/* Ends the current trial, and asks for one of `subject`. If the verdict on `subject` has not expired, takes that
 * verdict, and asks for no trial. All ranks must call this at the same call of the program. */
void cecl_trial_want(struct cecl_trial *trial, uint64_t subject, uint32_t arms);

/* Ends the trial, or the use of its verdict. All ranks must call this at the same call of the program. */
void cecl_trial_cancel(struct cecl_trial *trial);

/* Reports that a repetition of the subject begins with the next call.
 *
 * was_whole  the previous repetition directly followed another one, and ends with the previous call
 * host_ns    how long the previous repetition took on the host: decides how many repetitions make a period */
struct cecl_trial_mark cecl_trial_boundary(struct cecl_trial *trial, bool was_whole,
                                           uint64_t host_ns);

/* Publishes how long the period of `sample` took.
 * number  trial->trials at the mark
 * ns      0 if the time was not measured */
void cecl_trial_publish(struct cecl_trial *trial, uint32_t number, int sample, uint64_t ns);

/* Whether the next boundary lies within a period. No decision is made there if the repetition before it is whole. */
static inline bool cecl_trial_is_within(const struct cecl_trial *trial)
{
    return trial->state == CECL_TRIAL_RUNNING && trial->repeated + 1 < trial->merged;
}

/* Whether calls go by `arm`, because of a verdict or because the arm has its turn. */
static inline bool cecl_trial_has_arm(const struct cecl_trial *trial)
{
    return trial->has_verdict || trial->state == CECL_TRIAL_RUNNING;
}

/* The verdict by all ranks' times of the current trial or, if no trial runs, of the last one. */
struct cecl_verdict cecl_trial_verdict(const struct cecl_trial *trial);

/* -- internal to trial.c and trial_turns.c -- */

/* A decision's word: MADE, its kind, and an arm or a number. */
#define CECL_DECISION_MADE (UINT32_C(1) << 31)
#define CECL_DECISION_KIND 0x7f000000u
#define CECL_DECISION_NUMBER 0x00000fffu
enum {
    CECL_DECISION_START = 1 << 24,   /* NUMBER: how many repetitions make a period */
    CECL_DECISION_PUT_OFF = 2 << 24, /* NUMBER: as for START, or 0 if the verdict is put off */
    CECL_DECISION_TURN = 3 << 24,    /* + arm */
    CECL_DECISION_VERDICT = 4 << 24, /* + arm */
    /* why the start is put off; without either bit, a rank had not offered yet */
    CECL_DECISION_BUSY = 1 << 23, /* a rank is busy */
    CECL_DECISION_EARLY = 1 << 22 /* the subject is short, and has not come often enough */
};

#define CECL_TRIAL_PUT_OFF 14u /* the verdict is put off at most this often */

static inline uint64_t cecl_trial_mix(uint64_t hash)
{
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* The decision that this rank would make now: the next turn, the verdict, or to put the verdict off. */
uint32_t cecl_trial_next_step(const struct cecl_trial *trial);

#endif
