/* The ranks of a program: processes that MPI has started, or that the program starts itself. A team has the
 * exchanges that measuring needs besides cecl. */
#ifndef CECL_BENCH_TEAM_H
#define CECL_BENCH_TEAM_H

#include <cecl/cecl.h>
#include <stdbool.h>
#include <stddef.h>

/* All calls are collective. */
struct team {
    void (*barrier)(void);
    void (*max)(double *values, int count); /* makes each the greatest of all ranks' */
    void (*sum)(long long *value);
    void (*bcast)(void *data, size_t bytes, int root);
    ceclResult_t (*comm_init)(ceclComm_t *comm, const ceclConfig_t *config);
    /* Ends this rank, which calls nothing of the team afterwards. If it `broke` off, the other ranks end as well,
     * because they may wait for it. */
    void (*leave)(int end, bool broke);
};

/* team_mpi.c or team_mpi_absent.c. team_mpi_join: NULL in a build without MPI. */
extern const bool team_mpi_built;
const struct team *team_mpi_join(int *argc, char ***argv, int *rank, int *nranks);

#define TEAM_RANKS_MAX 64
/* Starts `nranks` processes on this machine, and returns in each of them. The calling process never returns: it
 * waits for all, and ends with the exit code of the first rank that failed, or with 0. Returns NULL, and
 * sets errno, if it cannot start them. The process must have started no thread and used no GPU before. */
const struct team *team_fork_join(int nranks, int *rank);

/* The value of --ranks; 0: not given; -1: not a valid number of ranks. It is read before the other options, which
 * are parsed after the ranks have started. */
int team_ranks_asked(int argc, char **argv);

#endif
