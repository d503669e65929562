/* The steps in which requests are refused. */
#ifndef CECL_TESTS_EXHAUST_STEPS_H
#define CECL_TESTS_EXHAUST_STEPS_H

#include "life.h"

struct step {
    const char *name;
    /* Where peers stand when this rank is refused something: */
    enum {
        ALONE,    /* a refused rank calls again by itself, and then all go on */
        TOGETHER, /* all ranks succeed or all fail, and then all call again */
        EITHER,   /* ALONE where peers wait for this rank, TOGETHER where they failed too */
    } outcome;
    void (*prepare)(struct life *life);     /* may be NULL */
    ceclResult_t (*run)(struct life *life); /* may be called again once it has failed */
    bool joins;                             /* run makes the communicator: none is made before */
    bool ends;                              /* run ends it */
    bool one_process;                       /* one process has all ranks */
    /* With CECL_TRACE, CECL_TUNING, CECL_CHECK=1, CECL_URGENT=1. */
    bool traced, tuned, compared, urgent;
};

extern const struct step steps[];
extern const int nsteps;

int step_value(int rank, int attempt, int index);
ceclConfig_t step_config(void);
ceclResult_t step_join(struct life *life);
/* An all-gather between new memory, looked at in every byte. Fails the case. */
void step_prove(struct life *life, ceclComm_t comm);
void step_clean(struct life *life); /* closes what is the step's own */

#endif
