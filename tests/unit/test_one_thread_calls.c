/* One thread that makes the collectives of all ranks, on the host device: in a group, and one rank after
 * the other without a group. Buffers are in the pool, in malloc's memory, or in both. Plain loops compute
 * the expected results. */
#include <stdlib.h>
#include <string.h>

#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <stdbool.h>
#include <unistd.h>

#define RANKS_MOST 8
#define POISON (-7)

enum op {
    ALL_GATHER,
    ALL_GATHER_STRIDED,
    ALL_GATHER_V,
    ALL_TO_ALL,
    ALL_TO_ALL_STRIDED,
    ALL_TO_ALL_V_AT,
    BROADCAST,
    GATHER,
    SCATTER,
    REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE,
    BARRIER,
    OPS
};

enum memory { POOL, PRIVATE, MIXED };

/* All ranks of a communicator, with a pair of buffers for each collective. */
struct crowd {
    int nranks, round;
    enum memory memory;
    size_t count; /* elements of a block, an even number */
    ceclComm_t comms[RANKS_MOST];
    int *send[RANKS_MOST][OPS], *recv[RANKS_MOST][OPS];
};

static size_t elements(const struct crowd *crowd)
{
    return (size_t)crowd->nranks * crowd->count;
}

static bool is_in_pool(const struct crowd *crowd, int rank, int op, int which)
{
    return crowd->memory == POOL || (crowd->memory == MIXED && (rank + op / 2 + which) % 2 == 0);
}

/* All ranks allocate the same bytes in the pool, even if they do not use them. */
static void allocate(struct crowd *crowd, int op, int which)
{
    const size_t bytes = elements(crowd) * sizeof(int);
    int *pool[RANKS_MOST];
    assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int r = 0; r < crowd->nranks; r++)
        assert_int_equal(ceclMemAlloc(crowd->comms[r], (void **)&pool[r], bytes), ceclSuccess);
    assert_int_equal(ceclGroupEnd(), ceclSuccess);
    for (int r = 0; r < crowd->nranks; r++) {
        int *buffer = is_in_pool(crowd, r, op, which) ? pool[r] : malloc(bytes);
        assert_non_null(buffer);
        *(which ? &crowd->recv[r][op] : &crowd->send[r][op]) = buffer;
    }
}

static void open_crowd(struct crowd *crowd, int nranks, enum memory memory, size_t count)
{
    *crowd = (struct crowd){.nranks = nranks, .memory = memory, .count = count};
    assert_int_equal(ceclCommInitAll(crowd->comms, nranks, NULL), ceclSuccess);
    for (int op = 0; op < OPS; op++)
        for (int which = 0; which < 2; which++)
            allocate(crowd, op, which);
}

static void close_crowd(struct crowd *crowd)
{
    for (int r = 0; r < crowd->nranks; r++)
        assert_int_equal(ceclCommDestroy(crowd->comms[r]), ceclSuccess);
    for (int r = 0; r < crowd->nranks; r++)
        for (int op = 0; op < OPS; op++) {
            if (!is_in_pool(crowd, r, op, 0))
                free(crowd->send[r][op]);
            if (!is_in_pool(crowd, r, op, 1))
                free(crowd->recv[r][op]);
        }
}

static int root_of(const struct crowd *crowd, int op)
{
    return (crowd->round + op) % crowd->nranks;
}

static int value(const struct crowd *crowd, int op, int rank, size_t index)
{
    return (int)((unsigned)crowd->round * 7919u + (unsigned)op * 104729u +
                 (unsigned)rank * 1299709u + (unsigned)index * 31u) %
           100000;
}

/* Elements that a rank contributes to the variable all-gather, and that it sends to another rank. */
static size_t part_of(const struct crowd *crowd, int rank)
{
    return rank % 2 == 0 ? crowd->count : crowd->count / 2;
}

static size_t sent_to(const struct crowd *crowd, int from, int to)
{
    return crowd->count - (size_t)((3 * from + to) % (int)crowd->count);
}

static ceclResult_t all_gather_v(const struct crowd *crowd, int rank)
{
    size_t counts[RANKS_MOST], displs[RANKS_MOST];
    for (int r = 0; r < crowd->nranks; r++) {
        counts[r] = part_of(crowd, r);
        displs[r] = (size_t)r * crowd->count;
    }
    return ceclAllGatherv(crowd->send[rank][ALL_GATHER_V], counts[rank],
                          crowd->recv[rank][ALL_GATHER_V], counts, displs, ceclInt,
                          crowd->comms[rank], NULL);
}

