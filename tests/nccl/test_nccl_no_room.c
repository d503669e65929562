/* A rank's communicator finds no room in the table: its call fails, and nothing leaks. CECL_NCCL_PATH: the stand-in. */
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>

#include "nccl/comms.h"
#include "ranks.h"

/* In some of the processes rank 0 already has NCCL's communicator when it learns of rank 1's abort. */
#define PROCESSES 20

static _Thread_local bool refuses;

/* Replaces libc's function in all libraries of this program. */
void *__libc_calloc(size_t count, size_t bytes);
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    return refuses && bytes == sizeof(struct cecl_nccl_comm) ? NULL : __libc_calloc(count, bytes);
}

/* Rank 0 passes its calls, unless it hears from NCCL first that rank 1 aborts. */
static void *join(void *argument)
{
    struct rank *r = argument;
    refuses = r->rank == 1;
    const ncclResult_t result = ncclCommInitRank(&r->comm, r->nranks, r->id, r->rank);
    r->is_right = r->rank == 1 ? result == (ncclResult_t)ceclSystemError
                               : result == 0 || result == (ncclResult_t)ceclRemoteError;
    r->is_right = ncclCommAbort(r->comm) == 0 && r->is_right;
    return NULL;
}

static bool leaves_nothing(void)
{
    const int descriptors = open_descriptors(), threads = threads_alive();
    const bool is = run_lives(2, join, NULL), nothing = comes_back_to(descriptors, threads);
    printf("results %s, %s left\n", is ? "right" : "wrong", nothing ? "nothing" : "something");
    fflush(stdout);
    return is && nothing;
}

static bool run_in_child(bool (*run)(void))
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(200); /* a rank may wait for another one */
        _exit(!run());
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* A process runs out of room only once: the next communicator reuses the entry of an ended one. */
int main(void)
{
    bool is = true;
    for (int i = 0; i < PROCESSES; i++)
        is = run_in_child(leaves_nothing) && is;
    return !is;
}
