/* Creation and destruction of communicators: no leak over many cycles, and a communicator of some ranks of MPI.
 * test_mixed.c has several communicators at once, also joined by id. */
#include <malloc.h>

#include "held.h"
#include "multi.h"

TEST(cycles_leak_no_descriptor_thread_or_mapping)
{
    const char *given = getenv("CECL_TEST_CYCLES");
    ceclComm_t comm = multi_comm(NULL);
    const bool gpus = multi_on_gpus(comm);
    multi_ok(NULL, ceclCommDestroy(comm));
    /* A leak in each cycle shows after a few cycles. A leak in one of hundreds of cycles need not
     * show at every number of ranks. */
    const int cycles = multi_share(given ? atoi(given) : gpus ? 20 : multi_nranks > 2 ? 200 : 1000);
    struct held warm = {0};
    mallopt(M_ARENA_MAX, 2); /* otherwise arenas come and go with threads, and are mappings */
    for (int i = 0; i < cycles; i++) {
        comm = multi_comm(NULL);
        multi_works(comm, NULL, multi_nranks);
        multi_ok(NULL, ceclCommDestroy(comm));
        if (i == cycles / 10) /* one-time setup is complete now */
            warm = held_now();
    }
    held_no_more(&warm);
}

TEST(the_half_of_an_mpi_communicator_joins)
{
    MPI_Comm half;
    ceclComm_t comm;
    int nranks = 0, count = 0, rank = 0;
    const ceclConfig_t config = multi_config();
    MPI_Comm_split(MPI_COMM_WORLD, multi_rank % 2, multi_rank, &half);
    MPI_Comm_size(half, &nranks);
    multi_ok(NULL, ceclCommInitMpi(&comm, half, &config));
    multi_ok(comm, ceclCommCount(comm, &count));
    multi_ok(comm, ceclCommUserRank(comm, &rank));
    assert_int_equal(count, nranks);
    assert_int_equal(rank, multi_rank / 2);
    multi_ok(NULL, ceclCommDestroy(comm));
    MPI_Comm_free(&half);
}
