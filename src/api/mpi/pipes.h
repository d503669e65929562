/* The network between nodes by MPI, which libcecl_mpi lends to libcecl. */
#ifndef CECL_API_MPI_PIPES_H
#define CECL_API_MPI_PIPES_H

#include "net/pipes.h"

/* A lender for a communicator whose ranks are those of *comm (MPI_Comm), which must live until the communicator
 * is made. */
struct cecl_net_lender cecl_mpi_lender(void *comm);

#endif
