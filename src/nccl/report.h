/* The outcome of trials on this process's communicators, for `cecl-run --stats`: one entry for each
 * of the latest communicators, also for those that have ended. The thread that is inside a
 * communicator updates its entry now and then. Entries are printed when the process ends. */
#ifndef CECL_NCCL_REPORT_H
#define CECL_NCCL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "learn/classes.h"
#include "learn/verdict.h"

enum cecl_nccl_trial_state {
    CECL_NCCL_TRIAL_OFF,       /* the setting or the built-in table decides */
    CECL_NCCL_TRIAL_SEARCHING, /* no period was found yet */
    CECL_NCCL_TRIAL_CLASSES,   /* there is no period, so classes of calls are tried */
    CECL_NCCL_TRIAL_WAITING,   /* a period was found; the trial has not begun */
    CECL_NCCL_TRIAL_PUT_OFF,   /* the same; another communicator was tried at the last attempt */
    CECL_NCCL_TRIAL_APART,     /* the same; a rank's host was too far behind at the last attempt */
    CECL_NCCL_TRIAL_RUNNING,
    CECL_NCCL_TRIAL_LEFT, /* as PUT_OFF or APART, at the last attempt of this round; a later round tries again */
    CECL_NCCL_TRIAL_UNKNOWN,  /* nothing is tried, and the file has no verdict on the period */
    CECL_NCCL_TRIAL_FULL,     /* so many decisions have fallen that there is no room for more */
    CECL_NCCL_TRIAL_DECIDED,  /* by a trial */
    CECL_NCCL_TRIAL_RECALLED, /* by what was learned earlier */
    CECL_NCCL_TRIAL_STATES
};

/* A verdict on a class of calls. */
struct cecl_nccl_class_report {
    uint32_t key;
    char words[80]; /* "all-gather of 1 to 2 MiB, bfloat16" */
    uint32_t arm;
    bool is_recalled;
    double before_ns, gain; /* of a call; gain: of that way of cecl's which was best */
    uint32_t counts[2];     /* times of NCCL and of that way; 0: there was no trial */
};

struct cecl_nccl_report {
    int rank, nranks;
    bool has_rails; /* several nodes: see rails.h */
    enum cecl_nccl_trial_state state;
    uint32_t trials;             /* begun so far */
    uint32_t calls;              /* length of a period in calls; 0: none was found */
    uint32_t repeated;           /* periods that are timed as one step */
    uint32_t arm;                /* in force, where decided */
    struct cecl_verdict verdict; /* of the last trial; no times: there was none */
    struct cecl_nccl_class_report classes[CECL_CLASS_MOST];
    uint32_t nclasses;
    uint64_t told, late; /* ceclCallStats_t */
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
