/* Reductions that are large, in groups, or follow each other. test_collectives.c has random ones, whose results equal
 * those of plain loops bit for bit. */
#include "random_call.h"

#define MOST 3000 /* elements of a block */
#define POISON 0x5A

static ceclComm_t comm;
static unsigned char *recv_buffer, *send_buffer, *host;
static size_t room; /* bytes of each */

static void open_comm(const ceclConfig_t *config)
{
    comm = multi_comm(config);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, room));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, room));
}

static int set_up(void **state)
{
    room = (size_t)multi_nranks * MOST * 8 + 256;
    host = malloc(room);
    assert_non_null(host);
    open_comm(NULL);
    return 0;
}

static int tear_down(void **state)
{
    free(host);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

static void reopen(int64_t staging)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = staging;
    multi_ok(NULL, ceclCommDestroy(comm));
    open_comm(&config);
}

/* Element i of a rank's input in one round. */
static uint32_t large_element(int rank, uint32_t round, size_t i)
{
    return (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + round;
}

/* Checks that this rank has the sum over all ranks. The message names the first and the last
 * wrong element, which tells whose block is wrong. All ranks fail together, and stay in step. */
static void check_large(uint32_t *got, const uint32_t *recv, size_t count, uint32_t round,
                        const char *after)
{
    size_t wrong = 0, first = 0, last = 0;
    int any;
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, got, recv, count * 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t want = 0;
        for (int r = 0; r < multi_nranks; r++)
            want += large_element(r, round, i);
        if (got[i] == want)
            continue;
        first = wrong++ > 0 ? first : i;
        last = i;
    }
    if (wrong > 0)
        print_error("rank %d, round %u, after the %s: %zu of %zu elements are wrong, %zu to %zu; "
                    "the first is %#x, its input %#x\n",
                    multi_rank, round, after, wrong, count, first, last, got[first],
                    large_element(multi_rank, round, first));
    any = wrong > 0;
    MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    assert_int_equal(any, 0);
}

/* Round 0 is a sum out of place. Round 1 is a sum in place, then a maximum in place, which must
 * leave the sum unchanged: the second call follows at once, so every rank must have finished the
 * first. Round 2 is the same, with a check between the calls. */
static void run_large(const struct multi_crowd *crowd, size_t count)
{
    uint32_t *send, *recv, *plain = malloc(count * 4);
    assert_non_null(plain);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send, count * 4));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, count * 4));
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t *const input = round ? recv : send;
        for (size_t i = 0; i < count; i++)
            plain[i] = large_element(multi_rank, round, i);
        multi_put(comm, input, plain, count * 4);
        memset(plain, POISON, count * 4);
        if (!round)
            multi_put(comm, recv, plain, count * 4);
        MPI_Barrier(MPI_COMM_WORLD); /* no peer may write before this rank has poisoned */
        if (crowd)
            multi_crowd_come(crowd, 4);
        multi_ok(comm, ceclAllReduce(input, recv, count, ceclUint32, ceclSum, comm, NULL));
        if (round != 1)
            check_large(plain, recv, count, round, "sum");
        if (round) {
            multi_ok(comm, ceclAllReduce(recv, recv, count, ceclUint32, ceclMax, comm, NULL));
            check_large(plain, recv, count, round, "maximum");
        }
    }
    multi_ok(comm, ceclMemFree(comm, recv));
    multi_ok(comm, ceclMemFree(comm, send));
    free(plain);
}

/* Large odd blocks, read at the peers. The SMs that reduced them write the results to all ranks;
 * beyond 32 MiB, all but the end is pushed. By the default number of SMs and by many. Then other
 * copies fill the links, so that data is longer on its way; on GPUs this is repeated. */
TEST_BETWEEN(large_all_reduces_are_right, set_up, tear_down)
{
    const int times = multi_on_gpus(comm) ? 6 : 1;
    struct multi_crowd crowd;
    multi_crowd_open(&crowd, multi_on_gpus(comm) ? 8 << 20 : 64 << 10);
    for (int s = 0; s < 2 + times; s++)
        for (int mib = 5; mib <= 32; mib += 27) {
            ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
            options.maxSms = s == 1 ? 32 : CECL_UNDEF;
            multi_ok(comm, ceclSetOptions(comm, &options));
            run_large(s < 2 ? NULL : &crowd, ((size_t)mib << 20) / 4 + 4321);
        }
    multi_crowd_close(&crowd);
}

/* Inputs are read at the peers; staging has room for all calls, then for some of them at a time, and then
 * only for chunks of most of them. */
