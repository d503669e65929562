/* What the files of learning share: what a communicator has learned so far, and who is told. */
#ifndef CECL_NCCL_LEARNING_H
#define CECL_NCCL_LEARNING_H

#include "learn/classes.h"
#include "learn/period.h"
#include "learn/trial.h"
#include "nccl/comms.h"
#include "nccl/gathered.h"
#include "nccl/marks.h"
#include "nccl/report.h"

/* The ways that take turns, as cecl_nccl_arm_words has them. */
enum { CECL_NCCL_BY_NCCL, CECL_NCCL_NO_SMS, CECL_NCCL_WITH_SMS, CECL_NCCL_MOVES_ALONE };

struct cecl_nccl_learn {
    /* -- what each call asks for -- */
    struct cecl_trial trial;
    uint64_t group; /* the group of the last call, and how many calls of it came before */
    uint32_t in_group;
    bool is_found;           /* the trial is of the period */
    int policy, policies;    /* ceclSmPolicy_t in force; the communicator's own */
    uint64_t moved, reduced; /* the numbers of the last call of each kind; from 1 */
    /* -- the others -- */
    int64_t begun_ns;  /* when the host began this period */
    uint64_t reported; /* how many calls came before --stats was last updated */
    struct cecl_classes classes;
    bool has_from, has_timed; /* the last boundary's call has its first mark, and both: */
    uint32_t timed_from, timed_to;
    struct cecl_nccl_marks marks;
    struct cecl_nccl_gathered gathered;                  /* over several nodes */
    struct cecl_verdict verdict;                         /* of the period's last trial */
    struct cecl_nccl_class_report told[CECL_CLASS_MOST]; /* verdicts on classes */
    uint32_t ntold;
    struct cecl_period period;
};

/* -- class.c -- */

#define CECL_NCCL_CLASS_BYTES 80

/* The key of a call's class (learn/classes.h); 0: it has none. Equal on all ranks. */
uint32_t cecl_nccl_class_of(const struct cecl_nccl_call *call);
/* "all-gather of 1 to 2 MiB, bfloat16" */
void cecl_nccl_class_words(uint32_t key, char words[CECL_NCCL_CLASS_BYTES]);

/* -- verdicts.c. Rank 0 prints lines and keeps verdicts in the file of CECL_NCCL_LEARNED -- */

/* Brings the communicator's entry of --stats up to date, if there is one. */
void cecl_nccl_learn_report(const struct cecl_nccl_comm *comm);

/* A verdict has just fallen, by a trial or by the file: on the period, or on a class. */
void cecl_nccl_learn_tell(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm);
void cecl_nccl_learn_tell_class(struct cecl_nccl_learn *learn, const struct cecl_nccl_comm *comm,
                                const struct cecl_class *its);

#endif
