/* Ranks that make different small calls, without CECL_CHECK. Nothing refuses such a call before it
 * starts. But no rank takes its result for good: all get an error that names the difference. */
#include "multi.h"

#define COUNT 100 /* of floats: a small call */
#define CALLS 12
#define ODD_CALL 5
#define PROMPT 10.0 /* seconds: far above what is measured */

enum difference { OTHER_COUNT, OTHER_OPERATION, OTHER_CALL, LEFT_OUT, DIFFERENCES };

struct buffers {
    ceclComm_t comm;
    float *send, *recv;
};

static ceclResult_t call(const struct buffers *b, size_t count, ceclRedOp_t op)
{
    return ceclAllReduce(b->send, b->recv, count, ceclFloat, op, b->comm, NULL);
}

/* All calls differ in their counts. The last rank makes its call ODD_CALL in another way. */
static ceclResult_t make(const struct buffers *b, enum difference difference, int index)
{
    const size_t count = COUNT - 2 * (size_t)index;
    const bool odd = multi_rank == multi_nranks - 1 && index == ODD_CALL;
    switch (odd ? difference : DIFFERENCES) {
    case OTHER_COUNT: return call(b, count - 1, ceclSum);
    case OTHER_OPERATION: return call(b, count, ceclMax);
    case OTHER_CALL:
        return ceclReduceScatter(b->send, b->recv, count / (size_t)multi_nranks, ceclFloat, ceclSum,
                                 b->comm, NULL);
    case LEFT_OUT: return ceclSuccess;
    case DIFFERENCES: break;
    }
    return call(b, count, ceclSum);
}

static void run(enum difference difference)
{
    struct buffers b = {.comm = multi_comm(NULL)};
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, COUNT * sizeof(float)));
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, COUNT * sizeof(float)));
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < CALLS && result == ceclSuccess; i++) {
        result = make(&b, difference, i);
        if (result == ceclSuccess)
            result = ceclStreamSynchronize(b.comm, NULL);
        if (i > ODD_CALL) /* this rank has seen that a peer made an earlier call in another way */
            assert_int_not_equal(result, ceclSuccess);
    }
    /* a peer may still be on its way */
    assert_int_not_equal(multi_async_within(b.comm, PROMPT), ceclSuccess);
    const char *words = ceclGetLastError(b.comm);
    if (!strstr(words, "made another call than this rank"))
        fail_msg("the error is: %s", words);
    (void)!ceclCommDestroy(b.comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void another_count_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run(OTHER_COUNT);
}

static void another_operation_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run(OTHER_OPERATION);
}

static void another_collective_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run(OTHER_CALL);
}

static void a_call_left_out_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    run(LEFT_OUT);
}

/* Of a reduction ranks may have their buffers as they like. */
static void a_call_that_is_in_place_on_one_rank_is_none(void **state)
{
    (void)state;
    struct buffers b = {.comm = multi_comm(NULL)};
    ceclResult_t error = ceclInternalError;
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, COUNT * sizeof(float)));
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, COUNT * sizeof(float)));
    for (int i = 0; i < CALLS; i++)
        multi_ok(b.comm, ceclAllReduce(multi_rank == 0 ? b.recv : b.send, b.recv, COUNT, ceclFloat,
                                       ceclSum, b.comm, NULL));
    multi_ok(b.comm, ceclStreamSynchronize(b.comm, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(b.comm, ceclCommGetAsyncError(b.comm, &error));
    assert_int_equal(error, ceclSuccess);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(NULL, ceclCommDestroy(b.comm));
}

/* Except in reductions they must agree on being in place. Of two ranks one knows the other's call. */
static void a_gather_that_is_in_place_on_one_rank_is_named(void **state)
{
    (void)state;
    struct buffers b = {.comm = multi_comm(NULL)};
    const size_t all = (size_t)multi_nranks * COUNT;
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, COUNT * sizeof(float)));
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, all * sizeof(float)));
    MPI_Barrier(MPI_COMM_WORLD); /* none hears of the error while it allocates */
    const ceclResult_t result =
        ceclAllGather(multi_rank == 0 ? b.recv : b.send, b.recv, COUNT, ceclFloat, b.comm, NULL);
    assert_true(result == ceclSuccess || result == ceclInvalidUsage || result == ceclRemoteError);
    assert_int_not_equal(multi_async_within(b.comm, PROMPT), ceclSuccess);
    const char *words = ceclGetLastError(b.comm);
    if (!strstr(words, "ceclAllGather is in place on rank 0, and not on rank"))
        fail_msg("the error is: %s", words);
    (void)!ceclCommDestroy(b.comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_count_is_an_error_on_all_ranks),
        cmocka_unit_test(another_operation_is_an_error_on_all_ranks),
        cmocka_unit_test(another_collective_is_an_error_on_all_ranks),
        cmocka_unit_test(a_call_left_out_is_an_error_on_all_ranks),
        cmocka_unit_test(a_call_that_is_in_place_on_one_rank_is_none),
        cmocka_unit_test(a_gather_that_is_in_place_on_one_rank_is_named),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 120);
}
