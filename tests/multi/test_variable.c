/* Variable all-gather and broadcast: counts, offsets, roots, in place and out of place. Also: what these calls refuse.
 * test_random.c has them in groups. */
#include "buffers.h"
#include "random_call.h"

#include <stdio.h>

#define MOST 3000

static int set_up(void **state)
{
    buffers_open((size_t)multi_nranks * (MOST + 100) * 4, NULL, NULL);
    return 0;
}

TEST_BETWEEN(blocks_that_differ_are_right, set_up, tear_down)
{
    random_rounds(comm, ALL_GATHERV, 60, 4711);
}

TEST_BETWEEN(broadcasts_from_every_root_are_right, set_up, tear_down)
{
    random_rounds(comm, BROADCAST, 10 * multi_nranks, 31);
}

/* Large enough to go in pieces that peers pass on. */
TEST_BETWEEN(large_broadcasts_are_right, set_up, tear_down)
{
    const size_t bytes = (1 << 20) + 777;
    unsigned char *all = malloc(bytes + 64), *from = NULL, *to = NULL;
    assert_non_null(all);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&from, bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&to, bytes + 64));
    for (int times = 0; times < 4; times++) {
        const int root = times % multi_nranks;
        memset(all, 0x5A, bytes + 64);
        multi_put(comm, to, all, bytes + 64);
        multi_fill(all, (uint64_t)times, root, bytes);
        if (multi_rank == root)
            multi_put(comm, times < 2 ? from : to, all, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm,
                 ceclBroadcast(times < 2 ? from : to, to, bytes, ceclUint8, root, comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        multi_get(comm, all, to, bytes + 64);
        for (size_t i = 0; i < bytes + 64; i++)
            if (all[i] != (i < bytes ? multi_byte((uint64_t)times, root, i) : 0x5A))
                fail_msg("rank %d: byte %zu of broadcast %d is wrong", multi_rank, i, times);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclMemFree(comm, from));
    multi_ok(comm, ceclMemFree(comm, to));
    free(all);
}

TEST_BETWEEN(bad_arguments_are_named, set_up, tear_down)
{
    size_t counts[64], displs[64];
    for (int r = 0; r < multi_nranks; r++) {
        counts[r] = 10;
        displs[r] = (size_t)r * 9;
    }
    multi_refused(comm, ceclAllGatherv(send_buffer, 10, recv_buffer, NULL, NULL, 0, comm, NULL),
                  ceclInvalidArgument, "recvcounts: NULL");
    multi_refused(comm, ceclAllGatherv(send_buffer, 9, recv_buffer, counts, NULL, 0, comm, NULL),
                  ceclInvalidArgument, "sendcount 9");
    multi_refused(comm, ceclAllGatherv(send_buffer, 10, recv_buffer, counts, displs, 0, comm, NULL),
                  ceclInvalidArgument, "the blocks of ranks 0 and 1 overlap at byte 9");
    multi_refused(comm, ceclAllGatherv(NULL, 10, recv_buffer, counts, NULL, 0, comm, NULL),
                  ceclInvalidArgument, "sendbuff: NULL");
    multi_refused(
        comm,
        ceclAllGatherv(send_buffer, 10, recv_buffer, counts, NULL, (ceclDataType_t)-1, comm, NULL),
        ceclInvalidArgument, "datatype -1");
    displs[multi_nranks - 1] = SIZE_MAX / 2;
    multi_refused(
        comm, ceclAllGatherv(send_buffer, 10, recv_buffer, counts, displs, ceclInt64, comm, NULL),
        ceclInvalidArgument, "address space");
    counts[0] = room + 256;
    displs[multi_nranks - 1] = 0;
    multi_refused(
        comm,
        ceclAllGatherv(send_buffer, counts[multi_rank], recv_buffer, counts, NULL, 0, comm, NULL),
        ceclInvalidUsage, "left in its allocation");
    multi_refused(comm, ceclBroadcast(send_buffer, recv_buffer, 4, 0, multi_nranks, comm, NULL),
                  ceclInvalidArgument, "root");
    multi_refused(comm, ceclBroadcast(send_buffer, recv_buffer, 4, 0, -1, comm, NULL),
                  ceclInvalidArgument, "root -1");
    multi_refused(comm, ceclBroadcast(send_buffer, recv_buffer, SIZE_MAX, ceclInt64, 0, comm, NULL),
                  ceclInvalidArgument, "address space");
}

TEST_BETWEEN(ranks_that_differ_are_told_where_calls_are_compared, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    size_t counts[64];
    multi_setenv("CECL_CHECK", "1");
    ceclComm_t checked = multi_comm(NULL);
    multi_setenv("CECL_CHECK", NULL);
    char *recv = NULL, *send = NULL;
    multi_ok(checked, ceclMemAlloc(checked, (void **)&recv, (size_t)multi_nranks * 64));
    multi_ok(checked, ceclMemAlloc(checked, (void **)&send, 64));
    for (int r = 0; r < multi_nranks; r++)
        counts[r] = r == 0 && odd ? 7 : 8;
    multi_refused(checked,
                  ceclAllGatherv(send, counts[multi_rank], recv, counts, NULL, 0, checked, NULL),
                  ceclInvalidUsage, "ranks differ in recvcounts, displs or rows");
    multi_refused(checked, ceclBroadcast(recv, recv, 8, 0, odd ? 1 : 0, checked, NULL),
                  ceclInvalidUsage, "root: 0 on rank 0, 1 on rank");
    multi_check(checked, &(struct multi_case){.op = ceclOpAllGather, .count = 9, .type = 0}, 3);
    multi_ok(NULL, ceclCommDestroy(checked));
}
