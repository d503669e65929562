/* The cases of the fault suite: which rank commits which fault, at which point of which call. */
#ifndef CECL_TESTS_FAULT_CASES_H
#define CECL_TESTS_FAULT_CASES_H

#include <stdbool.h>
#include <stdint.h>

#define MOST_RANKS 4

/* X(name, how a case's description calls it) */
#define FAULT_LIST(X) \
    X(KILLED, "is killed") \
    X(STOPPED, "is stopped") /* afterwards the rank continues or is killed; the seed decides */ \
    X(EXITS, "exits")        /* its process ends without destroying the communicator */ \
    X(NEVER_CALLS, "never calls") \
    X(OTHER_CALL, "makes another call") /* the rank makes another call than its peers */ \
    X(ABORTS, "aborts") \
    X(REVOKES, "revokes") \
    X(LEAVES, "destroys its communicator") \
    /* the rank dies, and a forked child keeps its descriptors open */ \
    X(LEAVES_CHILD, "dies and leaves a child")
#define OP_LIST(X) \
    X(JOIN, "join") \
    X(JOIN_BY_CALLBACKS, "join by callbacks") \
    X(ALLOCATE, "growth")   /* allocates more than the pool has left */ \
    X(REGISTER, "register") /* registers new memory in each attempt */ \
    X(GATHER, "gather") \
    X(SMALL_GATHER, "small gather")   /* by a kernel: CECL_SM_ALLOW */ \
    X(URGENT_GATHER, "urgent gather") /* flags and blocks are in host memory */ \
    X(ALL_TO_ALL, "all-to-all") \
    X(BY_SPLITS, "all-to-all by splits") /* an all-to-all whose splits are on the device */ \
    X(SMALL_REDUCTION, "small reduction") \
    X(LARGE_REDUCTION, "large reduction") \
    X(STAGED_REDUCTION, "staged reduction") \
    X(REDUCE_SCATTER, "reduce-scatter") \
    X(BROADCAST, "broadcast") \
    X(BARRIER, "barrier") \
    X(GROUP, "group") \
    X(MESSAGES, "messages") /* each rank sends to each; every other time in a graph */ \
    /* captures a gather, launches its graph twice, and destroys it while it may run */ \
    X(GRAPH, "graph") \
    X(PUTS, "puts") /* each rank puts into every rank's window */ \
    X(SPLIT, "split") \
    X(SHRINK, "shrink") \
    X(FINALIZE, "finalize") \
    X(DESTROY, "destroy")
#define AS_NAME(name, words) name,
#define AS_WORDS(name, words) words,

enum fault { FAULT_LIST(AS_NAME) FAULTS };
enum op { OP_LIST(AS_NAME) OPS };

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
