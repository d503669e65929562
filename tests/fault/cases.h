/* The cases of the fault suite: which rank does what wrong, at which point of which call. */
#ifndef CECL_TESTS_FAULT_CASES_H
#define CECL_TESTS_FAULT_CASES_H

#include <stdbool.h>
#include <stdint.h>

#define MOST_RANKS 4

/* What one rank, the faulty one, does wrong. */
enum fault {
    KILLED,
    STOPPED, /* afterwards it goes on, or is killed; the seed decides */
    EXITS,   /* without destroying its communicator */
    NEVER_CALLS,
    OTHER_CALL, /* it makes another call than its peers */
    ABORTS,
    REVOKES,
    LEAVES,       /* destroys its communicator */
    LEAVES_CHILD, /* it dies, and a forked child keeps its descriptors open */
    FAULTS
};

/* The call that all ranks make. */
enum op {
    JOIN,
    JOIN_BY_CALLBACKS,
    ALLOCATE, /* the pool grows */
    REGISTER, /* new memory in each attempt */
    GATHER,
    ALL_TO_ALL,
    BY_SPLITS, /* an all-to-all whose splits are on the device */
    SMALL_REDUCTION,
    LARGE_REDUCTION,
    STAGED_REDUCTION,
    REDUCE_SCATTER,
    BROADCAST,
    BARRIER,
    GROUP,
    MESSAGES, /* each rank to each */
    REQUEST,  /* made and started */
    PUTS,     /* each rank into the window of each */
    SPLIT,
    SHRINK,
    FINALIZE,
    DESTROY,
    OPS
};

/* When the fault comes. */
enum when {
    BEFORE, /* instead of the call */
    WITHIN, /* between two parts of the call, for example enqueued and not synchronized */
    AMID,   /* by a thread of the faulty rank, after a random time */
    AFTER,  /* once all ranks have finished the call; the others are idle then */
    WHENS
};

struct fault_case {
    int number;
    enum op op;
    enum when when;
    enum fault fault;
    int nranks, faulty;
    int round; /* the attempt, or the exchange of joining, at which the fault comes */
    uint32_t seed;
};

/* All cases; *count is their number. The list is made once. */
const struct fault_case *fault_cases(uint32_t seed, int *count);

/* For example "gather: rank 1 of 3 is killed within". */
void fault_case_name(const struct fault_case *c, char *name, int bytes);

/* Whether `rank` takes part in the communicator of those who are left. */
bool fault_case_stays(const struct fault_case *c, int rank);
/* Why a case with this failure is known to fail today, or NULL. `words`: what the first rank that
 * failed found. */
const char *fault_case_known(const struct fault_case *c, const char *words);

/* The rank that makes the id of the first communicator. */
int fault_case_maker(const struct fault_case *c);
/* Whether the fault leaves evidence that peers can have at once, without a time limit. */
bool fault_case_is_seen(const struct fault_case *c);

#endif
