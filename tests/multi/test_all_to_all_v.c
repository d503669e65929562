/* Variable all-to-all (with exchanged places, and with given places), gather and scatter:
 * results, also in groups; refusals, which all ranks agree on and which leave the communicator
 * usable. */
#include "buffers.h"

#include <stdio.h>

#define MOST 2000
#define RANKS 64

static void open_with(const char *staging, const char *policy)
{
    /* size of each buffer: a multiple of 256 */
    buffers_open((size_t)multi_nranks * (MOST + 304) * 2, staging, policy);
}

static int set_up(void **state)
{
    open_with("4K", "never"); /* staging so small that own blocks take several rounds */
    return 0;
}

static int set_up_allowed(void **state)
{
    open_with("4K", "allow");
    return 0;
}

static int set_up_checked(void **state)
{
    multi_setenv("CECL_CHECK", "1");
    open_with("4K", "never");
    multi_setenv("CECL_CHECK", NULL);
    return 0;
}

/* Counts and places of all ranks; all ranks draw the same. [from][to] */
struct exchange {
    size_t counts[RANKS][RANKS], sent_at[RANKS][RANKS], wanted_at[RANKS][RANKS];
    bool dense;
};
/* The arguments of one rank. */
struct arguments {
    size_t sendcounts[RANKS], sdispls[RANKS], recvcounts[RANKS], rdispls[RANKS], peers[RANKS];
};

static void draw(uint64_t *x, struct exchange *e)
{
    const int n = multi_nranks, first = (int)(multi_draw(x) % (uint64_t)n);
    e->dense = multi_draw(x) % 3 == 0;
    for (int r = 0; r < n; r++)
        for (int p = 0; p < n; p++)
            e->counts[r][p] = multi_draw(x) % 3 == 0 ? 0 : multi_draw(x) % MOST;
    for (int r = 0; r < n; r++) {
        size_t sent = 0, wanted = 0;
        for (int i = 0; i < n; i++) {
            const int p = e->dense ? i : (first + i) % n;
            e->sent_at[r][p] = sent += e->dense ? 0 : multi_draw(x) % 40;
            e->wanted_at[p][r] = wanted += e->dense ? 0 : multi_draw(x) % 40;
            sent += e->counts[r][p];
            wanted += e->counts[p][r];
        }
    }
}

static struct arguments arguments_of(const struct exchange *e)
{
    struct arguments a;
    for (int p = 0; p < multi_nranks; p++) {
        a.sendcounts[p] = e->counts[multi_rank][p];
        a.sdispls[p] = e->sent_at[multi_rank][p];
        a.recvcounts[p] = e->counts[p][multi_rank];
        a.rdispls[p] = e->wanted_at[p][multi_rank];
        a.peers[p] = e->wanted_at[multi_rank][p];
    }
    return a;
}

static ceclResult_t call(const struct arguments *a, bool dense, bool known)
{
    const size_t *sdispls = dense ? NULL : a->sdispls, *rdispls = dense ? NULL : a->rdispls;
    return known ? ceclAlltoAllvAt(send_buffer, a->sendcounts, sdispls, recv_buffer, a->recvcounts,
                                   rdispls, a->peers, ceclBfloat16, comm, NULL)
                 : ceclAlltoAllv(send_buffer, a->sendcounts, sdispls, recv_buffer, a->recvcounts,
                                 rdispls, ceclBfloat16, comm, NULL);
}

static void fill(uint64_t seed)
{
    memset(host, 0x5A, room);
    multi_put(comm, recv_buffer, host, room);
    multi_fill(host, seed, multi_rank, room);
    multi_put(comm, send_buffer, host, room);
}

/* Checks that the `bytes` bytes from `from` on in rank r's input are at `at` here. Then
 * overwrites them with the initial contents. */
static void check_block(uint64_t seed, int r, size_t from, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (host[at + i] != multi_byte(seed, r, from + i))
            fail_msg("rank %d: byte %zu from rank %d is wrong", multi_rank, i, r);
        host[at + i] = 0x5A;
    }
}

static void check_rest(void)
{
    for (size_t i = 0; i < room; i++)
        if (host[i] != 0x5A)
            fail_msg("rank %d: byte %zu beside the blocks was written", multi_rank, i);
}

