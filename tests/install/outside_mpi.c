/* A program outside cecl's tree, whose ranks join through MPI. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    ceclComm_t comm;
    int rank = -1, failed = 1;
    MPI_Init(&argc, &argv);
    if (ceclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == ceclSuccess) {
        failed = ceclCommUserRank(comm, &rank) != ceclSuccess;
        failed |= ceclCommDestroy(comm) != ceclSuccess;
    }
    printf("cecl over MPI from outside: rank %d, %s\n", rank, ceclGetLastError(NULL));
    MPI_Finalize();
    return failed || rank != 0;
}
