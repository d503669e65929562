/* The cases of the fault suite: which rank commits which fault, at which point of which call. */
#ifndef CECL_TESTS_FAULT_CASES_H
#define CECL_TESTS_FAULT_CASES_H

#include <stdbool.h>
#include <stdint.h>

#define MOST_RANKS 4

enum fault {
    KILLED,
    STOPPED, /* afterwards the rank continues or is killed; the seed decides */
    EXITS,   /* its process ends without destroying the communicator */
    NEVER_CALLS,
    OTHER_CALL, /* the rank makes another call than its peers */
    ABORTS,
    REVOKES,
    LEAVES,       /* the rank destroys its communicator */
    LEAVES_CHILD, /* the rank dies, and a forked child keeps its descriptors open */
    FAULTS
};

enum op {
    JOIN,
    JOIN_BY_CALLBACKS,
    ALLOCATE, /* allocates more than the pool has left */
    REGISTER, /* registers new memory in each attempt */
    GATHER,
    SMALL_GATHER,  /* by a kernel: CECL_SM_ALLOW */
    URGENT_GATHER, /* flags and blocks are in host memory */
    ALL_TO_ALL,
    BY_SPLITS, /* an all-to-all whose splits are on the device */
    SMALL_REDUCTION,
    LARGE_REDUCTION,
    STAGED_REDUCTION,
    REDUCE_SCATTER,
    BROADCAST,
    BARRIER,
    GROUP,
    MESSAGES, /* each rank sends to each; every other time in a graph */
    GRAPH,    /* captures a gather, launches its graph twice, and destroys it while it may run */
    PUTS,     /* each rank puts into every rank's window */
    SPLIT,
    SHRINK,
    FINALIZE,
    DESTROY,
    OPS
};

enum when {
    BEFORE, /* instead of the call */
    WITHIN, /* between two parts of the call, for example enqueued and not synchronized */
    AMID,   /* a thread of the faulty rank commits the fault after a random time */
    AFTER,  /* after all ranks have finished the call, while the others are idle */
    WHENS
};

struct fault_case {
    int number;
    enum op op;
    enum when when;
    enum fault fault;
    int nranks, faulty;
    int round; /* the attempt, or the exchange during joining, at which the fault comes */
    uint32_t seed;
};

/* All cases; *count: how many. The list is made once. */
const struct fault_case *fault_cases(uint32_t seed, int *count);

/* Writes a description, for example "gather: rank 1 of 3 is killed within". */
void fault_case_name(const struct fault_case *c, char *name, int bytes);

/* Whether `rank` is in the survivors' communicator. */
bool fault_case_stays(const struct fault_case *c, int rank);
/* Why a case is known to fail in this way, or NULL. `words`: the message of the rank that failed first. */
const char *fault_case_known(const struct fault_case *c, const char *words);

/* The rank that makes the first communicator's id. */
int fault_case_maker(const struct fault_case *c);
/* Whether the fault leaves evidence from which peers learn of it without a time limit. */
bool fault_case_is_seen(const struct fault_case *c);

#endif
