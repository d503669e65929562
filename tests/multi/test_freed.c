/* The program frees memory while calls are pending, for which CUDA waits. It also frees memory
 * that peers have opened for more than one communicator. */
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
    unsigned char *buffer;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&buffer, (size_t)multi_nranks * 64));
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

/* ---- memory that several communicators use */

static void gather(ceclComm_t comm, const struct memory *memory, uint64_t seed)
{
    const size_t block = 1000;
    unsigned char *all = malloc((size_t)multi_nranks * block), mine[1000];
    multi_fill(mine, seed, multi_rank, block);
    multi_put(comm, memory->at + (size_t)multi_rank * block, mine, block);
    multi_ok(comm, ceclAllGather(memory->at + (size_t)multi_rank * block, memory->at, block,
                                 ceclUint8, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_get(comm, all, memory->at, (size_t)multi_nranks * block);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < block; i++)
            assert_int_equal(all[(size_t)r * block + i], multi_byte(seed, r, i));
    free(all);
}

/* Each communicator has opened the old memory when one of them first uses the new memory. */
TEST(memory_that_is_replaced_serves_all_communicators)
{
    enum { COMMS = 3, ROUNDS = 12 };
    ceclComm_t comms[COMMS];
    for (int c = 0; c < COMMS; c++)
        comms[c] = multi_comm(NULL);
    struct memory memory = memory_new(comms[0], MEMORY_SHARED, BYTES);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t c = 0; c < COMMS; c++)
            if (round % 4 == 0 || c == round % COMMS)
                gather(comms[c], &memory, 1 + round * COMMS + c);
        memory_renew(comms[0], &memory, MEMORY_SHARED);
    }
    memory_free(comms[0], &memory);
    for (int c = 0; c < COMMS; c++)
        multi_ok(NULL, ceclCommDestroy(comms[c]));
}

/* Small allocations share a block, which the driver may free and reuse. */
TEST(small_allocations_that_come_and_go_serve_all_communicators)
{
    enum { COMMS = 2, COUNT = 6, ROUNDS = 40 };
    ceclComm_t comms[COMMS] = {multi_comm(NULL), multi_comm(NULL)};
    struct memory memory[COUNT] = {{0}};
    uint64_t x = 12345; /* equal on all ranks */
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        struct memory *m = &memory[(x >> 33) % COUNT];
        const size_t bytes = (size_t)multi_nranks * 1000 + (x >> 40) % 300000;
        memory_free(comms[0], m);
        *m = memory_new(comms[0], MEMORY_SHARED, bytes);
        gather(comms[round % COMMS], m, round);
        if ((x >> 50) % 4 == 0)
            gather(comms[(round + 1) % COMMS], m, round + 1000);
        if ((x >> 52) % 8 == 0)
            for (int i = 0; i < COUNT; i++)
                memory_free(comms[0], &memory[i]);
    }
    for (int i = 0; i < COUNT; i++)
        memory_free(comms[0], &memory[i]);
    for (int c = 0; c < COMMS; c++)
        multi_ok(NULL, ceclCommDestroy(comms[c]));
}