static ceclResult_t all_to_all_v_at(const struct crowd *crowd, int rank)
{
    size_t sends[RANKS_MOST], receives[RANKS_MOST], displs[RANKS_MOST], mine[RANKS_MOST];
    for (int r = 0; r < crowd->nranks; r++) {
        sends[r] = sent_to(crowd, rank, r);
        receives[r] = sent_to(crowd, r, rank);
        displs[r] = (size_t)r * crowd->count;
        mine[r] = (size_t)rank * crowd->count;
    }
    return ceclAlltoAllvAt(crowd->send[rank][ALL_TO_ALL_V_AT], sends, displs,
                           crowd->recv[rank][ALL_TO_ALL_V_AT], receives, displs, mine, ceclInt,
                           crowd->comms[rank], NULL);
}

static ceclResult_t call(const struct crowd *crowd, int op, int rank)
{
    const size_t n = crowd->count;
    const ceclStrided_t rows = {.width = n / 2, .rows = 2};
    const int *send = crowd->send[rank][op];
    int *recv = crowd->recv[rank][op];
    ceclComm_t comm = crowd->comms[rank];
    const int root = root_of(crowd, op);
    switch (op) {
    case ALL_GATHER: return ceclAllGather(send, recv, n, ceclInt, comm, NULL);
    case ALL_GATHER_STRIDED: return ceclAllGatherStrided(send, recv, &rows, ceclInt, comm, NULL);
    case ALL_GATHER_V: return all_gather_v(crowd, rank);
    case ALL_TO_ALL: return ceclAlltoAll(send, recv, n, ceclInt, comm, NULL);
    case ALL_TO_ALL_STRIDED: return ceclAlltoAllStrided(send, recv, &rows, ceclInt, comm, NULL);
    case ALL_TO_ALL_V_AT: return all_to_all_v_at(crowd, rank);
    case BROADCAST: return ceclBroadcast(send, recv, n, ceclInt, root, comm, NULL);
    case GATHER: return ceclGather(send, recv, n, ceclInt, root, comm, NULL);
    case SCATTER: return ceclScatter(send, recv, n, ceclInt, root, comm, NULL);
    case REDUCE_SCATTER: return ceclReduceScatter(send, recv, n, ceclInt, ceclSum, comm, NULL);
    case ALL_REDUCE: return ceclAllReduce(send, recv, n, ceclInt, ceclSum, comm, NULL);
    case REDUCE: return ceclReduce(send, recv, n, ceclInt, ceclSum, root, comm, NULL);
    default: return ceclBarrier(comm, NULL);
    }
}

static int sum(const struct crowd *crowd, int op, size_t index)
{
    int total = 0;
    for (int r = 0; r < crowd->nranks; r++)
        total += value(crowd, op, r, index);
    return total;
}

/* Where element `i` of block `block` lies in the sendbuff of a strided all-to-all. */
static size_t strided_index(const struct crowd *crowd, int block, size_t i)
{
    const size_t width = crowd->count / 2;
    return i / width * (size_t)crowd->nranks * width + (size_t)block * width + i % width;
}

/* The expected element `at` of a rank's recvbuff. */
static int expected_moved(const struct crowd *crowd, int op, int rank, size_t at)
{
    const size_t n = crowd->count, width = n / 2, mine = (size_t)rank * n;
    const int from = (int)(at / n);
    const size_t i = at % n;
    switch (op) {
    case ALL_GATHER: return value(crowd, op, from, i);
    case ALL_GATHER_STRIDED:
        return value(crowd, op, (int)(at / width) % crowd->nranks,
                     at / elements(crowd) * n + at / (width * (size_t)crowd->nranks) * width +
                         at % width);
    case ALL_GATHER_V: return i < part_of(crowd, from) ? value(crowd, op, from, i) : POISON;
    case ALL_TO_ALL: return value(crowd, op, from, mine + i);
    case ALL_TO_ALL_STRIDED: return value(crowd, op, from, strided_index(crowd, rank, i));
    case ALL_TO_ALL_V_AT:
        return i < sent_to(crowd, from, rank) ? value(crowd, op, from, mine + i) : POISON;
    case GATHER: return rank == root_of(crowd, op) ? value(crowd, op, from, i) : POISON;
    default: return POISON;
    }
}

static int expected(const struct crowd *crowd, int op, int rank, size_t at)
{
    const int root = root_of(crowd, op);
    const size_t mine = (size_t)rank * crowd->count;
    if (op < BROADCAST || op == GATHER)
        return expected_moved(crowd, op, rank, at);
    if (at >= crowd->count)
        return POISON;
    switch (op) {
    case BROADCAST: return value(crowd, op, root, at);
    case SCATTER: return value(crowd, op, root, mine + at);
    case REDUCE_SCATTER: return sum(crowd, op, mine + at);
    case ALL_REDUCE: return sum(crowd, op, at);
    case REDUCE: return rank == root ? sum(crowd, op, at) : POISON;
    default: return POISON;
    }
}

