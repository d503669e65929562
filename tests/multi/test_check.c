/* CECL_CHECK=1: ranks that differ in a call are told so, all of them, with both values; and
 * ceclExplain's answers. */
#include "multi.h"

static ceclComm_t checked_comm(void)
{
    multi_setenv("CECL_CHECK", "1");
    ceclComm_t comm = multi_comm(NULL);
    multi_setenv("CECL_CHECK", NULL);
    return comm;
}

static void mismatched_calls_are_refused_on_every_rank(void **state)
{
    (void)state;
    ceclComm_t comm = checked_comm();
    const bool odd = multi_rank == multi_nranks - 1;
    const size_t n = (size_t)multi_nranks;
    char *recv = NULL, *send = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, n * 1024 + 256));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send, n * 1024));
    for (int round = 0; round < 3; round++) {
        multi_refused(comm, ceclAllGather(send, recv, odd ? 20 : 10, ceclInt8, comm, 0),
                      ceclInvalidUsage, "count: 10 on rank 0, 20 on rank");
        multi_refused(comm, ceclAllGather(send, recv, 10, odd ? ceclUint8 : ceclInt8, comm, 0),
                      ceclInvalidUsage, "datatype");
        multi_refused(comm,
                      odd ? ceclAlltoAll(send, recv, 10, ceclInt8, comm, 0)
                          : ceclAllGather(send, recv, 10, ceclInt8, comm, 0),
                      ceclInvalidUsage, "the collective");
        multi_refused(comm, ceclAllGather(send, recv + (odd ? 256 : 0), 10, ceclInt8, comm, 0),
                      ceclInvalidUsage, "recvbuff's offset");
        multi_refused(comm,
                      ceclAllGather(odd ? recv + (n - 1) * 10 : send, recv, 10, ceclInt8, comm, 0),
                      ceclInvalidUsage, "in place");
        if (odd)
            multi_refused(comm, ceclAllGather(NULL, recv, 10, ceclInt8, comm, 0),
                          ceclInvalidArgument, "sendbuff: NULL");
        else
            multi_refused(comm, ceclAllGather(send, recv, 10, ceclInt8, comm, 0), ceclInvalidUsage,
                          "refused its call: sendbuff: NULL");
        multi_check(
            comm, &(struct multi_case){.op = ceclOpAllGather, .count = 1000, .type = ceclInt32}, 9);
        multi_check(
            comm, &(struct multi_case){.op = ceclOpAlltoAll, .count = 1000, .type = ceclInt32}, 9);
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

static ceclExplanation_t explain(ceclComm_t comm, ceclOp_t op, const void *send, const void *recv,
                                 size_t count)
{
    ceclExplanation_t e = {.zeroSm = -1};
    multi_ok(comm, ceclExplain(op, send, recv, count, ceclInt8, comm, &e));
    return e;
}

static void explain_tells_what_is_zero_sm_and_why(void **state)
{
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    const size_t n = (size_t)multi_nranks, peers = n - 1;
    char *recv = NULL, *send = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, n * 1000));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send, n * 1000));
    ceclExplanation_t e =
        explain(comm, ceclOpAllGather, recv + (size_t)multi_rank * 1000, recv, 1000);
    assert_int_equal(e.zeroSm, 1);
    assert_int_equal(e.localCopies, 0);
    assert_int_equal(e.copies, peers);
    assert_int_equal(e.bytesSent, peers * 1000);
    assert_int_equal(e.barriers, 2);
    assert_non_null(strstr(e.path, "push"));
    e = explain(comm, ceclOpAllGather, send, recv, 1000);
    assert_int_equal(e.zeroSm, 0);
    assert_int_equal(e.localCopies, 1);
    assert_non_null(strstr(e.reason, "recvbuff + rank * sendcount"));
    e = explain(comm, ceclOpAlltoAll, send, recv, 1000);
    assert_int_equal(e.zeroSm, 0);
    assert_int_equal(e.localCopies, 1);
    assert_non_null(strstr(e.reason, "needs an SM"));
    e = explain(comm, ceclOpAlltoAll, recv, recv, 1000);
    assert_int_equal(e.localCopies, peers);
    assert_non_null(strstr(e.path, "staging"));
    e = explain(comm, ceclOpAllGather, send, recv, 0);
    assert_int_equal(e.copies, 0);
    multi_refused(comm, ceclExplain((ceclOp_t)9, send, recv, 1, ceclInt8, comm, &e),
                  ceclInvalidArgument, "op 9");
    multi_refused(comm, ceclExplain(ceclOpAllGather, send, recv, 2000, ceclInt8, comm, &e),
                  ceclInvalidUsage, "left in its allocation");
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Only one rank explains: were anything enqueued or exchanged, this would hang. */
static void explain_concerns_one_rank_alone(void **state)
{
    (void)state;
    ceclComm_t comm = multi_comm(NULL);
    char *recv = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, (size_t)multi_nranks * 64));
    if (multi_rank == 0) {
        explain(comm, ceclOpAllGather, recv, recv, 64);
        multi_ok(comm, ceclStreamSynchronize(comm, 0));
    }
    multi_ok(NULL, ceclCommDestroy(comm));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatched_calls_are_refused_on_every_rank),
        cmocka_unit_test(explain_tells_what_is_zero_sm_and_why),
        cmocka_unit_test(explain_concerns_one_rank_alone),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
