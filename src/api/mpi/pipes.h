/* A network between nodes that uses MPI. libcecl_mpi lends this network to libcecl. */
#ifndef CECL_API_MPI_PIPES_H
#define CECL_API_MPI_PIPES_H

#include "net/pipes.h"

/* A lender for a communicator with the ranks of *comm, an MPI_Comm that must stay valid until the
 * communicator is made. */
struct cecl_net_lender cecl_mpi_lender(void *comm);

#endif