static void check(const struct exchange *e, uint64_t seed)
{
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, host, recv_buffer, room);
    for (int r = 0; r < multi_nranks; r++)
        check_block(seed, r, e->sent_at[r][multi_rank] * 2, e->wanted_at[r][multi_rank] * 2,
                    e->counts[r][multi_rank] * 2);
    check_rest();
    MPI_Barrier(MPI_COMM_WORLD);
}

static void random_exchanges(int rounds)
{
    uint64_t x = 815;
    for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
        static struct exchange e;
        draw(&x, &e);
        const struct arguments a = arguments_of(&e);
        fill(round);
        for (int times = 0; times < 2; times++) /* the second call uses the kept plan */
            multi_ok(comm, call(&a, e.dense, round % 2));
        check(&e, round);
    }
}

TEST_BETWEEN(blocks_of_any_size_reach_their_places, set_up, tear_down)
{
    random_exchanges(40);
}

/* Checks that the communicator is usable. */
static void works(void)
{
    random_exchanges(2);
}

TEST_BETWEEN(nothing_at_all_is_a_call, set_up, tear_down)
{
    const struct arguments none = {0};
    multi_ok(comm, call(&none, true, false));
    multi_ok(comm, call(&none, true, true));
    works();
}

TEST_BETWEEN(places_of_empty_blocks_are_of_no_account, set_up, tear_down)
{
    struct arguments a = {0};
    for (int p = 0; p < multi_nranks; p++)
        a.peers[p] = SIZE_MAX - (size_t)p;
    multi_ok(comm, call(&a, true, true));
    works();
}

/* ---- gather and scatter */

/* The root's place in place, otherwise `other`. */
static unsigned char *root_in_place(int root, bool in_place, unsigned char *other, size_t bytes)
{
    return in_place && multi_rank == root ? recv_buffer + (size_t)root * bytes : other;
}

TEST_BETWEEN(gathers_to_every_root_are_right, set_up, tear_down)
{
    for (int root = 0; root < multi_nranks; root++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const size_t bytes = 3000 + (size_t)root;
            fill(5);
            unsigned char *from = root_in_place(root, in_place, send_buffer, bytes);
            multi_fill(host, 5, multi_rank, bytes);
            multi_put(comm, from, host, bytes);
            multi_ok(comm, ceclGather(from, recv_buffer, bytes, ceclUint8, root, comm, NULL));
            multi_ok(comm, ceclStreamSynchronize(comm, NULL));
            multi_get(comm, host, recv_buffer, room);
            for (int r = 0; multi_rank == root && r < multi_nranks; r++)
                check_block(5, r, 0, (size_t)r * bytes, bytes);
            check_rest();
            MPI_Barrier(MPI_COMM_WORLD);
        }
}

TEST_BETWEEN(scatters_from_every_root_are_right, set_up, tear_down)
{
    for (int root = 0; root < multi_nranks; root++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const size_t bytes = 3000 + (size_t)root, all = bytes * (size_t)multi_nranks;
            /* place of the block in recv_buffer */
            const size_t at = in_place ? (size_t)root * bytes : 0;
            unsigned char *from = in_place ? recv_buffer : send_buffer;
            fill(6);
            if (in_place && multi_rank == root)
                multi_put(comm, recv_buffer, host, all);
            multi_ok(comm, ceclScatter(multi_rank == root ? from : NULL, recv_buffer + at, bytes,
                                       ceclUint8, root, comm, NULL));
            multi_ok(comm, ceclStreamSynchronize(comm, NULL));
            multi_get(comm, host, recv_buffer, room);
            if (in_place && multi_rank == root)
                check_block(6, root, 0, 0, all); /* unchanged */
            else
                check_block(6, root, (size_t)multi_rank * bytes, at, bytes);
            check_rest();
            MPI_Barrier(MPI_COMM_WORLD);
        }
}

