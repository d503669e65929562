/* One-sided calls between processes. test_mixed.c has random ones, on memory of every kind, beside other calls. */
#include "memory.h"

#define BYTES 70001

TEST_WITH_COMM(pointers_reach_the_memory_of_every_peer)
{
    for (int kind = 0; kind < MEMORY_PRIVATE; kind++) {
        struct memory shared = memory_new(comm, (enum memory_kind)kind, BYTES);
        ceclWindow_t window;
        void *at;
        multi_fill_device(comm, shared.at, 7, multi_rank, BYTES);
        multi_ok(comm, ceclWindowShare(comm, shared.at, BYTES, &window));
        for (int r = 0; r < multi_nranks; r++) {
            multi_ok(comm, ceclWindowPointer(comm, window, r, &at));
            assert_true(r != multi_rank || at == shared.at);
            multi_check_device(comm, at, 7, r, BYTES, BYTES);
        }
        multi_ok(comm, ceclBarrier(comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        multi_ok(comm, ceclWindowFree(comm, window));
        memory_free(comm, &shared);
    }
}

TEST_WITH_COMM(private_memory_cannot_be_shared)
{
    ceclWindow_t window;
    struct memory shared = memory_new(comm, MEMORY_SHARED, BYTES),
                  hidden = memory_new(comm, MEMORY_PRIVATE, BYTES);
    const bool is_bad = multi_rank == multi_nranks - 1;
    multi_refused(comm, ceclWindowShare(comm, is_bad ? hidden.at : shared.at, BYTES, &window),
                  ceclInvalidUsage, "cannot open");
    multi_ok(comm, ceclWindowShare(comm, shared.at, is_bad ? 0 : BYTES, &window));
    void *at;
    multi_refused(comm, ceclWindowPointer(comm, window, multi_nranks - 1, &at), ceclInvalidArgument,
                  "shares no memory in it");
    multi_refused(comm, ceclPut(shared.at, 1, ceclUint8, multi_nranks - 1, window, 0, comm, 0),
                  ceclInvalidArgument, "end outside the 0 bytes");
    multi_ok(comm, ceclWindowFree(comm, window));
    memory_free(comm, &shared);
    memory_free(comm, &hidden);
}

/* A rank owns a window, and makes no call while the others use it. */
TEST_WITH_COMM(a_rank_that_is_not_called_upon_does_nothing)
{
    struct memory shared = memory_new(comm, MEMORY_SHARED, BYTES),
                  local = memory_new(comm, MEMORY_SHARED, BYTES);
    ceclWindow_t window;
    multi_guard(comm, shared.at, BYTES);
    multi_ok(comm, ceclWindowShare(comm, shared.at, BYTES, &window));
    if (multi_rank == 1) {
        multi_fill_device(comm, local.at, 3, 1, 1000);
        for (int i = 0; i < 50; i++) {
            multi_ok(comm, ceclPut(local.at, 1000, ceclUint8, 0, window, 77, comm, 0));
            multi_ok(comm, ceclGet(local.at + 2000, 1000, ceclUint8, 0, window, 77, comm, 0));
        }
        multi_ok(comm, ceclStreamSynchronize(comm, 0));
        multi_check_device(comm, local.at + 2000, 3, 1, 1000, 1000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank == 0)
        multi_check_device(comm, shared.at + 77, 3, 1, 1000, BYTES - 77);
    multi_ok(comm, ceclWindowFree(comm, window));
    memory_free(comm, &shared);
    memory_free(comm, &local);
}
