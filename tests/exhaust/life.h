/* One process's life in a case, and what the processes of a case share. */
#ifndef CECL_TESTS_EXHAUST_LIFE_H
#define CECL_TESTS_EXHAUST_LIFE_H

#include <cecl/cecl.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../fault/census.h"
#include "refuse.h"

#define RANKS 3
#define INTS 65536       /* of each of a rank's two symmetric buffers */
#define TIMEOUT_MS 20000 /* of waits for peers, and of joining: what takes so long has hung */
#define OOB_EXCHANGES 16 /* of one join by callbacks */
#define OOB_PART_BYTES 16384
#define WORDS_BYTES 512
#define MOST_LEFT 63 /* in a build with CUDA, its runtime keeps some, too */

struct step;

/* What a rank has to say of the step in which the request was refused. */
struct report {
    const char *_Atomic at; /* what it does now; a string constant */
    _Atomic int done;
    _Atomic int failed;
    char fault[1024];              /* what was not as it should be */
    ceclResult_t result;           /* of the step */
    char words[WORDS_BYTES];       /* and its message */
    ceclResult_t async;            /* of the communicator afterwards */
    double took;                   /* seconds */
    uintptr_t left[MOST_LEFT + 1]; /* places of allocations that were not freed; ends with 0 */
};

/* Shared by the processes of a case. */
struct meeting {
    _Atomic int passed; /* ranks that came to a meeting point, of all of them together */
    _Atomic int ids;    /* ids that were made */
    ceclUniqueId id;
    _Atomic int errors;  /* ranks whose step has ended with an error */
    _Atomic int gave_up; /* a rank has left its join by callbacks */
    _Atomic int brought[OOB_EXCHANGES];
    char parts[OOB_EXCHANGES][RANKS][OOB_PART_BYTES];
    struct report reports[RANKS];
    struct ledger ledgers[RANKS];
};

struct life {
    const struct step *step;
    struct meeting *meeting;
    struct report *report;
    struct ledger *ledger;
    int me, n;             /* rank and number of ranks; a process with all ranks is rank 0 of 1 */
    int faulty;            /* the rank to which a request is refused, or -1 */
    const uintptr_t *kept; /* places of what a life without a refusal leaves, for the process */
    ceclComm_t comm;
    ceclComm_t all[RANKS]; /* where one process has all ranks */
    int *in, *out;         /* symmetric memory of INTS ints each */
    int attempt;           /* so that what an earlier attempt left is never right by chance */
    int awaited, joined;   /* of meeting->passed and meeting->ids */
    int oob_round;
    int *files[2]; /* shared mappings of files, of INTS ints each */
    int fds[2];
    int *extra;       /* symmetric memory of a step's own */
    ceclComm_t other; /* and a communicator */
    ceclRegistration_t registration;
    struct census start;
};

double now(void);
_Noreturn void life_fail(struct life *life, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void life_meet(struct life *life);
#define AT(life, text) atomic_store(&(life)->report->at, text)

/* A whole life. Does not return. */
_Noreturn void life_run(struct life *life);

#endif
