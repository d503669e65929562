/* What `cecl-run --stats` prints when a process ends.
 *
 * stats.c: the table of calls (CECL_NCCL_STATS=1): which calls were made by cecl, made by NCCL, or refused, and why.
 *
 * report.c: the results of trials on this process's latest communicators, also on those that have ended. Each has an
 * entry, which its own calls update from time to time. */
#ifndef CECL_NCCL_REPORT_H
#define CECL_NCCL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "nccl/call.h"
#include "nccl/symbol.h"
#include "nccl/trial_verdict.h"

/* -- stats.c -- */

/* Counts a call that is decided on.
 * mark  whether the call uses SMs, if cecl makes it; otherwise whether it is refused */
void cecl_nccl_stats_count(const struct cecl_nccl_call *call, bool mark);
/* Notes a new communicator, so that the table can name this process's rank. */
void cecl_nccl_stats_note_rank(int rank, int nranks);
/* Counts a call of a function whose arguments this library does not know. */
void cecl_nccl_stats_count_symbol(struct cecl_nccl_symbol *symbol, bool refused);

/* -- report.c -- */

enum cecl_nccl_trial_state {
    CECL_NCCL_TRIAL_OFF,       /* no trials: CECL_NCCL or the built-in table decides */
    CECL_NCCL_TRIAL_SEARCHING, /* no period has been found yet */
    CECL_NCCL_TRIAL_WAITING,   /* a period was found; the trial has not begun */
    /* like WAITING, but the last attempt to begin failed: another communicator had its trial */
    CECL_NCCL_TRIAL_PUT_OFF,
    /* like WAITING, but the last attempt to begin failed: a rank's host was too far behind, or the step too new */
    CECL_NCCL_TRIAL_APART,
    CECL_NCCL_TRIAL_RUNNING,
    /* all attempts to begin have failed; there are new ones after some hundred steps */
    CECL_NCCL_TRIAL_LEFT,
    CECL_NCCL_TRIAL_FULL,    /* there is no room for more decisions */
    CECL_NCCL_TRIAL_DECIDED, /* by a trial */
    CECL_NCCL_TRIAL_STATES
};

struct cecl_nccl_report {
    int rank, nranks;
    enum cecl_nccl_trial_state state;
    uint32_t trials;             /* how many trials have begun */
    uint32_t calls;              /* length of the period in calls; 0: no period was found */
    uint32_t arm;                /* the chosen way, if there was a decision */
    struct cecl_verdict verdict; /* of the last trial on a period; without a trial: no times */
    uint32_t repeated;   /* how many repetitions of the step the trial timed as one period */
    uint64_t told, late; /* ceclCallStats_t */
};

/* What each arm does, in words for people, and its name in JSON. */
extern const char *const cecl_nccl_arm_words[CECL_VERDICT_ARMS];
extern const char *const cecl_nccl_arm_names[CECL_VERDICT_ARMS];

/* Writes the entry of the communicator with this key. No two communicators have the same key at the same time. If all
 * entries are used, a new communicator gets the oldest one. If `is_last`, the communicator ends. */
void cecl_nccl_report_set(const void *key, const struct cecl_nccl_report *report, bool is_last);
/* Forgets all entries, for a forked child: the communicators belong to its parent. */
void cecl_nccl_report_forget(void);

/* cecl_nccl_report_print prints all entries as lines for people, cecl_nccl_report_json as an array of JSON objects. */
void cecl_nccl_report_print(FILE *out);
void cecl_nccl_report_json(FILE *out);

#endif
