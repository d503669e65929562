/* One process's life in a case, and what the processes of a case share. */
#ifndef CECL_TESTS_EXHAUST_LIFE_H
#define CECL_TESTS_EXHAUST_LIFE_H

#include <cecl/cecl.h>
#include <stdbool.h>

#include "../forked.h"
#include "../world/life.h"
#include "refuse.h"

#define RANKS 3
#define TIMEOUT_MS 60000 /* of waits for peers, and of joining; a step that takes longer has hung */
#define WORDS_BYTES 512
#define MOST_LEFT 63 /* places; with CUDA, some allocations of its runtime are kept, too */

struct step;

/* A rank's report on the step in which the request was refused. */
struct report {
    struct told told;
    ceclResult_t result;           /* result of the step */
    char words[WORDS_BYTES];       /* the step's error message */
    ceclResult_t async;            /* the communicator's asynchronous error after the step */
    double took;                   /* seconds that the step took */
    uintptr_t left[MOST_LEFT + 1]; /* places of allocations that were not freed; ends with 0 */
};

struct meeting {
    struct venue venue;
    _Atomic int ids; /* how many ids have been made */
    ceclUniqueId id;
    _Atomic int errors;  /* how many ranks' steps have ended with an error */
    _Atomic int gave_up; /* a rank has given up its join by callbacks */
    struct report reports[RANKS];
    struct ledger ledgers[RANKS];
};

struct life {
    AS_PLAYER; /* if one process has all ranks, it is rank 0 of 1 */
    const struct step *step;
    struct meeting *meeting;
    struct report *report;
    struct ledger *ledger;
    int faulty;            /* the rank to which a request is refused, or -1 */
    const uintptr_t *kept; /* places of allocations that the process keeps */
    ceclComm_t all[RANKS]; /* all handles, if one process has all ranks */
    int joined;            /* the value of meeting->ids that this rank waits for */
    int *files[2];         /* shared mappings of files, of INTS ints each */
    int fds[2];
    int *extra;       /* symmetric memory that the step allocates */
    ceclComm_t other; /* a communicator that the step makes */
    ceclRegistration_t registration;
};

_Noreturn void life_run(struct life *life);

/* ---- steps.c: the steps in which requests are refused */

struct step {
    const char *name;
    /* How the step ends if one rank is refused a request: */
    enum {
        ALONE,    /* the refused rank repeats the call alone, and then all ranks continue */
        TOGETHER, /* all ranks succeed, or all ranks fail and then repeat the call together */
        EITHER,   /* ALONE if peers still wait for the refused rank, TOGETHER if they have failed */
    } outcome;
    void (*prepare)(struct life *life);        /* may be NULL */
    ceclResult_t (*run)(struct life *life);    /* may be called again after a failure */
    const struct call *call;                   /* is made if `run` is NULL */
    enum { SYMMETRIC, FILES, PRIVATE } memory; /* FILES: `prepare` is open_files */
    bool late;                                 /* the last rank comes late */
    bool joins;                                /* run itself makes the communicator */
    bool ends;                                 /* run itself ends the communicator */
    bool one_process;                          /* one process has all ranks */
    /* runs with CECL_TUNING; with CECL_CHECK=1; with CECL_URGENT=1 */
    bool tuned, compared, urgent;
};

extern const struct step steps[];
extern const int nsteps;

ceclResult_t step_make(struct life *life);
ceclConfig_t step_config(void);
ceclResult_t step_join(struct life *life);
void step_clean(struct life *life); /* closes what the step has made */

#endif