TEST_BETWEEN(all_of_them_may_be_grouped, set_up, tear_down)
{
    const size_t bytes = 700, all = bytes * (size_t)multi_nranks;
    unsigned char *gathered = NULL, *scattered = NULL;
    uint64_t x = 3;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&gathered, all));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&scattered, bytes));
    for (uint64_t round = 0; round < 10; round++) {
        static struct exchange e;
        draw(&x, &e);
        const struct arguments a = arguments_of(&e);
        fill(round);
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, call(&a, e.dense, true));
        multi_ok(comm, ceclGather(send_buffer, gathered, bytes, ceclUint8, 1, comm, NULL));
        multi_ok(comm, ceclScatter(send_buffer, scattered, bytes, ceclUint8, 0, comm, NULL));
        multi_ok(comm, ceclGroupEnd());
        check(&e, round);
        multi_get(comm, host, gathered, all);
        for (int r = 0; multi_rank == 1 && r < multi_nranks; r++)
            check_block(round, r, 0, (size_t)r * bytes, bytes);
        multi_get(comm, host, scattered, bytes);
        check_block(round, 0, (size_t)multi_rank * bytes, 0, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    multi_ok(comm, ceclMemFree(comm, gathered));
    multi_ok(comm, ceclMemFree(comm, scattered));
}

/* The recvbuff lies within sendbuff on the ranks that receive nothing. */
TEST_BETWEEN(recvbuff_of_a_rank_that_receives_nothing_is_of_no_account, set_up, tear_down)
{
    const bool receives = multi_rank == 0;
    unsigned char *const recv = receives ? recv_buffer : send_buffer + 1;
    struct arguments a = {0};
    a.sendcounts[0] = 10; /* elements of 2 bytes */
    for (int r = 0; r < multi_nranks; r++) {
        a.recvcounts[r] = receives ? 10 : 0;
        a.peers[r] = (size_t)multi_rank * 10;
    }
    for (int form = 0; form < 3; form++) {
        fill(7);
        multi_ok(comm, form == 0 ? ceclGather(send_buffer, recv, 20, ceclUint8, 0, comm, NULL)
                       : form == 1
                           ? ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv, a.recvcounts,
                                           NULL, ceclBfloat16, comm, NULL)
                           : ceclAlltoAllvAt(send_buffer, a.sendcounts, NULL, recv, a.recvcounts,
                                             NULL, a.peers, ceclBfloat16, comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        multi_get(comm, host, recv_buffer, room);
        for (int r = 0; receives && r < multi_nranks; r++)
            check_block(7, r, 0, (size_t)r * 20, 20);
        check_rest();
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ---- what is refused */

/* Each rank sends ten elements to each, in contiguous blocks. */
static struct arguments tens(void)
{
    struct arguments a;
    for (int p = 0; p < multi_nranks; p++) {
        a.sendcounts[p] = a.recvcounts[p] = 10;
        a.sdispls[p] = a.rdispls[p] = 10 * (size_t)p;
        a.peers[p] = 10 * (size_t)multi_rank;
    }
    return a;
}

/* The last rank has refused its arguments: all other ranks return an error that names it. */
static void expect_refused(ceclResult_t result, const char *words)
{
    char said[128];
    snprintf(said, sizeof(said), "rank %d refused its call: ", multi_nranks - 1);
    if (multi_rank == multi_nranks - 1) {
        if (result != ceclInvalidArgument && result != ceclInvalidUsage)
            fail_msg("%s: not refused (%d)", words, (int)result);
        assert_non_null(strstr(ceclGetLastError(comm), words));
    } else {
        multi_refused(comm, result, ceclInvalidUsage, said);
        multi_refused(comm, result, ceclInvalidUsage, words);
    }
}

TEST_BETWEEN(what_one_rank_refuses_all_refuse, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    struct arguments a = tens();
    expect_refused(ceclAlltoAllv(send_buffer, odd ? NULL : a.sendcounts, NULL, recv_buffer,
                                 a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "sendcounts: NULL");
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv_buffer,
                                 odd ? NULL : a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "recvcounts: NULL");
    expect_refused(ceclAlltoAllv(odd ? NULL : send_buffer, a.sendcounts, NULL, recv_buffer,
                                 a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "sendbuff: NULL");
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, NULL, odd ? NULL : recv_buffer,
                                 a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "recvbuff: NULL");
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv_buffer, a.recvcounts, NULL,
                                 odd ? (ceclDataType_t)77 : ceclInt8, comm, NULL),
                   "datatype 77");
    expect_refused(ceclAlltoAllv(odd ? recv_buffer + 5 : send_buffer, a.sendcounts, NULL,
                                 recv_buffer, a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "overlap");
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, NULL,
                                 odd ? recv_buffer + room - 9 : recv_buffer, a.recvcounts, NULL,
                                 ceclInt8, comm, NULL),
                   "left in its allocation");
    expect_refused(ceclAlltoAllv(odd ? send_buffer + room - 9 : send_buffer, a.sendcounts, NULL,
                                 recv_buffer, a.recvcounts, NULL, ceclInt8, comm, NULL),
                   "left in its allocation");
    if (odd)
        a.rdispls[1] = 9;
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv_buffer, a.recvcounts,
                                 a.rdispls, ceclInt8, comm, NULL),
                   "recvcounts and rdispls: the blocks of ranks 0 and 1 overlap at byte 9");
    if (odd)
        a.sdispls[0] = SIZE_MAX / 2;
    expect_refused(ceclAlltoAllv(send_buffer, a.sendcounts, a.sdispls, recv_buffer, a.recvcounts,
                                 NULL, ceclInt64, comm, NULL),
                   "address space");
    works();
}

