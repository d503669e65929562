/* Ranks as threads of a test, on NCCL's calls. */
#ifndef CECL_TESTS_NCCL_RANKS_H
#define CECL_TESTS_NCCL_RANKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

#define MAX_RANKS 10

struct rank {
    int rank, nranks;
    ncclUniqueId id;
    ncclComm_t comm;
    bool (*run)(struct rank *); /* returns whether all went well */
    bool is_right;
};

/* As NCCL's configuration begins. */
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
#define AWAIT_S 30

/* Polls a non-blocking communicator until it is no longer in progress. Returns what it became. */
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

/* What a call on `comm` comes to that returned `result`. */
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

/* Runs `run` on `nranks` threads, each with a communicator. Returns whether all went well. */
static inline bool run_ranks(int nranks, bool (*run)(struct rank *))
{
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    ncclUniqueId id;
    bool is_right = ncclGetUniqueId(&id) == 0;
    for (int i = 0; i < nranks; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = nranks, .id = id, .run = run};
        pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < nranks; i++) {
        pthread_join(threads[i], NULL);
        is_right = is_right && ranks[i].is_right;
    }
    return is_right;
}

/* ---- processes as ranks. The parent has not called NCCL, so children do not inherit a library that is in use. */

struct meeting {
    _Atomic bool is_ready;
    ncclUniqueId id;
};

static inline struct meeting *meeting_new(void)
{
    void *memory = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void agree_on_id(struct meeting *meeting, struct rank *r)
{
    if (r->rank == 0) {
        ncclGetUniqueId(&meeting->id);
        atomic_store(&meeting->is_ready, true);
    }
    while (!atomic_load(&meeting->is_ready))
        usleep(100);
    r->id = meeting->id;
}

/* Runs `run` in a process for each rank, where `name` has the value values[rank]. Returns whether all
 * of them ended well; one that was killed did so if it had to. */
static inline bool run_processes(bool (*run)(struct rank *), int nranks, const char *name,
                                 const char *const *values)
{
    struct meeting *meeting = meeting_new();
    bool is = meeting;
    int status;
    for (int i = 0; is && i < nranks; i++) {
        struct rank r = {.rank = i, .nranks = nranks, .run = run};
        if (fork() != 0)
            continue;
        if (name)
            setenv(name, values[i], 1);
        agree_on_id(meeting, &r);
        run_rank(&r);
        _exit(r.is_right ? 0 : 1);
    }
    for (int i = 0; meeting && i < nranks; i++)
        is = wait(&status) > 0 && (status == 0 || WIFSIGNALED(status)) && is;
    if (meeting)
        munmap(meeting, sizeof(*meeting));
    return is;
}

#endif
