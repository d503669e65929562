/* Ranks make different calls, without CECL_CHECK. So small calls start, and bytes of large ones move, before the library
 * notices. But no rank takes its result as valid: all get an error that names the difference. */
#include "multi.h"

#define COUNT 100 /* floats: a small call */
#define LARGE ((size_t)1 << 18)
#define CALLS 12
#define ODD_CALL 5

static ceclComm_t comm;
static float *send, *recv;

/* A rank's small calls all have different counts, so a call that it leaves out shows as another count. */
static ceclResult_t reduce(size_t count, ceclRedOp_t op)
{
    return ceclAllReduce(send, recv, count, ceclFloat, op, comm, NULL);
}

static ceclResult_t broadcast(size_t count, ceclDataType_t type, int root)
{
    return ceclBroadcast(send, send, count, type, root, comm, NULL);
}

static ceclResult_t group_of_two(void)
{
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(recv + multi_rank, recv, 1, ceclFloat, comm, NULL));
    multi_ok(comm, broadcast(LARGE, ceclFloat, 0));
    return ceclGroupEnd();
}

enum difference {
    OTHER_COUNT,
    OTHER_OPERATION,
    OTHER_CALL,
    LEFT_OUT,
    OTHER_ROOT,
    OTHER_TYPE,
    OTHER_LARGE_COUNT,
    ONE_MORE_CALL,
    OTHER_PLACEMENT,
    DIFFERENCES
};

static ceclResult_t make_odd(enum difference difference, size_t count)
{
    switch (difference) {
    case OTHER_COUNT: return reduce(count - 1, ceclSum);
    case OTHER_OPERATION: return reduce(count, ceclMax);
    case OTHER_CALL:
        return ceclReduceScatter(send, recv, count / (size_t)multi_nranks, ceclFloat, ceclSum, comm,
                                 NULL);
    case LEFT_OUT: return ceclSuccess;
    case OTHER_ROOT: return broadcast(LARGE, ceclFloat, 1);
    case OTHER_TYPE: return broadcast(LARGE, ceclInt32, 0);
    case OTHER_LARGE_COUNT: return broadcast(LARGE - 1, ceclFloat, 0);
    case ONE_MORE_CALL: return group_of_two();
    default: return ceclAlltoAll(recv, recv, COUNT, ceclFloat, comm, NULL);
    }
}

static ceclResult_t make(enum difference difference, int index)
{
    const size_t count = COUNT - 2 * (size_t)index;
    if (multi_rank == multi_nranks - 1 && index == ODD_CALL)
        return make_odd(difference, count);
    return difference == OTHER_PLACEMENT ? ceclAlltoAll(send, recv, COUNT, ceclFloat, comm, NULL)
           : difference >= OTHER_ROOT    ? broadcast(LARGE, ceclFloat, 0)
                                         : reduce(count, ceclSum);
}

/* Words of the error on every rank. "%d": the odd rank. */
static const char *const words_of[DIFFERENCES][3] = {
    [OTHER_COUNT] = {"ceclAllReduce, call 6 of this communicator: ranks differ in count: ",
                     "90 on rank ", "89 on rank %d"},
    [OTHER_OPERATION] = {"ceclAllReduce, call 6 of this communicator: ranks differ in op: ",
                         "ceclSum on rank ", "ceclMax on rank %d"},
    [OTHER_CALL] = {", call 6 of this communicator: ranks differ in the call: ",
                    "ceclAllReduce on rank ", "ceclReduceScatter on rank %d"},
    [LEFT_OUT] = {"ceclAllReduce, call 6 of this communicator: ranks differ in count: ",
                  "90 on rank ", "88 on rank %d"},
    [OTHER_ROOT] = {"ceclBroadcast", "ranks differ in root: ", "1 on rank %d"},
    [OTHER_TYPE] = {"ceclBroadcast", "ranks differ in datatype: ", "int32 on rank %d"},
    [OTHER_LARGE_COUNT] = {"ranks differ in count: ", "262144 on rank ", "262143 on rank %d"},
    [ONE_MORE_CALL] = {"ranks differ in the call: ", "ceclBroadcast on rank ",
                       "a group of 2 calls, first ceclAllGather on rank %d"},
    [OTHER_PLACEMENT] = {"ceclAlltoAll", "ranks differ in placement: ", "on rank "},
};

TEST(calls_that_differ_are_an_error_on_all_ranks)
{
    for (enum difference difference = 0; difference < DIFFERENCES; difference++) {
        ceclResult_t result = ceclSuccess;
        comm = multi_comm(NULL);
        send = multi_alloc(comm, LARGE * sizeof(float));
        recv = multi_alloc(comm, LARGE * sizeof(float));
        MPI_Barrier(MPI_COMM_WORLD); /* a peer's failure must not hit an allocation */
        for (int i = difference < OTHER_ROOT ? 0 : ODD_CALL; i < CALLS && result == ceclSuccess;
             i++) {
            result = make(difference, i);
            if (result == ceclSuccess)
                result = ceclStreamSynchronize(comm, NULL);
            if (i > ODD_CALL) /* this rank knows that a peer made an earlier call differently */
                assert_int_not_equal(result, ceclSuccess);
        }
        /* A peer may still wait in the call, and report the difference later. */
        assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
        for (int i = 0; i < 3; i++) {
            char expected[128];
            snprintf(expected, sizeof(expected), words_of[difference][i], multi_nranks - 1);
            if (!strstr(ceclGetLastError(comm), expected))
                fail_msg("the error is: %s; expected: %s", ceclGetLastError(comm), expected);
        }
        (void)!ceclCommDestroy(comm);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
