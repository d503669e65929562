/* The first program: every rank contributes four numbers, and every rank gets all of them. It runs
 * on GPUs, and without any.
 *
 *     mpirun --allow-run-as-root --oversubscribe -n 4 build/examples/example_allgather
 *
 * If ranks call with different counts or types, cecl does not notice, and the data is wrong. Run a
 * program of your own once with CECL_CHECK=1 in the environment: ranks then compare every call. */
#include <cecl/cecl_mpi.h>
#include <stdio.h>

#define COUNT 4
#define CHECK(call)                                                                                \
    if ((call) != ceclSuccess) {                                                                   \
        fprintf(stderr, "%s: %s\n", #call, ceclGetLastError(NULL));                                \
        MPI_Abort(MPI_COMM_WORLD, 1);                                                              \
    }

int main(int argc, char **argv)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclComm_t comm;
    ceclStream_t stream;
    int rank, nranks, wrong = 0, mine[COUNT], all[COUNT * 64], *recv;

    MPI_Init(&argc, &argv);
    /* Rank i uses GPU i. Without GPUs, it uses the host device. */
    config.cudaDevice = CECL_CUDA_DEVICE_BY_RANK;
    CHECK(ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config));
    CHECK(ceclCommUserRank(comm, &rank));
    CHECK(ceclCommCount(comm, &nranks));
    CHECK(nranks <= 64 ? ceclSuccess : ceclInvalidUsage);
    CHECK(ceclStreamCreate(comm, &stream));
    CHECK(ceclMemAlloc(comm, (void **)&recv,
                       (size_t)nranks * sizeof(mine))); /* symmetric, because peers write to it */

    for (int i = 0; i < COUNT; i++)
        mine[i] = 100 * rank + i;
    CHECK(ceclMemcpyAsync(comm, recv + rank * COUNT, mine, sizeof(mine), stream));
    CHECK(ceclAllGather(recv + rank * COUNT, recv, COUNT, ceclInt, comm,
                        stream)); /* in place, so no SM is needed */
    CHECK(ceclMemcpyAsync(comm, all, recv, (size_t)nranks * sizeof(mine), stream));
    CHECK(ceclStreamSynchronize(comm, stream));

    for (int i = 0; i < nranks * COUNT; i++)
        wrong += all[i] != 100 * (i / COUNT) + i % COUNT;
    printf("rank %d of %d: %d numbers gathered, %d wrong\n", rank, nranks, nranks * COUNT, wrong);
    CHECK(ceclStreamDestroy(comm, stream));
    CHECK(ceclCommDestroy(comm));
    MPI_Finalize();
    return wrong != 0;
}
