/* Variable all-gather and broadcast: counts, offsets, roots, in place and out of place, alone and
 * in groups. Also: what these calls refuse. */
#include "buffers.h"

#include <stdio.h>

#define MOST 3000

static int set_up(void **state)
{
    buffers_open((size_t)multi_nranks * (MOST + 100) * 4, NULL, NULL);
    return 0;
}

struct variable {
    size_t counts[64], displs[64];
    bool in_place, dense;
};

/* Draws blocks in any order with gaps, or one after the other; all ranks draw the same. */
static void draw(uint64_t *x, struct variable *v)
{
    const int first = (int)(multi_draw(x) % (uint64_t)multi_nranks);
    size_t at = 0;
    v->in_place = multi_draw(x) % 2;
    v->dense = multi_draw(x) % 3 == 0;
    for (int i = 0; i < multi_nranks; i++) {
        const int r = v->dense ? i : (first + i) % multi_nranks;
        v->counts[r] = multi_draw(x) % 4 == 0 ? 0 : multi_draw(x) % MOST;
        at += v->dense ? 0 : multi_draw(x) % 50;
        v->displs[r] = at;
        at += v->counts[r];
    }
}

static unsigned char *place_of(const struct variable *v)
{
    return v->in_place ? recv_buffer + v->displs[multi_rank] * 2 : send_buffer;
}

static void fill(const struct variable *v, uint64_t seed)
{
    const size_t mine = v->counts[multi_rank] * 2;
    memset(host, 0x5A, room);
    multi_put(comm, recv_buffer, host, room);
    multi_fill(host, seed, multi_rank, mine);
    if (mine > 0)
        multi_put(comm, place_of(v), host, mine);
}

static ceclResult_t gather(const struct variable *v)
{
    return ceclAllGatherv(place_of(v), v->counts[multi_rank], recv_buffer, v->counts,
                          v->dense ? NULL : v->displs, ceclBfloat16, comm, NULL);
}

/* Checks every byte: blocks have the senders' bytes, bytes beside them are unchanged. */
static void check(const struct variable *v, uint64_t seed)
{
    multi_get(comm, host, recv_buffer, room);
    for (int r = 0; r < multi_nranks; r++)
        for (size_t i = 0; i < v->counts[r] * 2; i++) {
            unsigned char *byte = &host[v->displs[r] * 2 + i];
            if (*byte != multi_byte(seed, r, i))
                fail_msg("rank %d: byte %zu from rank %d is wrong", multi_rank, i, r);
            *byte = 0x5A;
        }
    for (size_t i = 0; i < room; i++)
        assert_int_equal(host[i], 0x5A);
}

TEST_BETWEEN(blocks_that_differ_are_right, set_up, tear_down)
{
    uint64_t x = 4711;
    for (uint64_t round = 0; round < 40; round++) {
        struct variable v;
        draw(&x, &v);
        fill(&v, round);
        for (int times = 0; times < 2; times++) /* the second call uses the kept plan */
            multi_ok(comm, gather(&v));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&v, round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST_BETWEEN(broadcasts_from_every_root_are_right, set_up, tear_down)
{
    for (int root = 0; root < multi_nranks; root++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const size_t bytes = 5000 + (size_t)root;
            unsigned char *from = in_place ? recv_buffer : send_buffer;
            memset(host, 0x5A, room);
            multi_put(comm, recv_buffer, host, room);
            multi_fill(host, 31, root, bytes);
            if (multi_rank == root)
                multi_put(comm, from, host, bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            multi_ok(comm, ceclBroadcast(from, recv_buffer, bytes, ceclUint8, root, comm, NULL));
            multi_ok(comm, ceclStreamSynchronize(comm, NULL));
            multi_get(comm, host, recv_buffer, room);
            for (size_t i = 0; i < room; i++)
                assert_int_equal(host[i], i < bytes ? multi_byte(31, root, i) : 0x5A);
            MPI_Barrier(MPI_COMM_WORLD);
        }
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

TEST_BETWEEN(they_may_be_grouped, set_up, tear_down)
{
    unsigned char *other = NULL;
    uint64_t x = 99;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&other, 4000));
    for (uint64_t round = 0; round < 10; round++) {
        struct variable v;
        draw(&x, &v);
        fill(&v, round);
        multi_fill(host, 8, 1, 4000);
        if (multi_rank == 1)
            multi_put(comm, other, host, 4000);
        MPI_Barrier(MPI_COMM_WORLD);
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, gather(&v));
        multi_ok(comm, ceclBroadcast(other, other, 4000, ceclUint8, 1, comm, NULL));
        multi_ok(comm, ceclGroupEnd());
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&v, round);
        multi_get(comm, host, other, 4000);
        for (size_t i = 0; i < 4000; i++)
            assert_int_equal(host[i], multi_byte(8, 1, i));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclMemFree(comm, other));
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
