/* Options of calls: what ceclExplain and ceclGroupExplain report, and the results of the calls. */
#include "multi.h"

#define BLOCK 1100000 /* too large for a small call */

static ceclComm_t comm;
static char *recv_buffer, *send_buffer, *other; /* [nranks * BLOCK] each */

static int set_up(void **state)
{
    const size_t all = (size_t)multi_nranks * BLOCK;
    comm = multi_comm(NULL);
    recv_buffer = multi_alloc(comm, all);
    send_buffer = multi_alloc(comm, all);
    other = multi_alloc(comm, all);
    return 0;
}

static int tear_down(void **state)
{
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

static void set(int policy, int direction)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = policy;
    options.direction = direction;
    multi_ok(comm, ceclSetOptions(comm, &options));
}

static ceclExplanation_t explain(ceclOp_t op, const void *send)
{
    ceclExplanation_t e;
    multi_ok(comm, ceclExplain(op, send, recv_buffer, BLOCK, ceclInt8, comm, &e));
    return e;
}

TEST_BETWEEN(they_hold_until_set_anew, set_up, tear_down)
{
    const char *shard = recv_buffer + (size_t)multi_rank * BLOCK;
    assert_int_equal(explain(ceclOpAlltoAll, send_buffer).localCopies, 0);
    set(CECL_SM_ALLOW, CECL_UNDEF);
    assert_int_equal(explain(ceclOpAlltoAll, send_buffer).localCopies, 1);
    assert_non_null(strstr(explain(ceclOpAllGather, shard).path, "push"));
    set(CECL_UNDEF, CECL_DIRECTION_PULL);
    assert_int_equal(explain(ceclOpAlltoAll, send_buffer).localCopies, 0);
    assert_non_null(strstr(explain(ceclOpAllGather, shard).path, "pull"));
    multi_ok(comm, ceclSetOptions(comm, NULL));
    assert_non_null(strstr(explain(ceclOpAllGather, shard).path, "push"));
}

/* One call of a group may use a local copy, the other must not: the group has just one local
 * copy. */
TEST_BETWEEN(calls_of_a_group_keep_their_own, set_up, tear_down)
{
    ceclExplanation_t e;
    for (int lax = 0; lax < 3; lax++) {
        multi_ok(comm, ceclGroupStart());
        set(lax > 0 ? CECL_SM_ALLOW : CECL_SM_NEVER, CECL_UNDEF);
        multi_ok(comm, ceclAlltoAll(send_buffer, recv_buffer, BLOCK, ceclInt8, comm, NULL));
        set(lax > 1 ? CECL_SM_ALLOW : CECL_SM_NEVER, CECL_UNDEF);
        multi_ok(comm, ceclAlltoAll(send_buffer, other, BLOCK, ceclInt8, comm, NULL));
        multi_ok(comm, ceclGroupExplain(comm, &e));
        assert_int_equal(e.localCopies, lax);
        assert_int_equal(e.zeroSm, lax == 0 && !multi_shares_gpu(comm));
    }
}

TEST_BETWEEN(a_group_that_is_only_explained_enqueues_nothing, set_up, tear_down)
{
    const size_t all = (size_t)multi_nranks * BLOCK;
    const size_t counts[64] = {BLOCK, 0, 7};
    unsigned char *host = malloc(all);
    ceclExplanation_t e;
    const bool shares_gpu = multi_shares_gpu(comm);
    assert_non_null(host);
    memset(host, 0x33, all);
    multi_put(comm, recv_buffer, host, all);
    if (multi_rank == 0) { /* local options: other ranks may have other values */
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, ceclAllGatherv(send_buffer, counts[multi_rank], recv_buffer, counts, NULL,
                                      ceclInt8, comm, NULL));
        multi_ok(comm, ceclGroupExplain(comm, &e));
        assert_int_equal(e.zeroSm, !shares_gpu);
        assert_true(e.copies >= multi_nranks - 1);
    }
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_get(comm, host, recv_buffer, all);
    for (size_t i = 0; i < all; i++)
        assert_int_equal(host[i], 0x33);
    MPI_Barrier(MPI_COMM_WORLD);
    free(host);
    multi_check(comm, &(struct multi_case){.op = ceclOpAllGather, .count = 9, .type = 0}, 3);
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
    multi_check(comm, &(struct multi_case){.op = ceclOpAlltoAll, .count = 9, .type = 0}, 3);
}

TEST_BETWEEN(ranks_that_differ_are_told_where_calls_are_compared, set_up, tear_down)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    multi_setenv("CECL_CHECK", "1");
    ceclComm_t checked = multi_comm(NULL);
    multi_setenv("CECL_CHECK", NULL);
    char *recv = multi_alloc(checked, (size_t)multi_nranks * 64);
    options.smPolicy = multi_rank == 1 ? CECL_SM_ALLOW : CECL_SM_NEVER;
    multi_ok(checked, ceclSetOptions(checked, &options));
    multi_refused(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL), ceclInvalidUsage,
                  "ranks differ in options");
    options.smPolicy = CECL_UNDEF;
    options.maxSms = multi_rank == 1 ? 7 : 8;
    multi_ok(checked, ceclSetOptions(checked, &options));
    multi_refused(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL), ceclInvalidUsage,
                  "ranks differ in options.maxSms: 8 on rank 0, 7 on rank 1");
    multi_ok(checked, ceclSetOptions(checked, NULL));
    multi_ok(checked, ceclAlltoAll(recv, recv, 8, ceclInt8, checked, NULL));
    multi_ok(checked, ceclStreamSynchronize(checked, NULL));
    multi_ok(NULL, ceclCommDestroy(checked));
}
