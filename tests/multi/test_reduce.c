/* Large reductions, and explanations of groups of reductions. test_collectives.c compares random reductions bit for bit. */
#include "buffers.h"
#include "random_call.h"

#define ROOM 8192 /* bytes of each buffer */
#define POISON 0x5A

static int set_up(void **state)
{
    buffers_open(ROOM, NULL, NULL);
    return 0;
}

/* A crowd of copies keeps links and copy engines busy: all-gathers, on a communicator and a stream of their own. */
static struct {
    ceclComm_t comm;
    ceclStream_t stream;
    unsigned char *blocks;
    size_t bytes;
} crowd;

static void crowd_open(size_t bytes)
{
    crowd.comm = multi_comm(NULL);
    crowd.bytes = bytes;
    crowd.stream = multi_stream(crowd.comm);
    crowd.blocks = multi_alloc(crowd.comm, (size_t)multi_nranks * bytes);
}

static void crowd_come(int times)
{
    const unsigned char *mine = crowd.blocks + (size_t)multi_rank * crowd.bytes;
    for (int i = 0; i < times; i++)
        multi_ok(crowd.comm, ceclAllGather(mine, crowd.blocks, crowd.bytes, ceclUint8, crowd.comm,
                                           crowd.stream));
}

/* Element i of a rank's input in one round. */
static uint32_t large_element(int rank, uint32_t round, size_t i)
{
    return (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + round;
}

/* Checks that this rank has the sum over all ranks. The message names the first and the last wrong element, which tell
 * whose block is wrong. All ranks fail together, and stay in step. */
static void check_large(uint32_t *got, const uint32_t *recv, size_t count, uint32_t round,
                        const char *after)
{
    size_t wrong = 0, first = 0, last = 0;
    uint32_t n = (uint32_t)multi_nranks, want = 0; /* the part of the sum that depends on ranks */
    int any;
    for (int r = 0; r < multi_nranks; r++)
        want += large_element(r, 0, 0);
    multi_ok(comm, ceclStreamSynchronize(comm, NULL));
    multi_get(comm, got, recv, count * 4);
    for (size_t i = 0; i < count; i++) {
        if (got[i] == want + n * large_element(0, round, i)) /* modulo 2^32 */
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

/* Round 0: a sum out of place. Round 1: a sum in place, and at once a maximum in place of the sums. The ranks' sums are
 * equal, so the maximum changes nothing unless it begins too early. Round 2: as round 1, with a check between the calls. */
static void run_large(bool crowded, size_t count)
{
    uint32_t *send, *recv, *plain = malloc(count * 4);
    assert_non_null(plain);
    send = multi_alloc(comm, count * 4);
    recv = multi_alloc(comm, count * 4);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t *const input = round ? recv : send;
        for (size_t i = 0; i < count; i++)
            plain[i] = large_element(multi_rank, round, i);
        multi_put(comm, input, plain, count * 4);
        memset(plain, POISON, count * 4);
        if (!round)
            multi_put(comm, recv, plain, count * 4);
        MPI_Barrier(MPI_COMM_WORLD); /* no peer may write before this rank has poisoned */
        if (crowded)
            crowd_come(4);
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

/* Large blocks of odd sizes, which SMs read at the peers. These SMs write the results to all ranks; beyond 32 MiB copy
 * engines push all but the end. The crowd's copies fill the links, so data takes longer. On GPUs runs with a crowd follow
 * two runs without one, the second with more SMs. */
TEST_BETWEEN(large_all_reduces_are_right, set_up, tear_down)
{
    const bool on_gpus = multi_on_gpus(comm);
    crowd_open(on_gpus ? 8 << 20 : 64 << 10);
    for (int s = on_gpus ? 0 : 2; s < (on_gpus ? 8 : 3); s++)
        for (int mib = 5; mib <= 32; mib += 27) {
            multi_options(comm, CECL_UNDEF, CECL_UNDEF, s == 1 ? 32 : CECL_UNDEF);
            run_large(s >= 2, ((size_t)mib << 20) / 4 + 4321);
        }
    multi_ok(NULL, ceclCommDestroy(crowd.comm));
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

TEST_BETWEEN(without_sms_they_are_refused, set_up, tear_down)
{
    multi_options(comm, CECL_SM_NEVER, CECL_UNDEF, CECL_UNDEF);
    multi_refused(comm,
                  ceclAllReduce(send_buffer, recv_buffer, 900, ceclInt32, ceclSum, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    /* Only one rank has to reduce the single element, and needs an SM for it; all ranks refuse. */
    multi_refused(comm, ceclReduce(send_buffer, recv_buffer, 1, ceclInt32, ceclSum, 0, comm, NULL),
                  ceclInvalidUsage, "CECL_SM_NEVER");
    multi_ok(comm, ceclSetOptions(comm, NULL));
    random_groups(comm, ALL_REDUCE, REDUCE, 1, 20, 4);
}
