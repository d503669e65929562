/* For tests whose ranks are child processes. The parent calls nothing of the library, so it forks without threads. */
#ifndef CECL_TESTS_FORKED_H
#define CECL_TESTS_FORKED_H

#include <cecl/cecl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Zeroed memory that the children will share. Flushes stdout, so that no child writes it again. */
static inline void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    if (memory != MAP_FAILED)
        return memory;
    perror("mmap");
    exit(2);
}

/* An id that rank 0 makes. */
struct forked_id {
    _Atomic int ready;
    ceclUniqueId id;
};

static inline ceclUniqueId forked_meet(struct forked_id *at, int rank)
{
    if (rank == 0) {
        if (ceclGetUniqueId(&at->id) != ceclSuccess)
            _exit(20);
        at->ready = 1;
    }
    while (!at->ready)
        usleep(200);
    return at->id;
}

#endif
