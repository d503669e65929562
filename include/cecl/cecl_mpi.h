/* Joining a cecl communicator through MPI. The function is in a library of its own, libcecl_mpi, so
 * that libcecl does not link MPI. Words are used as in cecl.h. */
#ifndef CECL_CECL_MPI_H
#define CECL_CECL_MPI_H

#include <cecl/cecl.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins a communicator that has the ranks of `mpiComm`. cecl uses MPI only until this call returns.
 * comm     [out] written on success only.
 * mpiComm  an intracommunicator; an intercommunicator is refused.
 * config   NULL for defaults; read during the call only.
 * Collective over mpiComm, blocking; not in a group. Threads, ownership, errors: as
 * ceclCommInitOob; ceclSystemError if MPI_Allgather fails; ceclInvalidUsage before MPI_Init and after
 * MPI_Finalize. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitMpi(ceclComm_t *comm, MPI_Comm mpiComm,
                                                   const ceclConfig_t *config);

#ifdef __cplusplus
}
#endif
#endif