static void prepare(const struct crowd *crowd)
{
    for (int r = 0; r < crowd->nranks; r++)
        for (int op = 0; op < OPS; op++)
            for (size_t i = 0; i < elements(crowd); i++) {
                crowd->send[r][op][i] = value(crowd, op, r, i);
                crowd->recv[r][op][i] = POISON;
            }
}

static void make(const struct crowd *crowd, int op, int rank)
{
    if (call(crowd, op, rank) != ceclSuccess)
        fail_msg("op %d, rank %d of %d, round %d: %s", op, rank, crowd->nranks, crowd->round,
                 ceclGetLastError(NULL));
}

static void check(const struct crowd *crowd)
{
    for (int r = 0; r < crowd->nranks; r++)
        if (ceclStreamSynchronize(crowd->comms[r], NULL) != ceclSuccess)
            fail_msg("rank %d of %d, round %d: %s", r, crowd->nranks, crowd->round,
                     ceclGetLastError(NULL));
    for (int r = 0; r < crowd->nranks; r++)
        for (int op = 0; op < OPS; op++)
            for (size_t i = 0; i < elements(crowd); i++)
                if (crowd->recv[r][op][i] != expected(crowd, op, r, i))
                    fail_msg("op %d, rank %d of %d, round %d: element %zu is %d, %d expected", op,
                             r, crowd->nranks, crowd->round, i, crowd->recv[r][op][i],
                             expected(crowd, op, r, i));
}

/* In a group: one group has all collectives of all ranks. Without a group: each collective is called for
 * one rank after the other, starting with another rank each time. */
static void call_all(const struct crowd *crowd, bool in_group)
{
    if (in_group)
        assert_int_equal(ceclGroupStart(), ceclSuccess);
    for (int op = 0; op < OPS; op++)
        for (int r = 0; r < crowd->nranks; r++)
            make(crowd, op, (r + crowd->round + op) % crowd->nranks);
    if (in_group && ceclGroupEnd() != ceclSuccess)
        fail_msg("%d ranks, round %d: %s", crowd->nranks, crowd->round, ceclGetLastError(NULL));
}

#define SMALL 6
#define LARGE 2000
#define IN_CHUNKS 50000
#ifdef __SANITIZE_THREAD__ /* the sanitizer makes calls ten times slower */
#define RANKS_STEP 3
#else
#define RANKS_STEP 1
#endif

/* Rounds with blocks of `count` elements alternate with rounds of small blocks. */
static void play(int nranks, enum memory memory, size_t count, int rounds, bool in_group)
{
    struct crowd crowd;
    open_crowd(&crowd, nranks, memory, count);
    for (; crowd.round < rounds; crowd.round++) {
        crowd.count = crowd.round % 2 == 0 ? count : SMALL;
        prepare(&crowd);
        call_all(&crowd, in_group);
        check(&crowd);
    }
    close_crowd(&crowd);
}

static void play_in_a_group(enum memory memory)
{
    play(3, memory, LARGE, 12, true);
    play(8, memory, LARGE, 4, true);
    play(3, memory, IN_CHUNKS, 2, true);
}

static void play_rank_after_rank(enum memory memory)
{
    for (int nranks = 2; nranks <= RANKS_MOST; nranks += RANKS_STEP)
        play(nranks, memory, LARGE, 4, false);
    play(3, memory, IN_CHUNKS, 2, false);
}

TEST(pool_memory_in_a_group)
{
    play_in_a_group(POOL);
}

TEST(private_memory_in_a_group)
{
    play_in_a_group(PRIVATE);
}

TEST(mixed_memory_in_a_group)
{
    play_in_a_group(MIXED);
}

/* The ranks of one group compare their calls at the same time. */
TEST(compared_calls_in_a_group)
{
    setenv("CECL_CHECK", "1", 1);
    play(3, MIXED, LARGE, 4, true);
    play(8, PRIVATE, LARGE, 2, true);
    unsetenv("CECL_CHECK");
}

TEST(pool_memory_rank_after_rank)
{
    play_rank_after_rank(POOL);
}

TEST(private_memory_rank_after_rank)
{
    play_rank_after_rank(PRIVATE);
}

TEST(mixed_memory_rank_after_rank)
{
    play_rank_after_rank(MIXED);
}

int main(void)
{
    setenv("CECL_DEVICE", "host", 1);
    setenv("CECL_TIMEOUT_MS", "60000", 1);
    alarm(280);
    return tests_run(NULL, NULL);
}
