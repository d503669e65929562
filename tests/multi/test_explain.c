/* ceclExplain and ceclGroupExplain: what they report for each shape and option; that they enqueue and exchange nothing;
 * what they refuse. (test_bad_input.c tests that the calls refuse the same arguments with the same messages.) */
#include "buffers.h"

#define BLOCK 1000
#define LARGE 1100000 /* bytes: too large for a small call on any device */

static unsigned char *other; /* as large as the buffers */
static bool shares_gpu;      /* ranks share a GPU: no copy is zero SM */

static int set_up(void **state)
{
    buffers_open((size_t)multi_nranks * LARGE, NULL, NULL);
    shares_gpu = multi_shares_gpu(comm);
    other = multi_alloc(comm, room);
    return 0;
}

static ceclExplanation_t explain(ceclComm_t who, ceclOp_t op, const void *send, const void *recv,
                                 size_t count)
{
    ceclExplanation_t e = {.zeroSm = -1};
    multi_ok(who, ceclExplain(op, send, recv, count, ceclInt8, who, &e));
    return e;
}

/* A block of BLOCK bytes is not cut into pieces: it goes to the next rank, and comes back. */
TEST_BETWEEN(what_calls_do_is_told, set_up, tear_down)
{
    const int n = multi_nranks;
    unsigned char *const own = recv_buffer + (size_t)multi_rank * BLOCK;
    const struct {
        ceclOp_t op;
        const unsigned char *send;
        size_t count;
        int copies, barriers, blocks; /* blocks: how many are sent */
        const char *path;
    } told[] = {
        {ceclOpAllGather, own, BLOCK, n - 1, 2, n - 1, "push"},
        {ceclOpAllGather, send_buffer, BLOCK, n, 3, n, "own block returned by peers"},
        {ceclOpAlltoAll, send_buffer, BLOCK, n + 1, 3, n + 1, "own block by way of peers, 1 round"},
        {ceclOpAllGather, send_buffer, 0, 0, 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        const ceclExplanation_t e =
            explain(comm, told[i].op, told[i].send, recv_buffer, told[i].count);
        assert_int_equal(e.localCopies, 0);
        assert_int_equal(e.copies, told[i].copies);
        assert_int_equal(e.barriers, told[i].barriers);
        assert_int_equal(e.bytesSent, (size_t)told[i].blocks * BLOCK);
        assert_non_null(strstr(e.path, told[i].path));
        if (told[i].count > 0) {
            assert_int_equal(e.zeroSm, !shares_gpu);
            assert_non_null(strstr(e.reason, shares_gpu ? "ranks share a GPU" : "zero SM"));
        }
    }
}

TEST_BETWEEN(local_copies_are_told_where_they_are_allowed, set_up, tear_down)
{
    ceclComm_t lax = multi_comm_under("CECL_SM_POLICY", "allow", NULL);
    char *recv = multi_alloc(lax, (size_t)multi_nranks * LARGE);
    char *send = multi_alloc(lax, (size_t)multi_nranks * LARGE);
    const ceclExplanation_t e = explain(lax, ceclOpAlltoAll, send, recv, LARGE);
    assert_int_equal(e.zeroSm, 0);
    assert_int_equal(e.localCopies, 1);
    assert_int_equal(e.copies, multi_nranks);
    assert_int_equal(e.bytesSent, (size_t)multi_nranks * LARGE);
    assert_non_null(strstr(e.reason, shares_gpu ? "ranks share a GPU" : "needs an SM"));

    const ceclExplanation_t small = explain(lax, ceclOpAlltoAll, send, recv, BLOCK);
    assert_int_equal(small.zeroSm, 0);
    assert_int_equal(small.copies, 0);
    assert_int_equal(small.kernels, 1);
    assert_int_equal(small.bytesSent, (size_t)(multi_nranks - 1) * BLOCK);
    assert_int_equal(small.barriers, 1);
    assert_string_equal(small.path, "small, one exchange through slots");
    assert_non_null(strstr(small.reason, "CECL_SM_ALLOW"));
    const size_t most = !multi_on_gpus(lax) ? 4 << 10 : multi_nranks == 2 ? 1 << 20 : 256 << 10;
    assert_string_equal(explain(lax, ceclOpAlltoAll, send, recv, most).path, small.path);
    multi_ok(NULL, ceclCommDestroy(lax));
}

/* Only one rank calls ceclExplain, also under CECL_CHECK=1: any exchange would hang. */
TEST(explaining_concerns_one_rank_alone)
{
    ceclComm_t checked = multi_comm_under("CECL_CHECK", "1", NULL);
    ceclPoolStats_t before, after;
    char *recv = multi_alloc(checked, (size_t)multi_nranks * 64);
    multi_ok(checked, ceclPoolStats(checked, &before));
    if (multi_rank == 0) {
        explain(checked, ceclOpAllGather, recv, recv, 64);
        explain(checked, ceclOpAlltoAll, recv, recv, 64);
        multi_ok(checked, ceclStreamSynchronize(checked, 0));
    }
    multi_ok(checked, ceclPoolStats(checked, &after));
    assert_int_equal(after.exchanges, before.exchanges);
    multi_ok(NULL, ceclCommDestroy(checked));
}

TEST_BETWEEN(a_call_that_only_a_group_explains_is_named, set_up, tear_down)
{
    ceclExplanation_t e;
    multi_refused(NULL,
                  ceclExplain(ceclOpAllGather, send_buffer, recv_buffer, 1, ceclInt8, NULL, &e),
                  ceclInvalidArgument, "comm: NULL");
    for (int op = ceclOpReduceScatter; op < CECL_NUM_OPS; op++)
        multi_refused(comm,
                      ceclExplain((ceclOp_t)op, send_buffer, recv_buffer, 1, ceclInt8, comm, &e),
                      ceclInvalidArgument, "ceclGroupExplain explains");
}

TEST_BETWEEN(a_finalized_communicator_explains_nothing, set_up, tear_down)
{
    ceclExplanation_t e;
    multi_ok(comm, ceclCommFinalize(comm));
    multi_refused(comm,
                  ceclExplain(ceclOpAllGather, send_buffer, recv_buffer, 1, ceclInt8, comm, &e),
                  ceclInvalidUsage, "finalized");
    multi_refused(comm, ceclAllGather(send_buffer, recv_buffer, 1, ceclInt8, comm, 0),
                  ceclInvalidUsage, "finalized");
}

static void set(int policy, int direction)
{
    multi_options(comm, policy, direction, CECL_UNDEF);
}

TEST_BETWEEN(they_hold_until_set_anew, set_up, tear_down)
{
    const unsigned char *shard = recv_buffer + (size_t)multi_rank * LARGE;
    assert_int_equal(explain(comm, ceclOpAlltoAll, send_buffer, recv_buffer, LARGE).localCopies, 0);
    set(CECL_SM_ALLOW, CECL_UNDEF);
    assert_int_equal(explain(comm, ceclOpAlltoAll, send_buffer, recv_buffer, LARGE).localCopies, 1);
    assert_non_null(strstr(explain(comm, ceclOpAllGather, shard, recv_buffer, LARGE).path, "push"));
    set(CECL_UNDEF, CECL_DIRECTION_PULL);
    assert_int_equal(explain(comm, ceclOpAlltoAll, send_buffer, recv_buffer, LARGE).localCopies, 0);
    assert_non_null(strstr(explain(comm, ceclOpAllGather, shard, recv_buffer, LARGE).path, "pull"));
    multi_ok(comm, ceclSetOptions(comm, NULL));
    assert_non_null(strstr(explain(comm, ceclOpAllGather, shard, recv_buffer, LARGE).path, "push"));
}

/* `lax`: how many of the group's two calls may use local copies. Each keeps the policy set when it was made. */
TEST_BETWEEN(calls_of_a_group_keep_their_own, set_up, tear_down)
{
    ceclExplanation_t e;
    for (int lax = 0; lax < 3; lax++) {
        multi_ok(comm, ceclGroupStart());
        set(lax > 0 ? CECL_SM_ALLOW : CECL_SM_NEVER, CECL_UNDEF);
        multi_ok(comm, ceclAlltoAll(send_buffer, recv_buffer, LARGE, ceclInt8, comm, NULL));
        set(lax > 1 ? CECL_SM_ALLOW : CECL_SM_NEVER, CECL_UNDEF);
        multi_ok(comm, ceclAlltoAll(send_buffer, other, LARGE, ceclInt8, comm, NULL));
        multi_ok(comm, ceclGroupExplain(comm, &e));
        assert_int_equal(e.localCopies, lax);
        assert_int_equal(e.zeroSm, lax == 0 && !shares_gpu);
    }
}

TEST_BETWEEN(a_group_that_is_only_explained_enqueues_nothing, set_up, tear_down)
{
    const size_t counts[64] = {LARGE, 0, 7};
    ceclExplanation_t e;
    memset(host, 0x33, room);
    multi_put(comm, recv_buffer, host, room);
    if (multi_rank == 0) { /* no other rank has to take part */
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, ceclAllGatherv(send_buffer, counts[multi_rank], recv_buffer, counts, NULL,
                                      ceclInt8, comm, NULL));
        multi_ok(comm, ceclGroupExplain(comm, &e));
        assert_int_equal(e.zeroSm, !shares_gpu);
        assert_true(e.copies >= multi_nranks - 1);
    }
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_get(comm, host, recv_buffer, room);
    for (size_t i = 0; i < room; i++)
        assert_int_equal(host[i], 0x33);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_works(comm, NULL, multi_nranks);
}

