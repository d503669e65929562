/* ceclCommInitMpi refuses calls before MPI_Init or after MPI_Finalize, and inter-communicators: MPI would end the job. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cecl/cecl_mpi.h>

static bool is_refused(MPI_Comm mpi, ceclResult_t expected, const char *words)
{
    ceclComm_t comm = NULL;
    const ceclResult_t result = ceclCommInitMpi(&comm, mpi, NULL);
    const bool is = result == expected && !comm && strstr(ceclGetLastError(NULL), words);
    if (!is)
        fprintf(stderr, "result %d, %s: %d, %s expected\n", result, ceclGetLastError(NULL),
                expected, words);
    return is;
}

/* Tries a communicator between the even ranks and the odd ranks. */
static bool inter_communicators_are_refused(void)
{
    int rank;
    MPI_Comm half, inter;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    const int made = MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &inter);
    const bool is = made == MPI_SUCCESS &&
                    is_refused(inter, ceclInvalidArgument, "mpiComm: an inter-communicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    return is;
}

int main(int argc, char **argv)
{
    bool is = is_refused(MPI_COMM_WORLD, ceclInvalidUsage, "call MPI_Init first");
    MPI_Init(&argc, &argv);
    is = inter_communicators_are_refused() && is;
    MPI_Finalize();
    return !(is_refused(MPI_COMM_WORLD, ceclInvalidUsage, "MPI_Finalize was called") && is);
}
