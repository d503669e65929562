/* Joining a cecl communicator through MPI. Lives in its own library (libcecl_mpi), so that the core
 * does not link MPI. */
#ifndef CECL_CECL_MPI_H
#define CECL_CECL_MPI_H

#include <cecl/cecl.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins a communicator whose ranks are those of `mpiComm`. MPI is used until this call returns and
 * never after.
 * comm     [out] written on success only.
 * mpiComm  an intracommunicator; its ranks must be on one host in this version.
 * config   NULL for defaults.
 * Collective over mpiComm, blocking. Threads, ownership, errors: as ceclCommInitRankConfig; MPI's
 * errors are ceclSystemError. Since 0.1. */
CECL_API CECL_CHECKED ceclResult_t ceclCommInitMpi(ceclComm_t *comm, MPI_Comm mpiComm,
                                                   const ceclConfig_t *config);

#ifdef __cplusplus
}
#endif
#endif
