/* Ways to join a communicator, and their failures: callbacks of the caller that fail at any call, and ids that are used
 * wrongly. No failure leaks a descriptor or a thread. (tests/unit/test_boot_tcp.c and tests/fault test ranks that never
 * come, or that join in another way than others.) */
#include <malloc.h>

#include "held.h"
#include "multi.h"

#define NEVER 1000

/* The caller's exchange over MPI. Call number `fails_at` and all later calls fail: if takes_part, after the exchange. */
struct exchange {
    int calls, fails_at;
    bool takes_part;
};

static int all_gather(void *context, const void *send, void *recv, size_t bytes)
{
    struct exchange *x = context;
    const int call = x->calls++;
    if (call > x->fails_at || (call == x->fails_at && !x->takes_part))
        return 1;
    MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    return call == x->fails_at;
}

static ceclResult_t join(struct exchange *x, ceclComm_t *comm)
{
    const ceclConfig_t config = multi_config();
    const ceclOob_t oob = {x, all_gather, NULL};
    return ceclCommInitOob(comm, multi_nranks, multi_rank, &oob, &config);
}

static int calls_of_a_join(void)
{
    struct exchange x = {.fails_at = NEVER};
    ceclComm_t comm = NULL;
    multi_ok(NULL, join(&x, &comm));
    multi_works(comm, NULL, multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
    return x.calls;
}

TEST(cycles_leak_no_descriptor_thread_or_mapping)
{
    const char *given = getenv("CECL_TEST_CYCLES");
    ceclComm_t comm = multi_comm(NULL);
    const bool gpus = multi_on_gpus(comm);
    multi_ok(NULL, ceclCommDestroy(comm));
    /* A leak in each cycle shows after a few cycles. To find rare leaks two ranks make more cycles. */
    const int cycles = multi_share(given ? atoi(given) : gpus ? 20 : multi_nranks > 2 ? 200 : 1000);
    struct held warm = {0};
    mallopt(M_ARENA_MAX, 2); /* more arenas of malloc (mappings) would come and go with threads */
    for (int i = 0; i < cycles; i++) {
        multi_cycle(NULL);
        if (i == cycles / 10) /* one-time setup is complete */
            warm = held_now();
    }
    held_no_more(&warm);
}

TEST_BETWEEN(callbacks_are_used_until_init_returns_and_never_after, held_before, held_after)
{
    struct exchange x = {.fails_at = NEVER};
    ceclComm_t comm = NULL;
    multi_ok(NULL, join(&x, &comm));
    const int calls = x.calls;
    assert_true(calls > 0);
    multi_works(comm, NULL, multi_nranks);
    multi_alloc(comm, (size_t)64 << 20); /* the pool grows */
    multi_ok(NULL, ceclCommDestroy(comm));
    assert_int_equal(x.calls, calls);
}

TEST_BETWEEN(callbacks_that_fail_at_any_call_fail_the_join, held_before, held_after)
{
    const int calls = calls_of_a_join();
    for (int n = 0; n < calls; n++) {
        struct exchange x = {.fails_at = n};
        ceclComm_t comm = NULL;
        multi_refused(NULL, join(&x, &comm), ceclSystemError, "allGather");
        assert_null(comm);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* The exchange fails on one rank only. The others notice it in their next callback, or, if there is none, when the mesh
 * connects: the failing rank sends nothing, and no longer listens. */
static void a_callback_that_fails_on(int failing)
{
    const int calls = calls_of_a_join();
    char who[24];
    snprintf(who, sizeof(who), "rank %d ", failing);
    multi_setenv("CECL_INIT_TIMEOUT_MS", "60000");
    for (int n = 0; n < calls; n++) {
        const bool mine = multi_rank == failing;
        struct exchange x = {.fails_at = mine ? n : n + 1, .takes_part = mine};
        ceclComm_t comm = NULL;
        const double start = multi_seconds();
        const ceclResult_t result = join(&x, &comm);
        const double waited = multi_seconds() - start;
        MPI_Barrier(MPI_COMM_WORLD);
        if (mine || n + 1 < calls)
            multi_refused(NULL, result, ceclSystemError, "allGather");
        else
            multi_refused(NULL, result, ceclRemoteError, who);
        assert_null(comm);
        assert_true(waited < PROMPT);
    }
    multi_setenv("CECL_INIT_TIMEOUT_MS", NULL);
}

TEST_BETWEEN(a_callback_that_fails_on_the_first_or_last_rank_keeps_nobody, held_before, held_after)
{
    a_callback_that_fails_on(0);
    a_callback_that_fails_on(multi_nranks - 1);
}

TEST_BETWEEN(a_missing_communicator_of_mpi_is_named, held_before, held_after)
{
    ceclComm_t comm = NULL;
    multi_refused(NULL, ceclCommInitMpi(&comm, MPI_COMM_NULL, NULL), ceclInvalidArgument,
                  "mpiComm");
    assert_null(comm);
}

TEST(a_rank_taken_twice_through_callbacks_is_refused_at_once)
{
    const ceclConfig_t config = multi_config();
    struct exchange x = {.fails_at = NEVER};
    const ceclOob_t oob = {&x, all_gather, NULL};
    ceclComm_t comm = NULL;
    const double start = multi_seconds();
    multi_refused(
        NULL, ceclCommInitOob(&comm, multi_nranks, multi_rank == 1 ? 0 : multi_rank, &oob, &config),
        ceclInvalidArgument, "rank 0: taken twice");
    assert_null(comm);
    assert_true(multi_seconds() - start < PROMPT);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The last rank still takes part in the exchange, because the others wait for it. */
TEST_BETWEEN(a_null_handle_on_one_rank_is_told_to_all, held_before, held_after)
{
    const ceclConfig_t config = multi_config();
    const bool last = multi_rank == multi_nranks - 1;
    ceclComm_t comm = NULL;
    multi_refused(NULL, ceclCommInitMpi(last ? NULL : &comm, MPI_COMM_WORLD, &config),
                  ceclInvalidArgument, "comm: NULL");
    assert_null(comm);
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

static ceclResult_t join_by(ceclUniqueId id, ceclComm_t *comm, int nranks, int rank)
{
    const ceclConfig_t config = multi_config();
    return ceclCommInitRankConfig(comm, nranks, id, rank, &config);
}

TEST(a_rank_alone_may_correct_any_argument)
{
    ceclUniqueId id;
    ceclComm_t comm = NULL;
    multi_ok(NULL, ceclGetUniqueId(&id));
    multi_refused(NULL, join_by(id, NULL, 1, 0), ceclInvalidArgument, "comm: NULL");
    multi_refused(NULL, join_by(id, &comm, 1, 1), ceclInvalidArgument, "rank 1: 0 to 0 expected");
    assert_null(comm);
    multi_ok(NULL, join_by(id, &comm, 1, 0));
    multi_ok(NULL, ceclCommDestroy(comm));
    MPI_Barrier(MPI_COMM_WORLD);
}

TEST(a_refusal_that_peers_heard_of_says_that_the_id_is_used_up)
{
    const bool last = multi_rank == multi_nranks - 1;
    ceclComm_t comm = NULL;
    multi_refused(NULL, join_by(multi_one_id(), &comm, multi_nranks, multi_rank + (last ? 7 : 0)),
                  ceclInvalidArgument,
                  "; this unique id is used up: make a new one with ceclGetUniqueId");
    multi_refused(NULL, join_by(multi_one_id(), last ? NULL : &comm, multi_nranks, multi_rank),
                  ceclInvalidArgument,
                  "comm: NULL; this unique id is used up: make a new one with ceclGetUniqueId");
    assert_null(comm);
    MPI_Barrier(MPI_COMM_WORLD);
}