TEST_BETWEEN(counts_that_differ_are_named_on_every_rank, set_up, tear_down)
{
    struct arguments a = tens();
    if (multi_rank == 1)
        a.sendcounts[0] = 7;
    multi_refused(comm, call(&a, true, false), ceclInvalidUsage,
                  "rank 1 sends 7 elements to rank 0 (sendcounts[0]), which expects 10 "
                  "(recvcounts[1])");
    a = tens();
    a.recvcounts[multi_rank] = 11; /* each rank differs with itself; the message names rank 0 */
    multi_refused(comm, call(&a, true, false), ceclInvalidUsage,
                  "rank 0 sends 10 elements to rank 0 (sendcounts[0]), which expects 11");
    a = tens();
    multi_refused(comm,
                  ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv_buffer, a.recvcounts, NULL,
                                multi_rank == 1 ? ceclUint8 : ceclInt8, comm, NULL),
                  ceclInvalidUsage, "datatype: int8 on rank 0, uint8 on rank 1");
    works();
}

TEST_BETWEEN(known_places_that_cannot_be_are_refused, set_up, tear_down)
{
    struct arguments a = tens();
    multi_refused(comm,
                  ceclAlltoAllvAt(send_buffer, a.sendcounts, NULL, recv_buffer, a.recvcounts, NULL,
                                  NULL, ceclInt8, comm, NULL),
                  ceclInvalidArgument, "peerdispls: NULL");
    a.sendcounts[multi_rank] = 9;
    multi_refused(comm, call(&a, true, true), ceclInvalidArgument, "from a rank to itself");
    a = tens();
    a.peers[multi_rank]++;
    multi_refused(comm, call(&a, true, true), ceclInvalidArgument, "from a rank to itself");
    a = tens();
    a.peers[(multi_rank + 1) % multi_nranks] = SIZE_MAX;
    multi_refused(comm, call(&a, true, true), ceclInvalidArgument, "peerdispls");
    works();
}

/* Peers rely on the places that a rank has announced, so the communicator fails. The last rank
 * makes its call last; so it knows the buffers of all ranks. */
TEST_BETWEEN(a_block_that_leaves_a_peers_recvbuff_ends_the_communicator, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    struct arguments a = tens();
    ceclResult_t result = ceclSuccess;
    if (!odd)
        multi_ok(comm, call(&a, true, true));
    MPI_Barrier(MPI_COMM_WORLD);
    if (odd) {
        a.peers[0]++; /* the last rank's block is the last in the buffer */
        multi_refused(comm, call(&a, true, true), ceclInvalidUsage,
                      "end beyond recvbuff of rank 0");
    } else {
        multi_refused(comm, ceclStreamSynchronize(comm, NULL), ceclRemoteError,
                      "end beyond recvbuff of rank 0");
    }
    multi_ok(comm, ceclCommGetAsyncError(comm, &result));
    assert_int_equal(result, odd ? ceclInvalidUsage : ceclRemoteError);
    assert_int_equal(ceclCommDestroy(comm), result);
    free(host);
    open_with("4K", "never");
    works();
}

TEST_BETWEEN(ranks_may_have_their_buffers_at_other_offsets, set_up, tear_down)
{
    unsigned char *const recv = recv_buffer;
    unsigned char *wider = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&wider, room + 4 * (size_t)multi_nranks));
    recv_buffer = wider + 4 * multi_rank;
    random_exchanges(10);
    multi_ok(comm, ceclMemFree(comm, wider));
    recv_buffer = recv;
    works();
}

