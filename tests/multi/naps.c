/* Collective functions of MPI that sleep while they wait. Open MPI's own ones poll without end, and yield; where ranks
 * share few cores, that takes as much time as the tests themselves. */
#include <mpi.h>
#include <time.h>

#define LOOKS 20 /* before the first sleep, because most peers come soon */
#define FIRST_NAP_NS 20000L
#define LONGEST_NAP_NS 500000L

/* Waits as long as all ranks need. The alarm of multi_main ends a hang. */
static int wait_for(int begun, MPI_Request *request)
{
    struct timespec nap = {.tv_nsec = FIRST_NAP_NS};
    int result = begun, done = 0;
    for (int looks = 0; result == MPI_SUCCESS; looks++) {
        result = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            break;
        if (looks < LOOKS)
            continue;
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec < LONGEST_NAP_NS ? nap.tv_nsec * 5 / 4 : LONGEST_NAP_NS;
    }
    return result;
}

int MPI_Barrier(MPI_Comm comm)
{
    MPI_Request request;
    return wait_for(PMPI_Ibarrier(comm, &request), &request);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request request;
    return wait_for(PMPI_Ibcast(buffer, count, type, root, comm, &request), &request);
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm)
{
    MPI_Request request;
    return wait_for(PMPI_Iallreduce(send, recv, count, type, op, comm, &request), &request);
}
