/* Each rank gives COUNT numbers and gets the numbers of all ranks. It runs with and without GPUs. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 4 };

static void check(ceclResult_t result)
{
    if (result == ceclSuccess)
        return;
    fprintf(stderr, "%s\n", ceclGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclComm_t comm;
    ceclStream_t stream; /* under CUDA your own cudaStream_t serves as well */
    int rank, nranks, wrong = 0, mine[COUNT], *recv;
    MPI_Init(&argc, &argv);
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;           /* rank i takes GPU i */
    check(ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config)); /* or ceclCommInitRank, as with NCCL */
    check(ceclCommUserRank(comm, &rank));
    check(ceclCommCount(comm, &nranks));
    check(ceclStreamCreate(comm, &stream));

    const size_t bytes = (size_t)nranks * sizeof(mine);
    int *all = malloc(bytes);
    check(ceclMemAlloc(comm, (void **)&recv, bytes)); /* memory of cudaMalloc will do as well */
    for (int i = 0; i < COUNT; i++)
        mine[i] = 100 * rank + i;
    check(ceclMemcpyAsync(comm, recv + rank * COUNT, mine, sizeof(mine), stream));
    /* In place: the numbers already lie where the result needs them. No SM is used. */
    check(ceclAllGather(recv + rank * COUNT, recv, COUNT, ceclInt, comm, stream));
    check(ceclMemcpyAsync(comm, all, recv, bytes, stream));
    check(ceclStreamSynchronize(comm, stream));

    for (int i = 0; i < nranks * COUNT; i++)
        wrong += all[i] != 100 * (i / COUNT) + i % COUNT;
    printf("rank %d of %d: %d numbers gathered, %d wrong\n", rank, nranks, nranks * COUNT, wrong);
    check(ceclStreamDestroy(comm, stream));
    check(ceclCommDestroy(comm)); /* frees recv too */
    free(all);
    MPI_Finalize();
    return wrong != 0;
}