TEST_BETWEEN(a_group_gives_the_bits_of_its_calls_alone, set_up, tear_down)
{
    static const int ways[] = {CECL_DIRECTION_AUTO, CECL_DIRECTION_PUSH, CECL_DIRECTION_PULL};
    const int64_t stagings[] = {CECL_UNDEF, 4096 * (int64_t)multi_nranks, 4096};
    for (int s = 0; s < 3; s++) {
        reopen(stagings[s]);
        for (int way = 0; way < 3; way++) {
            ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
            options.direction = ways[way];
            multi_ok(comm, ceclSetOptions(comm, &options));
            random_groups(comm, ALL_REDUCE, REDUCE, RANDOM_GROUP, multi_share(24),
                          (uint64_t)(71 + s));
        }
    }
}

TEST_BETWEEN(a_group_says_which_reductions_share_barriers, set_up, tear_down)
{
    const size_t block = 500;
    ceclExplanation_t e;
    multi_ok(comm, ceclGroupStart());
    for (size_t i = 0; i < 4; i++)
        multi_ok(comm, ceclReduceScatter(send_buffer, recv_buffer + i * block, block, ceclInt8,
                                         ceclSum, comm, NULL));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    if (!strstr(e.path, "group of 4 calls, 0 copies, 4 reductions in 1 bundle"))
        fail_msg("\"%s\"", e.path);
    assert_int_equal(e.barriers, 2);
    assert_int_equal(e.reductions, 4);
}

/* The gradients of a sharded training: reduced and scattered in place, and gathered again in place. */
static ceclResult_t scatter(void *buffer, size_t count)
{
    int32_t *const all = buffer;
    return ceclReduceScatter(all, all + (size_t)multi_rank * count, count, ceclInt32, ceclSum, comm,
                             NULL);
}
static ceclResult_t gather(void *buffer, size_t count)
{
    int32_t *const all = buffer;
    return ceclAllGather(all + (size_t)multi_rank * count, all, count, ceclInt32, comm, NULL);
}

/* Calls of a group have no order, so in one group the two are refused. Calls of successive groups have an order. */
TEST_BETWEEN(what_a_call_reduces_is_gathered_in_the_next_group, set_up, tear_down)
{
    const size_t count = 300, all = count * (size_t)multi_nranks;
    int32_t *values = (int32_t *)(void *)host;
    unsigned char *const buffers[] = {recv_buffer, send_buffer};
    for (size_t i = 0; i < all; i++)
        values[i] = (int32_t)i + multi_rank;
    for (int b = 0; b < 2; b++)
        multi_put(comm, buffers[b], values, all * 4);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, scatter(recv_buffer, count));
    multi_ok(comm, gather(recv_buffer, count));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidArgument, "share memory");
    for (int turn = 0; turn < 3; turn++)
        for (int gathers = 0; gathers < 2; gathers++) {
            multi_ok(comm, ceclGroupStart());
            for (int b = 0; b < 2; b++)
                multi_ok(comm, (gathers ? gather : scatter)(buffers[b], count));
            multi_ok(comm, ceclGroupEnd());
        }
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    const int32_t n = multi_nranks, ranks = n * (n - 1) / 2;
    for (int b = 0; b < 2; b++) {
        multi_get(comm, values, buffers[b], all * 4);
        for (size_t i = 0; i < all; i++)
            assert_int_equal(values[i], (n * (int32_t)i + ranks) * n * n);
    }
}

/* Chunked calls enqueued one after the other, on two streams. */
TEST_BETWEEN(calls_that_follow_each_other_keep_their_order, set_up, tear_down)
{
    const size_t count = 2000;
    int32_t *values = (int32_t *)(void *)host;
    ceclStream_t streams[2] = {NULL, NULL};
    reopen(4096);
    multi_ok(comm, ceclStreamCreate(comm, &streams[1]));
    for (size_t i = 0; i < count; i++)
        values[i] = 1;
    multi_put(comm, recv_buffer, values, count * 4);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < 6; turn++)
        multi_ok(comm, ceclAllReduce(recv_buffer, recv_buffer, count, ceclInt32, ceclSum, comm,
                                     streams[turn % 2]));
    for (int s = 0; s < 2; s++)
        multi_ok(comm, ceclStreamSynchronize(comm, streams[s]));
    multi_get(comm, values, recv_buffer, count * 4);
    int32_t want = 1;
    for (int turn = 0; turn < 6; turn++)
        want *= multi_nranks;
    for (size_t i = 0; i < count; i++)
        assert_int_equal(values[i], want);
    multi_ok(comm, ceclStreamDestroy(comm, streams[1]));
}

TEST_BETWEEN(without_sms_they_are_refused, set_up, tear_down)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_NEVER;
    multi_ok(comm, ceclSetOptions(comm, &options));
    multi_refused(comm,
                  ceclAllReduce(send_buffer, recv_buffer, 900, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    /* A single element is reduced by one rank; all the others refuse with that rank. */
    multi_refused(comm, ceclReduce(send_buffer, recv_buffer, 1, ceclInt32, ceclSum, 0, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    multi_ok(comm, ceclSetOptions(comm, NULL));
    random_groups(comm, ALL_REDUCE, REDUCE, 1, 20, 4);
}