TEST_BETWEEN(a_group_refuses_the_form_that_waits, set_up, tear_down)
{
    const struct arguments a = tens();
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(&a, true, true));
    multi_refused(comm, call(&a, true, false), ceclInvalidUsage, "use ceclAlltoAllvAt");
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "use ceclAlltoAllvAt");
    works();
}

TEST_BETWEEN(wrong_roots_and_buffers_are_named, set_up, tear_down)
{
    const size_t bytes = 64, all = bytes * (size_t)multi_nranks;
    multi_refused(comm, ceclGather(send_buffer, recv_buffer, 4, 0, multi_nranks, comm, NULL),
                  ceclInvalidArgument, "root");
    multi_refused(comm, ceclScatter(send_buffer, recv_buffer, 4, 0, -1, comm, NULL),
                  ceclInvalidArgument, "root -1");
    multi_refused(comm, ceclGather(send_buffer, recv_buffer, SIZE_MAX / 16, 5, 0, comm, NULL),
                  ceclInvalidArgument, "address space");
    multi_refused(comm, ceclGather(NULL, recv_buffer, 4, 0, 0, comm, NULL), ceclInvalidArgument,
                  "sendbuff: NULL");
    multi_refused(comm, ceclScatter(send_buffer, NULL, 4, 0, 0, comm, NULL), ceclInvalidArgument,
                  "recvbuff: NULL");
    if (multi_on_gpus(comm))
        multi_refused(comm, ceclScatter(send_buffer, host, bytes, 0, 0, comm, NULL),
                      ceclInvalidArgument, "is expected");
    /* Only the root checks this. So each rank names itself as root, and each call is refused. */
    multi_refused(
        comm, ceclGather(send_buffer, recv_buffer + room - all + 1, bytes, 0, multi_rank, comm, 0),
        ceclInvalidUsage, "left in its allocation");
    multi_refused(comm, ceclGather(recv_buffer + 1, recv_buffer, bytes, 0, multi_rank, comm, NULL),
                  ceclInvalidArgument, "in place, on root");
    multi_refused(
        comm,
        ceclScatter(recv_buffer + 1, recv_buffer + all - bytes, bytes, 0, multi_rank, comm, NULL),
        ceclInvalidArgument, "in place, on root");
    multi_ok(comm, ceclGather(NULL, NULL, 0, 0, 0, comm, NULL));
    works();
}

TEST_BETWEEN(calls_that_differ_are_told_where_they_are_compared, set_up_checked, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    struct arguments a = tens();
    if (multi_rank == 1)
        a.peers[0]++;
    multi_refused(comm, call(&a, true, true), ceclInvalidUsage,
                  "rank 1 sends its block to element 11 of rank 0's recvbuff (peerdispls[0]), "
                  "which expects it at 10 (rdispls[1])");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(&a, true, true));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "rank 1 sends its block to element 11");
    a = tens();
    if (multi_rank == 1)
        a.sendcounts[0]--;
    multi_refused(comm, call(&a, true, true), ceclInvalidUsage, "rank 1 sends 9 elements");
    multi_refused(comm, ceclGather(send_buffer, recv_buffer, 8, 0, odd ? 1 : 0, comm, NULL),
                  ceclInvalidUsage, "root: 0 on rank 0, 1 on rank");
    multi_refused(comm, ceclScatter(send_buffer, recv_buffer, odd ? 9 : 8, 0, 0, comm, NULL),
                  ceclInvalidUsage, "count: 8 on rank 0, 9 on rank");
    multi_refused(comm,
                  odd ? call(&a, true, false)
                      : ceclGather(send_buffer, recv_buffer, 8, 0, 0, comm, NULL),
                  ceclInvalidUsage, "the call: ceclGather on rank 0, ceclAlltoAllv on rank");
    works();
    gathers_to_every_root_are_right(NULL);
    what_one_rank_refuses_all_refuse(NULL);
}

TEST_AGAIN(blocks_of_any_size_reach_their_places, set_up_allowed, tear_down)
TEST_AGAIN(gathers_to_every_root_are_right, set_up_allowed, tear_down)
TEST_AGAIN(scatters_from_every_root_are_right, set_up_allowed, tear_down)
TEST_AGAIN(ranks_may_have_their_buffers_at_other_offsets, set_up_checked, tear_down)
