/* What the files of learning share: what a communicator has learned so far, and functions that report it. */
#ifndef CECL_NCCL_LEARNING_H
#define CECL_NCCL_LEARNING_H

#include "nccl/comms.h"
#include "nccl/marks.h"
#include "nccl/report.h"
#include "nccl/trial.h"
#include "nccl/trial_period.h"

/* The arms of trials: the ways that are tried. cecl_nccl_arm_words names them. */
enum { CECL_NCCL_BY_NCCL, CECL_NCCL_NO_SMS, CECL_NCCL_WITH_SMS, CECL_NCCL_MOVES_ALONE };

struct cecl_nccl_learn {
    /* -- used at each call -- */
    struct cecl_trial trial;
    /* the group of the last call, and how many calls this group had before that one */
    uint64_t group;
    uint32_t in_group;
    bool is_found;        /* a period was found, and the trial is on it */
    int policy, policies; /* ceclSmPolicy_t in force; the communicator's own */
    /* number of the last call that only moves data, and of the last reduction; from 1 */
    uint64_t moved, reduced;
    /* -- used less often -- */
    int64_t begun_ns;  /* when the host began this period, in ns */
    uint64_t reported; /* number of calls when --stats was last updated */
    struct cecl_nccl_marks marks;
    struct cecl_verdict verdict; /* the result of the last trial on a period */
    uint32_t repeated;           /* how many periods that trial timed as one step */
    struct cecl_period period;
};

/* -- verdicts.c -- */

/* Updates the communicator's entry of --stats, if there is one. */
void cecl_nccl_learn_report(const struct cecl_nccl_comm *comm);

/* Reports a verdict that a trial has just given. Rank 0 prints it. */
void cecl_nccl_learn_tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm);

#endif
