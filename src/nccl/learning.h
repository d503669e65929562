/* What the files of learning share: what a communicator has learned so far, and functions that report it. */
#ifndef CECL_NCCL_LEARNING_H
#define CECL_NCCL_LEARNING_H

#include "learn/classes.h"
#include "learn/period.h"
#include "learn/trial.h"
#include "nccl/comms.h"
#include "nccl/marks.h"
#include "nccl/report.h"

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
    struct cecl_classes classes;
    bool has_from,
        has_timed; /* whether the call at the last boundary has its first mark, and both marks, which are: */
    uint32_t timed_from, timed_to;
    struct cecl_nccl_marks marks;
    struct cecl_verdict verdict; /* the result of the last trial on a period */
    uint32_t repeated;           /* how many periods that trial timed as one step */
    struct cecl_nccl_class_report told[CECL_CLASS_MOST]; /* verdicts on classes */
    uint32_t ntold;
    struct cecl_period period;
};

/* -- class.c -- */

#define CECL_NCCL_CLASS_BYTES 80

/* The key of a call's class (learn/classes.h); 0: it is in no class. Equal on all ranks. */
uint32_t cecl_nccl_class_of(const struct cecl_nccl_call *call);
/* A hash of those properties of a call that are equal on all ranks. in_group: how many calls of its group came before. */
uint64_t cecl_nccl_token_of(const struct cecl_nccl_call *call, uint32_t in_group);
/* Describes a class: "all-gather of 1 to 2 MiB, bfloat16". */
void cecl_nccl_class_words(uint32_t key, char words[CECL_NCCL_CLASS_BYTES]);

/* -- verdicts.c. Rank 0 prints verdicts, and adds them to the file of CECL_NCCL_LEARNED -- */

/* Updates the communicator's entry of --stats, if there is one. */
void cecl_nccl_learn_report(const struct cecl_nccl_comm *comm);

/* Report a verdict that a trial or the file has just given: on the period, or on a class. */
void cecl_nccl_learn_tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm);
void cecl_nccl_learn_tell_class(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm,
                                const struct cecl_class *its);

#endif
