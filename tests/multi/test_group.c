/* Groups: many calls as one. tests/plan/test_apart.c and tests/fuzz/fuzz_api.c test which calls share memory. */
#include "random_call.h"

#define BUFFERS 3
#define BLOCK 640
#define ALIGNED 512 /* bytes; allocations of this size may be neighbours on a GPU */

static ceclComm_t comm;
static unsigned char *recv_buffer[BUFFERS], *send_buffer[BUFFERS];
static size_t all;

static int set_up(void **state)
{
    all = (size_t)multi_nranks * BLOCK;
    comm = multi_comm(NULL);
    for (int i = 0; i < BUFFERS; i++) {
        recv_buffer[i] = multi_alloc(comm, all);
        send_buffer[i] = multi_alloc(comm, all);
        multi_fill_device(comm, send_buffer[i], (uint64_t)i, multi_rank, all);
        multi_guard(comm, recv_buffer[i], all);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

static int tear_down(void **state)
{
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

static ceclResult_t call(int i, ceclStream_t stream)
{
    return ceclAllGather(send_buffer[i], recv_buffer[i], BLOCK, ceclUint8, comm, stream);
}

static void check(int i)
{
    for (int r = 0; r < multi_nranks; r++)
        multi_check_device(comm, recv_buffer[i] + (size_t)r * BLOCK, (uint64_t)i, r, BLOCK, BLOCK);
}

/* The communicator is usable: whole groups of all kinds of calls give the right bytes. */
static void works(uint64_t seed)
{
    random_groups(comm, ALL_GATHER, KINDS - 1, RANDOM_MOST, 1, seed);
}

TEST_BETWEEN(nested_empty_and_single_groups_are_right, set_up, tear_down)
{
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(0, NULL));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclAllGather(NULL, NULL, 0, ceclUint8, comm, NULL));
    multi_ok(comm, call(1, NULL));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(2, NULL));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    for (int i = 0; i < 3; i++)
        check(i);
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "no ceclGroupStart");
}

/* All groups use the same bounce buffers. So a wrong group differs from a right one, which was checked before, only in
 * the program's own buffers, and these must be checked again. */
TEST_BETWEEN(calls_that_share_private_memory_are_refused_again_and_again, set_up, tear_down)
{
    struct memory one = memory_new(comm, MEMORY_PRIVATE, all),
                  other = memory_new(comm, MEMORY_PRIVATE, all);
    for (int i = 0; i < 16; i++) {
        const bool apart = i < 8;
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, ceclAllGather(send_buffer[0], one.at, BLOCK, ceclUint8, comm, NULL));
        multi_ok(comm, ceclAllGather(send_buffer[1], apart ? other.at : one.at, BLOCK, ceclUint8,
                                     comm, NULL));
        if (apart)
            multi_ok(comm, ceclGroupEnd());
        else
            multi_refused(
                comm, ceclGroupEnd(), ceclInvalidArgument,
                "calls 1 (ceclAllGather) and 2 (ceclAllGather) of the group share memory");
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    }
    memory_free(comm, &one);
    memory_free(comm, &other);
    works(12);
}

/* The number of copies in a group of two gathers, whose private recvbuffs begin `second` bytes apart. */
static int copies_of_two(unsigned char *recv, size_t second)
{
    ceclExplanation_t e;
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(send_buffer[0], recv, ALIGNED, ceclUint8, comm, NULL));
    multi_ok(comm, ceclAllGather(send_buffer[1], recv + second, ALIGNED, ceclUint8, comm, NULL));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    return e.copies;
}

/* Two allocations may be neighbours, and CUDA refuses a copy that reaches over both. */
TEST_BETWEEN(private_buffers_side_by_side_are_copied_one_by_one, set_up, tear_down)
{
    const size_t each = ALIGNED * (size_t)multi_nranks;
    struct memory both = memory_new(comm, MEMORY_PRIVATE, 3 * each);
    assert_int_equal(copies_of_two(both.at, each), copies_of_two(both.at, 2 * each));
    memory_free(comm, &both);
    struct memory one = memory_new(comm, MEMORY_PRIVATE, each),
                  other = memory_new(comm, MEMORY_PRIVATE, each);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclAllGather(send_buffer[0], one.at, ALIGNED, ceclUint8, comm, NULL));
    multi_ok(comm, ceclAllGather(send_buffer[1], other.at, ALIGNED, ceclUint8, comm, NULL));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    memory_free(comm, &one);
    memory_free(comm, &other);
    works(13);
}

TEST_BETWEEN(two_streams_are_refused, set_up, tear_down)
{
    ceclStream_t stream = multi_stream(comm);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(0, NULL));
    multi_refused(comm, call(1, stream), ceclInvalidUsage, "one stream");
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "one stream");
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    works(13);
}
