/* Runs ranks as threads of a test that calls NCCL. */
#ifndef CECL_TESTS_NCCL_RANKS_H
#define CECL_TESTS_NCCL_RANKS_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../open_descriptors.h"
#include "../prompt.h"
#include "../threads_alive.h"
#include "calls.h"

#define MAX_RANKS 10

struct rank {
    int rank, nranks;
    ncclUniqueId id;
    ncclComm_t comm;
    bool (*run)(struct rank *); /* returns whether the rank succeeded */
    bool is_right;
};

/* The first fields of NCCL's configuration. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
    char rest[256];
};

static inline ncclConfig_t *non_blocking(struct config *config)
{
    *config = (struct config){.size = sizeof(*config)};
    return (ncclConfig_t *)config;
}

#define IN_PROGRESS ((ncclResult_t)ceclInProgress)
#define AWAIT_S 100

/* Polls a non-blocking communicator until it is no longer in progress. Returns its final state. */
static inline ncclResult_t await_comm(ncclComm_t comm)
{
    ncclResult_t error = IN_PROGRESS;
    const time_t limit = time(NULL) + AWAIT_S;
    while (error == IN_PROGRESS && time(NULL) < limit) {
        if (ncclCommGetAsyncError(comm, &error) != 0)
            return -1;
        usleep(500);
    }
    return error;
}

/* The final result of a call on `comm` that returned `result`. */
static inline ncclResult_t outcome_of(ncclComm_t comm, ncclResult_t result)
{
    return result == IN_PROGRESS ? await_comm(comm) : result;
}

static inline void *run_rank(void *argument)
{
    struct rank *rank = argument;
    const ncclResult_t result = ncclCommInitRank(&rank->comm, rank->nranks, rank->id, rank->rank);
    rank->is_right =
        outcome_of(rank->comm, result) == 0 && rank->run(rank) && ncclCommDestroy(rank->comm) == 0;
    return NULL;
}

/* Runs `life`, which joins by rank->id, on a thread for each rank. Returns whether all succeeded. */
static inline bool run_lives(int nranks, void *(*life)(void *rank), bool (*run)(struct rank *))
{
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    ncclUniqueId id;
    bool is_right = ncclGetUniqueId(&id) == 0;
    for (int i = 0; i < nranks; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = nranks, .id = id, .run = run};
        pthread_create(&threads[i], NULL, life, &ranks[i]);
    }
    for (int i = 0; i < nranks; i++) {
        pthread_join(threads[i], NULL);
        is_right = is_right && ranks[i].is_right;
    }
    return is_right;
}

/* Runs `run` on `nranks` threads, each with a communicator. Returns whether all succeeded. */
static inline bool run_ranks(int nranks, bool (*run)(struct rank *))
{
    return run_lives(nranks, run_rank, run);
}

/* Whether ended communicators have left no descriptor and no thread. It waits for threads that are still ending: those
 * that make a communicator, or listen for an id. */
static inline bool comes_back_to(int descriptors, int threads)
{
    for (int tries = 0; tries < 100 * PROMPT; tries++) {
        if (open_descriptors() <= descriptors && threads_alive() <= threads)
            return true;
        usleep(10000);
    }
    return false;
}

static inline size_t calls_of(const char *name)
{
    return STANDIN(standin_calls)(name);
}

static inline bool is_under(const char *policies)
{
    const char *policy = getenv("CECL_NCCL");
    return policy && strstr(policies, policy);
}

/* Defines a test that runs only under these policies (CECL_NCCL). */
#define TEST_UNDER(policies, name) TEST_IF(is_under(policies), name, NULL, NULL)

/* Defines a test for numbers of ranks: each rank runs the body on its own thread, and returns whether it succeeded. run:
 * run_ranks, or a function like it. */
#define TEST_RUN_BY(run, policies, name, ...) \
    static bool name##_on(struct rank *r); \
    TEST_UNDER(policies, name) \
    { \
        static const int counts[] = {__VA_ARGS__}; \
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) \
            assert_true(run(counts[i], name##_on)); \
    } \
    static bool name##_on(struct rank *r)
#define TEST_OF_RANKS_UNDER(policies, name, ...) TEST_RUN_BY(run_ranks, policies, name, __VA_ARGS__)
#define TEST_OF_RANKS(name, ...) TEST_OF_RANKS_UNDER("off all auto strict", name, __VA_ARGS__)

#endif
