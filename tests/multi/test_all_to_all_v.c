/* Variable all-to-alls, whose places ranks exchange or the caller gives: blocks without bytes, refused arguments,
 * counts that differ between ranks, and a block that leaves its recvbuff. Random calls: test_collectives.c. */
#include "buffers.h"
#include "random_call.h"

#define MOST 2000

static int set_up(void **state)
{
    /* Buffers of a multiple of 256 bytes. Staging is so small that own blocks take several rounds. */
    buffers_open((size_t)multi_nranks * (MOST + 304) * 2, "4K", "never");
    return 0;
}

struct arguments {
    size_t sendcounts[RANKS], sdispls[RANKS], recvcounts[RANKS], rdispls[RANKS], peers[RANKS];
};

static ceclResult_t call(const struct arguments *a, bool known)
{
    return known ? ceclAlltoAllvAt(send_buffer, a->sendcounts, NULL, recv_buffer, a->recvcounts,
                                   NULL, a->peers, ceclBfloat16, comm, NULL)
                 : ceclAlltoAllv(send_buffer, a->sendcounts, NULL, recv_buffer, a->recvcounts, NULL,
                                 ceclBfloat16, comm, NULL);
}

static void works(void)
{
    random_groups(comm, ALL_TO_ALLV, ALL_TO_ALLV, 1, 2, 3);
}

TEST_BETWEEN(places_of_empty_blocks_are_of_no_account, set_up, tear_down)
{
    struct arguments a = {0};
    for (int p = 0; p < multi_nranks; p++)
        a.peers[p] = SIZE_MAX - (size_t)p;
    multi_ok(comm, call(&a, true));
    works();
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
        multi_ok(comm, form == 0 ? ceclGather(send_buffer, recv, 20, ceclUint8, 0, comm, NULL)
                       : form == 1
                           ? ceclAlltoAllv(send_buffer, a.sendcounts, NULL, recv, a.recvcounts,
                                           NULL, ceclBfloat16, comm, NULL)
                           : ceclAlltoAllvAt(send_buffer, a.sendcounts, NULL, recv, a.recvcounts,
                                             NULL, a.peers, ceclBfloat16, comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    }
    works();
}

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

/* The last rank has refused its own arguments; on all other ranks the call must fail with an error that names it. */
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
#define REFUSED(words, send, sendcounts, sdispls, recv, recvcounts, rdispls, type) \
    expect_refused( \
        ceclAlltoAllv(send, sendcounts, sdispls, recv, recvcounts, rdispls, type, comm, NULL), \
        words)
#define ODD(odd_one, usual) odd ? (odd_one) : (usual)
    unsigned char *const in = send_buffer, *const out = recv_buffer;
    const size_t *const sends = a.sendcounts, *const receives = a.recvcounts;
    const ceclDataType_t none = (ceclDataType_t)77, type = ceclInt8;
    REFUSED("sendcounts: NULL", in, ODD(NULL, sends), NULL, out, receives, NULL, type);
    REFUSED("recvcounts: NULL", in, sends, NULL, out, ODD(NULL, receives), NULL, type);
    REFUSED("sendbuff: NULL", ODD(NULL, in), sends, NULL, out, receives, NULL, type);
    REFUSED("recvbuff: NULL", in, sends, NULL, ODD(NULL, out), receives, NULL, type);
    REFUSED("datatype 77", in, sends, NULL, out, receives, NULL, ODD(none, type));
    REFUSED("overlap", ODD(out + 5, in), sends, NULL, out, receives, NULL, type);
    REFUSED("left in its allocation", in, sends, NULL, ODD(out + room - 9, out), receives, NULL,
            type);
    REFUSED("left in its allocation", ODD(in + room - 9, in), sends, NULL, out, receives, NULL,
            type);
    if (odd)
        a.rdispls[1] = 9;
    REFUSED("recvcounts and rdispls: the blocks of ranks 0 and 1 overlap at byte 9", in, sends,
            NULL, out, receives, a.rdispls, type);
    if (odd)
        a.sdispls[0] = SIZE_MAX / 2;
    REFUSED("address space", in, sends, a.sdispls, out, receives, NULL, ceclInt64);
    works();
}

TEST_BETWEEN(counts_that_differ_are_named_on_every_rank, set_up, tear_down)
{
    struct arguments a = tens();
    if (multi_rank == 1)
        a.sendcounts[0] = 7;
    multi_refused(comm, call(&a, false), ceclInvalidUsage,
                  "rank 1 sends 7 elements to rank 0 (sendcounts[0]), which expects 10 "
                  "(recvcounts[1])");
    a = tens();
    a.recvcounts[multi_rank] = 11; /* every rank's own block differs; the message names rank 0 */
    multi_refused(comm, call(&a, false), ceclInvalidUsage,
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
    a.sendcounts[multi_rank] = 9;
    multi_refused(comm, call(&a, true), ceclInvalidArgument, "from a rank to itself");
    a = tens();
    a.peers[multi_rank]++;
    multi_refused(comm, call(&a, true), ceclInvalidArgument, "from a rank to itself");
    a = tens();
    a.peers[(multi_rank + 1) % multi_nranks] = SIZE_MAX;
    multi_refused(comm, call(&a, true), ceclInvalidArgument, "peerdispls");
    works();
}

/* The last rank calls last, so it knows rank 0's recvbuff, and refuses its call. The others' calls wait for it, so the
 * communicator fails. */
TEST_BETWEEN(a_block_that_leaves_a_peers_recvbuff_ends_the_communicator, set_up, tear_down)
{
    const bool odd = multi_rank == multi_nranks - 1;
    struct arguments a = tens();
    ceclResult_t result = ceclSuccess;
    if (!odd)
        multi_ok(comm, call(&a, true));
    MPI_Barrier(MPI_COMM_WORLD);
    if (odd) {
        a.peers[0]++; /* the last rank's block is the last in the buffer */
        multi_refused(comm, call(&a, true), ceclInvalidUsage, "end beyond recvbuff of rank 0");
    } else {
        multi_refused(comm, ceclStreamSynchronize(comm, NULL), ceclRemoteError,
                      "end beyond recvbuff of rank 0");
    }
    multi_ok(comm, ceclCommGetAsyncError(comm, &result));
    assert_int_equal(result, odd ? ceclInvalidUsage : ceclRemoteError);
    assert_int_equal(ceclCommDestroy(comm), result);
    free(host);
    set_up(state);
    works();
}
