/* Memory that is replaced at the same address while plans are kept, or freed while calls are pending (CUDA's free waits
 * for these calls). test_mixed.c has random calls on memory of all kinds. */
#include <pthread.h>

#include "held.h"
#include "random_call.h"

/* Repeats calls with the same pointers, so plans are kept. Rank after rank replaces its memory at these addresses. */
TEST_WITH_COMM(memory_allocated_anew_at_the_same_address_is_used)
{
    enum { CALLS = 4, SLACK = 10, SPREAD = 5000 };
    static const enum kind kinds[CALLS] = {ALL_GATHER, ALL_TO_ALL, ALL_REDUCE, BROADCAST};
    static struct random_slot slots[CALLS];
    struct memory send[CALLS], recv[CALLS];
    unsigned char *host = malloc(random_room());
    const int rounds = multi_share(300);
    uint64_t x = 7;
    struct held held = {0};
    assert_non_null(host);
    for (int round = 0; round < rounds; round++) {
        const int i = round % CALLS;
        struct random_call *c = &slots[i].call;
        if (round < CALLS) {
            *c = (struct random_call){.rank = multi_rank, .nranks = multi_nranks};
            assert_non_null(slots[i].want = malloc(random_room()));
            send[i] = memory_new(comm, MEMORY_SHARED, random_room() + SPREAD);
            recv[i] = memory_new(comm, MEMORY_SHARED, random_room() + SPREAD);
            do
                random_draw_of(c, kinds[i], &x);
            while (random_received(c) == 0 || c->in_place);
        } else if (round / CALLS % multi_nranks == multi_rank) {
            memory_renew(comm, &send[i], round % 3 == 0 ? MEMORY_PRIVATE : MEMORY_SHARED);
            memory_renew(comm, &recv[i], MEMORY_SHARED);
        }
        multi_options(comm, CECL_SM_ALLOW,
                      round / CALLS % 2 ? CECL_DIRECTION_PULL : CECL_DIRECTION_PUSH, CECL_UNDEF);
        c->seed = random_next(&x);
        c->send = send[i].at + 256;
        c->recv = recv[i].at + 512 + 256 * multi_rank;
        slots[i].bytes = random_bytes_received(c);
        random_set_places(c, RANDOM_GUARD);
        random_put(comm, &slots[i], host);
        multi_ok(comm, random_make(comm, c, false));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        random_compare(comm, &slots[i], host);
        if (round == rounds / 5) /* one-time setup is complete */
            held = held_now();
    }
    held.descriptors += SLACK; /* at the first count some had private memory, which takes none */
    held_no_more(&held);
    for (int i = 0; i < CALLS; i++) {
        free(slots[i].want);
        memory_free(comm, &send[i]);
        memory_free(comm, &recv[i]);
    }
    free(host);
}

#define BYTES ((size_t)4 << 20)

/* ---- A thread frees memory, and waits in the driver for all work. Copies of other threads wait for that thread. */

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

/* Returns a communicator on which only rank 0 has made a call. A thread of rank 0 then begins to free memory. */
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