TEST_BETWEEN(an_explained_group_refuses_what_its_end_refuses, set_up, tear_down)
{
    ceclExplanation_t e;
    multi_refused(comm, ceclGroupExplain(comm, &e), ceclInvalidUsage, "no ceclGroupStart");
    multi_ok(comm, ceclGroupStart());
    multi_refused(comm, ceclAllGather(NULL, recv_buffer, 1, ceclInt8, comm, NULL),
                  ceclInvalidArgument, "sendbuff: NULL");
    multi_refused(comm, ceclGroupExplain(comm, &e), ceclInvalidArgument, "sendbuff: NULL");
    multi_ok(comm, ceclGroupStart());
    multi_refused(comm, ceclGroupExplain(comm, NULL), ceclInvalidArgument, "explanation: NULL");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(send_buffer, recv_buffer, 1, ceclInt8, comm, NULL));
    multi_refused(comm, ceclGroupExplain(comm, &e), ceclInvalidUsage, "inside another");
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "inside another");
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclGroupExplain(comm, &e)); /* the explanation of an empty group */
    assert_int_equal(e.copies, 0);
    ceclComm_t second = multi_comm(NULL);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(send_buffer, recv_buffer, 1, ceclInt8, comm, NULL));
    multi_refused(second, ceclGroupExplain(second, &e), ceclInvalidUsage, "another communicator");
    multi_ok(NULL, ceclCommDestroy(second));
    multi_works(comm, NULL, multi_nranks);
}

TEST_BETWEEN(ranks_that_differ_are_told_where_calls_are_compared, set_up, tear_down)
{
    ceclComm_t checked = multi_comm_under("CECL_CHECK", "1", NULL);
    char *recv = multi_alloc(checked, (size_t)multi_nranks * 64);
    multi_options(checked, multi_rank == 1 ? CECL_SM_ALLOW : CECL_SM_NEVER, CECL_UNDEF, CECL_UNDEF);
    multi_refused(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL), ceclInvalidUsage,
                  "ranks differ in options");
    multi_options(checked, CECL_UNDEF, CECL_UNDEF, multi_rank == 1 ? 7 : 8);
    multi_refused(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL), ceclInvalidUsage,
                  "ranks differ in options.maxSms: 8 on rank 0, 7 on rank 1");
    multi_ok(checked, ceclSetOptions(checked, NULL));
    multi_ok(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL));
    multi_ok(checked, ceclStreamSynchronize(checked, NULL));
    multi_ok(NULL, ceclCommDestroy(checked));
}
