/* The program frees memory while calls are pending, for which CUDA waits. */
#include <pthread.h>

#include "memory.h"

#define BYTES ((size_t)4 << 20)

/* ---- A thread frees memory, and waits in the driver for all pending work. Copies of other
 * threads wait for that thread. */

struct freeing {
    ceclComm_t comm;
    struct memory memory;
    pthread_t thread;
};

static void *free_it(void *argument)
{
    struct freeing *freeing = argument;
    memory_free(freeing->comm, &freeing->memory);
    return NULL;
}

/* A communicator on which rank 0 has made a call that the others have not made. Rank 0 then frees
 * memory. */
static ceclComm_t comm_with_a_call(struct freeing *freeing, int timeout_ms, ceclComm_t other)
{
    ceclComm_t comm = multi_comm(NULL);
    unsigned char *buffer = multi_alloc(comm, (size_t)multi_nranks * 64);
    multi_limit(comm, timeout_ms);
    if (multi_rank == 0 && multi_nranks > 1) {
        *freeing =
            (struct freeing){.comm = other, .memory = memory_new(other, MEMORY_SHARED, BYTES)};
        multi_ok(comm, ceclAllGather(buffer, buffer, 64, ceclUint8, comm, 0));
        assert_int_equal(pthread_create(&freeing->thread, NULL, free_it, freeing), 0);
        multi_pause_ms(300);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return comm;
}

/* Rank 0's call ends with `result`, and the thread that frees memory returns. */
static void expect_end(ceclComm_t comm, struct freeing *freeing, ceclResult_t result,
                       const char *words)
{
    const double start = multi_seconds();
    multi_refused(comm, ceclStreamSynchronize(comm, 0), result, words);
    assert_true(multi_seconds() - start < PROMPT);
    pthread_join(freeing->thread, NULL);
}

TEST(a_failure_is_heard_while_memory_is_freed)
{
    struct freeing freeing;
    ceclComm_t other = multi_comm(NULL), comm = comm_with_a_call(&freeing, 0, other);
    const bool culprit = multi_rank == multi_nranks - 1;
    if (multi_rank == 0 && !culprit)
        expect_end(comm, &freeing, ceclRemoteError, "gave up");
    else if (!culprit)
        assert_int_equal(multi_async_within(comm, PROMPT), ceclRemoteError);
    if (culprit)
        multi_ok(NULL, ceclCommRevoke(comm));
    multi_ok(NULL, ceclCommAbort(comm));
    multi_ok(NULL, ceclCommDestroy(other));
}

TEST(a_time_limit_is_kept_while_memory_is_freed)
{
    struct freeing freeing;
    ceclComm_t other = multi_comm(NULL), comm = comm_with_a_call(&freeing, 1000, other);
    if (multi_rank == 0 && multi_nranks > 1)
        expect_end(comm, &freeing, ceclTimeout, "CECL_TIMEOUT_MS");
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(NULL, ceclCommAbort(comm));
    multi_ok(NULL, ceclCommDestroy(other));
}
