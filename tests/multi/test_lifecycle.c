/* Creation and destruction of communicators: no leak over many cycles, ways to join, and the order in which ranks end.
 * test_mixed.c has several communicators at once, also joined by id. */
#include "../threads_alive.h"
#include "multi.h"

#include <pthread.h>
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

TEST(a_finalized_communicator_takes_no_more_calls)
{
    ceclComm_t comm = multi_comm(NULL);
    int *buffer = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&buffer, (size_t)multi_nranks * 4000));
    multi_ok(comm, ceclAllGather(buffer + multi_rank * 1000, buffer, 1000, ceclInt, comm, 0));
    multi_ok(comm, ceclCommFinalize(comm));
    multi_refused(comm, ceclAllGather(buffer + multi_rank * 1000, buffer, 1000, ceclInt, comm, 0),
                  ceclInvalidUsage, "finalized");
    multi_refused(comm, ceclCommFinalize(comm), ceclInvalidUsage, "finalized");
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* ---- ranks as threads, in rank 0's process only */

struct member {
    pthread_t thread;
    ceclComm_t comm;
    ceclResult_t result;
    int wrong;
};

static void *work(void *argument)
{
    enum { COUNT = 3000 };
    struct member *me = argument;
    int rank = 0, n = 0, *buffer = NULL, *host;
    me->result = ceclCommUserRank(me->comm, &rank);
    me->result = me->result ? me->result : ceclCommCount(me->comm, &n);
    me->result = me->result
                     ? me->result
                     : ceclMemAlloc(me->comm, (void **)&buffer, (size_t)n * COUNT * sizeof(int));
    host = malloc((size_t)n * COUNT * sizeof(int));
    for (int round = 0; round < 50 && !me->result; round++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = round * 100000 + rank * 10000 + i;
        me->result = ceclMemcpyAsync(me->comm, buffer + rank * COUNT, host, COUNT * sizeof(int), 0);
        me->result = me->result ? me->result : ceclStreamSynchronize(me->comm, 0);
        me->result =
            me->result ? me->result
                       : ceclAllGather(buffer + rank * COUNT, buffer, COUNT, ceclInt, me->comm, 0);
        me->result = me->result ? me->result
                                : ceclMemcpyAsync(me->comm, host, buffer,
                                                  (size_t)n * COUNT * sizeof(int), 0);
        me->result = me->result ? me->result : ceclStreamSynchronize(me->comm, 0);
        for (int r = 0; r < n; r++)
            for (int i = 0; i < COUNT; i++)
                me->wrong += host[r * COUNT + i] != round * 100000 + r * 10000 + i;
    }
    free(host);
    return NULL;
}

TEST(ranks_may_be_threads_of_one_process)
{
    struct member members[8] = {{0}};
    ceclComm_t comms[8];
    const int n = multi_nranks < 8 ? multi_nranks : 8;
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == 0) {
        multi_ok(NULL, ceclCommInitAll(comms, n, NULL));
        for (int r = 0; r < n; r++) {
            members[r].comm = comms[r];
            assert_int_equal(pthread_create(&members[r].thread, NULL, work, &members[r]), 0);
        }
        for (int r = 0; r < n; r++)
            pthread_join(members[r].thread, NULL);
        for (int r = 0; r < n; r++) {
            assert_int_equal(members[r].result, ceclSuccess);
            assert_int_equal(members[r].wrong, 0);
            multi_ok(NULL,
                     ceclCommDestroy(comms[r])); /* one thread may end them one after the other */
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}
