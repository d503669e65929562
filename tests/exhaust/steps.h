/* The steps in which requests are refused. */
#ifndef CECL_TESTS_EXHAUST_STEPS_H
#define CECL_TESTS_EXHAUST_STEPS_H

#include "life.h"

struct step {
    const char *name;
    /* What the other ranks do when this rank is refused a request: */
    enum {
        ALONE,    /* the refused rank repeats the call alone, and then all ranks continue */
        TOGETHER, /* all ranks succeed, or all ranks fail and then repeat the call together */
        EITHER,   /* ALONE if peers still wait for this rank, TOGETHER if they failed, too */
    } outcome;
    void (*prepare)(struct life *life);        /* may be NULL */
    ceclResult_t (*run)(struct life *life);    /* may be called again after a failure */
    const struct call *call;                   /* if there is no `run` */
    enum { SYMMETRIC, FILES, PRIVATE } memory; /* FILES: `prepare` is open_files */
    bool late;                                 /* the last rank comes late */
    bool joins;                                /* run itself makes the communicator */
    bool ends;                                 /* run itself ends the communicator */
    bool one_process;                          /* one process has all ranks */
    /* runs with CECL_TUNING, CECL_CHECK=1 and CECL_URGENT=1 */
    bool tuned, compared, urgent;
};

extern const struct step steps[];
extern const int nsteps;

ceclResult_t step_make(struct life *life);
ceclConfig_t step_config(void);
ceclResult_t step_join(struct life *life);
/* Fails the case unless calls between new buffers are right, and ends the communicator. */
void step_prove(struct life *life, ceclComm_t comm);
void step_clean(struct life *life); /* closes what the step has made */

#endif
