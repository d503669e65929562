/* Runs ranks as processes. If the parent has called NCCL, the children inherit what its library holds. */
#ifndef CECL_TESTS_NCCL_PROCESSES_H
#define CECL_TESTS_NCCL_PROCESSES_H

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "ranks.h"

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

/* Runs `run` in a process for each rank, in which the environment variable `name` is values[rank]. Returns whether each
 * process succeeded, or killed itself (SIGKILL). */
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
        is = wait(&status) > 0 && (status == 0 || status == SIGKILL) && is;
    if (meeting)
        munmap(meeting, sizeof(*meeting));
    return is;
}

#endif
