/* ceclCommInitMpi: ceclCommInitOob with a callback that uses an MPI communicator. This is a separate library,
 * libcecl_mpi. */
#include <cecl/cecl_mpi.h>

#include <limits.h>

#include "util/error.h"

static int all_gather(void *context, const void *send, void *recv, size_t bytes)
{
    MPI_Comm *comm = context;
    return bytes > INT_MAX || MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE,
                                            *comm) != MPI_SUCCESS;
}

CECL_API ceclResult_t ceclCommInitMpi(ceclComm_t *comm, MPI_Comm mpiComm,
                                      const ceclConfig_t *config)
{
    CECL_PUBLIC;
    int is_initialized = 0, is_finalized = 1, is_inter = 0, rank = -1, nranks = 0;
    if (MPI_Initialized(&is_initialized) != MPI_SUCCESS || !is_initialized)
        return cecl_fail(ceclInvalidUsage, "MPI is not initialised: call MPI_Init first");
    if (MPI_Finalized(&is_finalized) != MPI_SUCCESS || is_finalized)
        return cecl_fail(ceclInvalidUsage,
                         "MPI_Finalize was called: call ceclCommInitMpi before it");
    if (mpiComm == MPI_COMM_NULL || MPI_Comm_test_inter(mpiComm, &is_inter) != MPI_SUCCESS ||
        MPI_Comm_rank(mpiComm, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(mpiComm, &nranks) != MPI_SUCCESS)
        return cecl_fail(ceclInvalidArgument, "mpiComm: not a communicator that MPI knows");
    if (is_inter)
        return cecl_fail(ceclInvalidArgument,
                         "mpiComm: an inter-communicator; an intra-communicator expected (see "
                         "MPI_Intercomm_merge)");
    const ceclOob_t oob = {&mpiComm, all_gather, NULL};
    return ceclCommInitOob(comm, nranks, rank, &oob, config);
}
