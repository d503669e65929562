/* Ranks that make different small calls, without CECL_CHECK. Nothing refuses such a call before
 * it starts. But no rank takes its result as valid: all ranks get an error that names the
 * difference. */
#include "memory.h"

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
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, COUNT * sizeof(float)));
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, COUNT * sizeof(float)));
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
        multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, LARGE * sizeof(float)));
        multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, LARGE * sizeof(float)));
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

/* In a reduction, each rank may choose by itself whether its buffers are in place. */
TEST(a_call_that_is_in_place_on_one_rank_is_none)
{
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

/* In a collective that sends one block to all ranks, ranks may differ in placement, too. Rank 0
 * sends from private memory, which peers cannot read. Then only its announcement shows which
 * ranks are in place. */
struct gather {
    ceclComm_t comm;
    struct memory send, recv;
    unsigned char *host, *want;
};
#define BLOCK (COUNT * sizeof(float))

static void check(const struct gather *g, int index, size_t bytes)
{
    multi_get(g->comm, g->host, g->recv.at, bytes);
    if (memcmp(g->host, g->want, bytes) != 0)
        fail_msg("call %d: rank %d has other bytes", index, multi_rank);
}

static void poison(const struct gather *g)
{
    memset(g->host, 0x5A, g->recv.bytes);
    multi_put(g->comm, g->recv.at, g->host, g->recv.bytes);
}

static void gather_once(const struct gather *g, int index, bool in_place)
{
    unsigned char *own = g->recv.at + (size_t)multi_rank * BLOCK, *in = in_place ? own : g->send.at;
    for (int r = 0; r < multi_nranks; r++)
        multi_fill(g->want + (size_t)r * BLOCK, (uint64_t)index, r, BLOCK);
    poison(g);
    multi_put(g->comm, in, g->want + (size_t)multi_rank * BLOCK, BLOCK);
    if (index / 3 % multi_nranks == multi_rank)
        multi_pause_ms(index % 3);
    multi_ok(g->comm, ceclAllGather(in, g->recv.at, COUNT, ceclFloat, g->comm, NULL));
    check(g, index, (size_t)multi_nranks * BLOCK);
}

static void broadcast_once(const struct gather *g, int index, bool in_place)
{
    const int root = index % multi_nranks;
    unsigned char *in = in_place ? g->recv.at : g->send.at;
    multi_fill(g->want, (uint64_t)index, root, BLOCK);
    poison(g);
    if (multi_rank == root)
        multi_put(g->comm, in, g->want, BLOCK);
    multi_ok(g->comm, ceclBroadcast(in, g->recv.at, COUNT, ceclFloat, root, g->comm, NULL));
    check(g, index, BLOCK);
}

/* Runs all patterns of placement on the ranks other than 0, twice. `tuning`: rows for
 * CECL_TUNING, or NULL. */
static void move_in_every_pattern(const char *tuning)
{
    const size_t all = (size_t)multi_nranks * BLOCK;
    struct gather g = {.host = malloc(2 * all), .want = malloc(all)};
    assert_true(g.host && g.want);
    multi_tuning(tuning);
    g.comm = multi_comm(NULL);
    g.send = memory_new(g.comm, multi_rank == 0 ? MEMORY_PRIVATE : MEMORY_SHARED, BLOCK);
    g.recv = memory_new(g.comm, MEMORY_POOL, all);
    assert_true(g.recv.bytes <= 2 * all);
    for (int i = (2 << multi_nranks) - 1; i >= 0; i--) {
        const bool in_place = multi_rank > 0 && (i >> (multi_rank - 1) & 1) != 0;
        gather_once(&g, i, in_place);
        broadcast_once(&g, i, in_place);
    }
    memory_free(g.comm, &g.send);
    multi_ok(NULL, ceclCommDestroy(g.comm));
    multi_tuning(NULL);
    free(g.host);
    free(g.want);
}

TEST(a_gather_may_be_in_place_on_some_ranks)
{
    move_in_every_pattern(NULL);
    move_in_every_pattern("late.wait_ns * any 1000000000");
    move_in_every_pattern("late.wait_ns * any 0");
}

/* Ranks that are in place would pull, and the others cannot. */
TEST(so_may_a_pulled_broadcast)
{
    multi_setenv("CECL_DIRECTION", "pull");
    move_in_every_pattern("late.wait_ns * any 1000000000\nbroadcast.spread_min_bytes * any 1");
    multi_setenv("CECL_DIRECTION", NULL);
}

/* In an all-to-all, ranks must agree on placement. Of two ranks, one knows the other's call. */
TEST(an_all_to_all_that_is_in_place_on_one_rank_is_named)
{
    struct buffers b = {.comm = multi_comm(NULL)};
    const size_t all = (size_t)multi_nranks * COUNT;
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.send, all * sizeof(float)));
    multi_ok(b.comm, ceclMemAlloc(b.comm, (void **)&b.recv, all * sizeof(float)));
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
