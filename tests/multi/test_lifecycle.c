/* Creation and destruction of communicators: no leak over many cycles, and a communicator of some ranks of MPI.
 * test_mixed.c has several communicators at once, also joined by id. */
#include "../threads_alive.h"
#include "multi.h"

#include <stdio.h>

/* Counts mappings of this process. An address sanitizer maps and unmaps hundreds, so with it only
 * shared mappings count. */
#ifdef __SANITIZE_ADDRESS__
#define COUNTED "/memfd:cecl"
#else
#define COUNTED ""
#endif
static int count_mappings(void)
{
    char line[4096];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, COUNTED) != NULL;
    fclose(file);
    return count;
}

static void gather_once(ceclComm_t comm)
{
    multi_check(comm,
                &(struct multi_case){
                    .op = ceclOpAllGather, .count = 100, .type = ceclInt32, .in_place = true},
                7);
}

TEST(cycles_leak_no_descriptor_thread_or_mapping)
{
    const char *given = getenv("CECL_TEST_CYCLES");
    ceclComm_t comm = multi_comm(NULL);
    const bool gpus = multi_on_gpus(comm);
    multi_ok(NULL, ceclCommDestroy(comm));
    /* A leak in each cycle shows after a few cycles. A leak in one of hundreds of cycles need not
     * show at every number of ranks. */
    const int cycles = multi_share(given ? atoi(given) : gpus ? 20 : multi_nranks > 2 ? 200 : 1000);
    int fds = 0, threads = 0, maps = 0;
    for (int i = 0; i < cycles; i++) {
        comm = multi_comm(NULL);
        gather_once(comm);
        multi_ok(NULL, ceclCommDestroy(comm));
        if (i == cycles / 10) { /* one-time setup is complete now */
            fds = multi_descriptors();
            threads = threads_alive();
            maps = count_mappings();
        }
    }
    assert_int_equal(multi_descriptors(), fds);
    assert_int_equal(threads_alive(), threads);
    if (!gpus) /* the driver keeps some mappings; the C library's arenas may come and go */
        assert_in_range(count_mappings(), 0, (unsigned)maps + (*COUNTED ? 1 : 20));
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
