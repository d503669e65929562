/* Ranks that are late or stay away, and communicators that have failed: what is refused or reported, and what still
 * works. Afterwards everything can be destroyed, nothing leaks, and the processes make a new communicator. tests/fault
 * tests a rank's faults in each call. */
#include "held.h"
#include "multi.h"

#define COUNT 1000
/* Time limit of calls that must time out. Ranks must be able to allocate memory within it. */
#define LIMIT_MS 2000

/* The barrier lets every rank allocate its buffer before one rank fails the communicator. */
static int *buffer_of(ceclComm_t comm)
{
    int *buffer = multi_alloc(comm, (size_t)multi_nranks * COUNT * 4);
    MPI_Barrier(MPI_COMM_WORLD);
    return buffer;
}

/* Makes a gather and waits for it. The failure may be known before the call is enqueued. */
static ceclResult_t gather_and_wait(ceclComm_t comm, int *buffer)
{
    const ceclResult_t result =
        ceclAllGather(buffer + multi_rank * COUNT, buffer, COUNT, ceclInt32, comm, 0);
    return result != ceclSuccess ? result : ceclStreamSynchronize(comm, 0);
}

/* The barrier lets every rank join before one rank fails the communicator: else the others' init could fail. */
static ceclComm_t joined(const ceclConfig_t *config)
{
    ceclComm_t comm = multi_comm(config);
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

static void fail_all(ceclComm_t comm)
{
    multi_ok(NULL, ceclCommRevoke(comm));
    multi_ok(NULL, ceclCommAbort(comm));
}

TEST_BETWEEN(a_failed_communicator_refuses_every_call_with_the_cause, held_before, held_after)
{
    ceclComm_t comm = joined(NULL);
    int *buffer = buffer_of(comm);
    void *ptr = NULL;
    ceclStream_t stream = NULL;
    ceclPoolStats_t stats;
    ceclExplanation_t explanation;
    if (multi_rank == 0) {
        fail_all(comm);
    } else {
        assert_int_equal(multi_async_within(comm, PROMPT), ceclRemoteError);
#define GIVEN_UP(expr) multi_refused(comm, (expr), ceclRemoteError, "gave up")
        GIVEN_UP(ceclAllGather(buffer, buffer, 0, ceclInt8, comm, 0));
        GIVEN_UP(ceclAlltoAll(buffer, buffer, 1, ceclInt8, comm, 0));
        GIVEN_UP(ceclExplain(ceclOpAllGather, buffer, buffer, 1, ceclInt8, comm, &explanation));
        GIVEN_UP(ceclMemAlloc(comm, &ptr, 64));
        GIVEN_UP(ceclMemFree(comm, buffer));
        GIVEN_UP(ceclGetPeerPointer(comm, buffer, 0, &ptr));
        GIVEN_UP(ceclPoolStats(comm, &stats));
        GIVEN_UP(ceclStreamCreate(comm, &stream));
        GIVEN_UP(ceclStreamSynchronize(comm, 0));
        GIVEN_UP(ceclMemcpyAsync(comm, buffer, buffer + 1, 4, 0));
        GIVEN_UP(ceclCommFinalize(comm));
        assert_null(ptr);
        multi_ok(NULL, ceclCommAbort(comm));
    }
}

/* Rank 0 waits for all others. Rank 1 gives up after rank 0's time limit, but while rank 0 still accepts news of its
 * peers. Returns whether rank 1 was in time for that. */
static bool try_to_be_heard(void)
{
    enum { GIVES_UP_MS = LIMIT_MS + 600 };
    ceclComm_t comm = joined(NULL);
    int *buffer = buffer_of(comm);
    multi_limit(comm, LIMIT_MS);
    ceclResult_t result = ceclSuccess;
    bool in_time = true;
    const double start = multi_seconds();
    if (multi_rank == 0) {
        result = gather_and_wait(comm, buffer);
    } else if (multi_rank == 1) {
        multi_pause_ms(GIVES_UP_MS);
        multi_ok(NULL, ceclCommRevoke(comm));
        in_time = multi_seconds() - start < (GIVES_UP_MS + 500) * 1e-3;
    }
    in_time = multi_how_many(in_time) == multi_nranks;
    if (in_time && multi_rank == 0)
        multi_refused(comm, result, ceclRemoteError, "rank 1 gave up: ceclCommRevoke was called");
    multi_ok(NULL, ceclCommAbort(comm));
    return in_time;
}

TEST_BETWEEN(of_several_late_ranks_one_that_gives_up_is_heard, held_before, held_after)
{
    bool heard = false;
    if (multi_nranks < 3)
        skip_because("it needs 3 ranks");
    for (int try = 0; try < 10 && !heard; try++) /* rank 1 may be late on a busy machine */
        heard = try_to_be_heard();
    assert_true(heard);
}

int main(int argc, char **argv)
{
    multi_setenv("CECL_DEBUG", "none"); /* failures are intended */
    return multi_main(argc, argv);
}
