/* Ranks that make different small calls, without CECL_CHECK. Nothing refuses such a call before
 * it starts. But no rank takes its result as valid: all ranks get an error that names the
 * difference. */
#include "multi.h"

#include <stdio.h>

#define COUNT 100 /* count of floats: a small call */
#define CALLS 12
#define ODD_CALL 5

enum difference { OTHER_COUNT, OTHER_OPERATION, OTHER_CALL, LEFT_OUT, DIFFERENCES };

struct buffers {
    ceclComm_t comm;
    float *send, *recv;
};

static ceclResult_t call(const struct buffers *b, size_t count, ceclRedOp_t op)
{
    return ceclAllReduce(b->send, b->recv, count, ceclFloat, op, b->comm, NULL);
}

/* All calls have different counts. The last rank makes call ODD_CALL in a different way. */
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

/* What all ranks say about it. "%d": the odd rank. */
static const char *const words_of[DIFFERENCES][3] = {
    [OTHER_COUNT] = {"ceclAllReduce, call 6 of this communicator: ranks differ in count: ",
                     "90 on rank ", "89 on rank %d"},
    [OTHER_OPERATION] = {"ceclAllReduce, call 6 of this communicator: ranks differ in op: ",
                         "ceclSum on rank ", "ceclMax on rank %d"},
    [OTHER_CALL] = {", call 6 of this communicator: ranks differ in the call: ",
                    "ceclAllReduce on rank ", "ceclReduceScatter on rank %d"},
    [LEFT_OUT] = {"ceclAllReduce, call 6 of this communicator: ranks differ in count: ",
                  "90 on rank ", "88 on rank %d"},
};

static void require_words(const char *message, const char *const words[3])
{
    for (int i = 0; i < 3; i++) {
        char expected[128];
        snprintf(expected, sizeof(expected), words[i], multi_nranks - 1);
        if (!strstr(message, expected))
            fail_msg("the error is: %s; expected: %s", message, expected);
    }
}

static void run(enum difference difference)
{
    struct buffers b = {.comm = multi_comm(NULL)};
    b.send = multi_alloc(b.comm, COUNT * sizeof(float));
    b.recv = multi_alloc(b.comm, COUNT * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD); /* a peer's failure must not hit an allocation */
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < CALLS && result == ceclSuccess; i++) {
        result = make(&b, difference, i);
        if (result == ceclSuccess)
            result = ceclStreamSynchronize(b.comm, NULL);
        if (i > ODD_CALL) /* this rank has seen that a peer made an earlier call differently */
            assert_int_not_equal(result, ceclSuccess);
    }
    /* a peer may still be in the call */
    assert_int_not_equal(multi_async_within(b.comm, PROMPT), ceclSuccess);
    require_words(ceclGetLastError(b.comm), words_of[difference]);
    (void)!ceclCommDestroy(b.comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A call that is not small is refused before a byte moves. */
enum { OTHER_ROOT, OTHER_TYPE, OTHER_LARGE_COUNT, ONE_MORE_CALL, LARGE_DIFFERENCES };
#define LARGE ((size_t)1 << 18)

static ceclResult_t make_large(const struct buffers *b, int difference)
{
    const bool odd = multi_rank == multi_nranks - 1;
    if (odd && difference == ONE_MORE_CALL) {
        multi_ok(b->comm, ceclGroupStart());
        multi_ok(b->comm,
                 ceclAllGather(b->recv + multi_rank, b->recv, 1, ceclFloat, b->comm, NULL));
        multi_ok(b->comm, ceclBroadcast(b->send, b->send, LARGE, ceclFloat, 0, b->comm, NULL));
        return ceclGroupEnd();
    }
    return ceclBroadcast(b->send, b->send,
                         odd && difference == OTHER_LARGE_COUNT ? LARGE - 1 : LARGE,
                         odd && difference == OTHER_TYPE ? ceclInt32 : ceclFloat,
                         odd && difference == OTHER_ROOT ? 1 : 0, b->comm, NULL);
}

TEST(large_calls_that_differ_are_told_apart)
{
    static const char *const words[LARGE_DIFFERENCES][3] = {
        [OTHER_ROOT] = {"ceclBroadcast", "ranks differ in root: ", "1 on rank %d"},
        [OTHER_TYPE] = {"ceclBroadcast", "ranks differ in datatype: ", "int32 on rank %d"},
        [OTHER_LARGE_COUNT] = {"ranks differ in count: ", "262144 on rank ", "262143 on rank %d"},
        [ONE_MORE_CALL] = {"ranks differ in the call: ", "ceclBroadcast on rank ",
                           "a group of 2 calls, first ceclAllGather on rank %d"},
    };
    for (int i = 0; i < LARGE_DIFFERENCES; i++) {
        struct buffers b = {.comm = multi_comm(NULL)};
        b.send = multi_alloc(b.comm, LARGE * sizeof(float));
        b.recv = multi_alloc(b.comm, LARGE * sizeof(float));
        MPI_Barrier(MPI_COMM_WORLD); /* a peer's failure must not hit an allocation */
        if (make_large(&b, i) == ceclSuccess)
            (void)!ceclStreamSynchronize(b.comm, NULL);
        assert_int_not_equal(multi_async_within(b.comm, PROMPT), ceclSuccess);
        require_words(ceclGetLastError(b.comm), words[i]);
        (void)!ceclCommDestroy(b.comm);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

TEST(another_count_is_an_error_on_all_ranks)
{
    run(OTHER_COUNT);
}

TEST(another_operation_is_an_error_on_all_ranks)
{
    run(OTHER_OPERATION);
}

TEST(another_collective_is_an_error_on_all_ranks)
{
    run(OTHER_CALL);
}

TEST(a_call_left_out_is_an_error_on_all_ranks)
{
    run(LEFT_OUT);
}

/* In an all-to-all, ranks must agree on placement. Of two ranks, one knows the other's call. */
TEST(an_all_to_all_that_is_in_place_on_one_rank_is_named)
{
    struct buffers b = {.comm = multi_comm(NULL)};
    const size_t all = (size_t)multi_nranks * COUNT;
    b.send = multi_alloc(b.comm, all * sizeof(float));
    b.recv = multi_alloc(b.comm, all * sizeof(float));
    MPI_Barrier(MPI_COMM_WORLD); /* no rank learns of the error while it allocates */
    const ceclResult_t result =
        ceclAlltoAll(multi_rank == 0 ? b.recv : b.send, b.recv, COUNT, ceclFloat, b.comm, NULL);
    assert_true(result == ceclSuccess || result == ceclInvalidUsage || result == ceclRemoteError);
    assert_int_not_equal(multi_async_within(b.comm, PROMPT), ceclSuccess);
    const char *words = ceclGetLastError(b.comm);
    if (!strstr(words, "ceclAlltoAll: ranks differ in placement: "))
        fail_msg("the error is: %s", words);
    (void)!ceclCommDestroy(b.comm);
    MPI_Barrier(MPI_COMM_WORLD);
}
