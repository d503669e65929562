/* Ranks that MPI started. */
#include <cecl/cecl_mpi.h>

#include "team.h"

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void max(double *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void sum(long long *value)
{
    MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
}

static void bcast(void *data, size_t bytes, int root)
{
    MPI_Bcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static ceclResult_t comm_init(ceclComm_t *comm, const ceclConfig_t *config)
{
    return ceclCommInitMpi(comm, MPI_COMM_WORLD, config);
}

static void leave(int end, bool broke)
{
    if (broke)
        MPI_Abort(MPI_COMM_WORLD, end);
    MPI_Finalize();
}

const bool team_mpi_built = true;

const struct team *team_mpi_join(int *argc, char ***argv, int *rank, int *nranks)
{
    static const struct team team = {barrier, max, sum, bcast, comm_init, leave};
    int is_there = 0, threads;
    /* a program with threads has initialized MPI already, in its own way */
    MPI_Initialized(&is_there);
    if (!is_there)
        MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, nranks);
    return &team;
}
