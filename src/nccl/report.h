/* The outcome of trials on this process's communicators, for `cecl-run --stats`: one entry for each
 * of the latest communicators, also for those that have ended. The thread that is inside a
 * communicator updates its entry now and then. Entries are printed when the process ends. */
#ifndef CECL_NCCL_REPORT_H
#define CECL_NCCL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "learn/verdict.h"

enum cecl_nccl_trial_state {
    CECL_NCCL_TRIAL_OFF,       /* the setting or the built-in table decides */
    CECL_NCCL_TRIAL_SEARCHING, /* no period was found yet */
    CECL_NCCL_TRIAL_WAITING,   /* a period was found; the trial has not begun */
    CECL_NCCL_TRIAL_RUNNING,
    /* no trial began: other communicators were being tried at each attempt */
    CECL_NCCL_TRIAL_LEFT,
    CECL_NCCL_TRIAL_DECIDED,  /* by a trial */
    CECL_NCCL_TRIAL_RECALLED, /* by what was learned earlier */
    CECL_NCCL_TRIAL_STATES
};

struct cecl_nccl_report {
    int rank, nranks;
    enum cecl_nccl_trial_state state;
    uint32_t trials;             /* begun so far */
    uint32_t calls;              /* length of a period in calls; 0: none was found */
    uint32_t repeated;           /* periods that are timed as one step */
    uint32_t arm;                /* in force, if decided */
    struct cecl_verdict verdict; /* of the last trial; without times: there was no trial */
    uint64_t told, late;         /* counts of ceclCallStats_t */
};

/* Names of ways, by arm: for people, and for JSON and the file of what was learned. */
extern const char *const cecl_nccl_arm_words[CECL_VERDICT_ARMS];
extern const char *const cecl_nccl_arm_names[CECL_VERDICT_ARMS];

/* Writes the entry of the communicator that `key` names; no other communicator has the same key at
 * that time. If all places are taken, a new key replaces the oldest. */
void cecl_nccl_report_set(const void *key, const struct cecl_nccl_report *report);
/* Notes that the communicator has ended, so its key may be used again. */
void cecl_nccl_report_end(const void *key);
/* Forgets all entries: in a child of fork the communicators are the parent's. */
void cecl_nccl_report_forget(void);

/* Print lines for people, and an array of JSON objects. */
void cecl_nccl_report_print(FILE *out);
void cecl_nccl_report_json(FILE *out);

#endif
