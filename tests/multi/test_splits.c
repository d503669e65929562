/* Calls whose splits are in device memory, eager and captured by turns; test_collectives.c has random splits.
 * Blocks that do not fit cause an error with their name on every rank. The
 * communicator is usable after a refusal. */
#include "buffers.h"

#include <stdio.h>

#define RANKS 16
#define ROWS 40 /* most rows of a block */
#define ROW 24  /* most bytes of a row */

static uint64_t *splits, *out;

static void open_with(const char *policy)
{
    buffers_open(((size_t)multi_nranks * ROWS + 20) * ROW, NULL, policy);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&splits, RANKS * sizeof(uint64_t)));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&out, 2 * RANKS * sizeof(uint64_t)));
}

static int set_up(void **state)
{
    open_with("allow");
    return 0;
}

static int set_up_default(void **state)
{
    open_with(NULL);
    return 0;
}

static int set_up_checked(void **state)
{
    multi_setenv("CECL_CHECK", "1");
    open_with("allow");
    multi_setenv("CECL_CHECK", NULL);
    return 0;
}

/* Splits and places of all ranks; all ranks draw the same. */
struct exchange {
    uint64_t rows[RANKS][RANKS]; /* [from][to] */
    size_t sendrows, recvrows, row;
    size_t send_at, recv_at; /* offset of the buffers, in bytes */
};

static void draw(uint64_t *x, struct exchange *e)
{
    const int n = multi_nranks;
    const unsigned kind = (unsigned)(multi_draw(x) % 5);
    *e = (struct exchange){.row = 1 + multi_draw(x) % ROW,
                           .send_at = multi_draw(x) % 16,
                           .recv_at = multi_draw(x) % 16};
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            e->rows[from][to] = kind == 0   ? 0
                                : kind == 1 ? (to == 1 ? ROWS : 0)
                                : kind == 2 ? multi_draw(x) % ROWS
                                : kind == 3 ? (multi_draw(x) % 3 == 0 ? multi_draw(x) % ROWS : 0)
                                            : 1;
    e->sendrows = e->recvrows = (size_t)n * ROWS;
}

/* Writes this rank's input. */
static void fill(const struct exchange *e, uint64_t seed)
{
    memset(host, 0x5A, room);
    multi_put(comm, recv_buffer, host, room);
    multi_fill(host + e->send_at, seed, multi_rank, e->sendrows * e->row);
    multi_put(comm, send_buffer, host, room);
    multi_put(comm, splits, e->rows[multi_rank], (size_t)multi_nranks * sizeof(uint64_t));
}

static ceclResult_t call(const struct exchange *e, ceclStream_t stream)
{
    return ceclAlltoAllvDevice(send_buffer + e->send_at, e->sendrows, splits,
                               recv_buffer + e->recv_at, e->recvrows, out, e->row, ceclUint8, comm,
                               stream);
}

static size_t sent_before(const struct exchange *e, int from, int to)
{
    size_t rows = 0;
    for (int p = 0; p < to; p++)
        rows += e->rows[from][p];
    return rows;
}

static void check(const struct exchange *e, uint64_t seed)
{
    uint64_t told[2 * RANKS];
    size_t at = 0;
    multi_get(comm, host, recv_buffer, room);
    multi_get(comm, told, out, 2 * (size_t)multi_nranks * sizeof(uint64_t));
    for (int from = 0; from < multi_nranks; from++) {
        const size_t rows = e->rows[from][multi_rank],
                     first = sent_before(e, from, multi_rank) * e->row;
        if (told[from] != rows || told[multi_nranks + from] != at)
            fail_msg("rank %d: %llu rows at %llu from rank %d, not %zu at %zu", multi_rank,
                     (unsigned long long)told[from], (unsigned long long)told[multi_nranks + from],
                     from, rows, at);
        for (size_t i = 0; i < rows * e->row; i++)
            if (host[e->recv_at + at * e->row + i] != multi_byte(seed, from, first + i))
                fail_msg("rank %d: byte %zu from rank %d is wrong", multi_rank, i, from);
        memset(host + e->recv_at + at * e->row, 0x5A, rows * e->row);
        at += rows;
    }
    for (size_t i = 0; i < room; i++)
        if (host[i] != 0x5A)
            fail_msg("rank %d: byte %zu beside the rows was written", multi_rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void random_exchanges(int rounds)
{
    uint64_t x = 4711;
    for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
        struct exchange e;
        draw(&x, &e);
        fill(&e, round);
        multi_ok(comm, call(&e, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        check(&e, round);
    }
}

TEST_BETWEEN(a_graph_reads_new_splits_at_each_launch, set_up, tear_down)
{
    uint64_t x = 8;
    struct exchange e;
    ceclStream_t stream;
    ceclGraph_t graph;
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    draw(&x, &e);
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_ok(comm, call(&e, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    for (uint64_t seed = 0; seed < 12; seed++) {
        for (int from = 0; from < multi_nranks; from++)
            for (int to = 0; to < multi_nranks; to++)
                e.rows[from][to] = multi_draw(&x) % ROWS;
        fill(&e, seed);
        MPI_Barrier(MPI_COMM_WORLD); /* no rank may launch before its peers' input is written */
        if (seed % 3 == 2)
            multi_ok(comm, call(&e, stream));
        else
            multi_ok(comm, ceclGraphLaunch(graph, stream));
        multi_ok(comm, ceclStreamSynchronize(comm, stream));
        check(&e, seed);
    }
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
}

TEST_BETWEEN(an_explanation_names_the_kernels, set_up, tear_down)
{
    uint64_t x = 10;
    struct exchange e;
    ceclExplanation_t said;
    draw(&x, &e);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(&e, NULL));
    multi_ok(comm, ceclGroupExplain(comm, &said)); /* ends the group */
    assert_int_equal(said.zeroSm, 0);
    assert_int_equal(said.copies, 0);
    assert_int_equal(said.kernels, 2);
    assert_non_null(strstr(said.reason, "CECL_SM_ALLOW"));
}

/* ---- refused */

TEST_BETWEEN(refused_arguments_do_no_harm, set_up, tear_down)
{
    uint64_t x = 11, *own = malloc(RANKS * sizeof(*own));
    struct exchange e;
    draw(&x, &e);
#define REFUSED(result, words, ...)                                                                \
    multi_refused(comm, ceclAlltoAllvDevice(__VA_ARGS__, ceclUint8, comm, NULL), result, words)
    REFUSED(ceclInvalidArgument, "sendsplits", send_buffer, 4, NULL, recv_buffer, 4, out, 1);
    REFUSED(ceclInvalidArgument, "recvsplits", send_buffer, 4, splits, recv_buffer, 4, NULL, 1);
    REFUSED(ceclInvalidArgument, "aligned", send_buffer, 4, (uint64_t *)((char *)splits + 4),
            recv_buffer, 4, out, 1);
    REFUSED(ceclInvalidArgument, "sendbuff", NULL, 4, splits, recv_buffer, 4, out, 1);
    REFUSED(ceclInvalidArgument, "recvbuff", send_buffer, 4, splits, NULL, 4, out, 1);
    REFUSED(ceclInvalidArgument, "recvrows", send_buffer, 4, splits, recv_buffer, 0, out, 1);
    REFUSED(ceclInvalidArgument, "rowcount", send_buffer, 4, splits, recv_buffer, 4, out, 0);
    REFUSED(ceclInvalidArgument, "sendrows", send_buffer, (size_t)1 << 30, splits, recv_buffer, 4,
            out, (size_t)1 << 40);
    REFUSED(ceclInvalidArgument, "at most", send_buffer, (size_t)1 << 31, splits, recv_buffer, 4,
            out, 1);
    REFUSED(ceclInvalidArgument, "recvsplits", send_buffer, 4, splits, recv_buffer, 4, splits + 1,
            1);
    REFUSED(ceclInvalidArgument, "overlap", send_buffer, 4, splits, send_buffer, 4, out, 1);
    REFUSED(ceclInvalidUsage, "recvbuff", send_buffer, 4, splits, recv_buffer, room + (1 << 20),
            out, 1);
    REFUSED(ceclInvalidUsage, "ceclMemAlloc", send_buffer, 4, splits, own, 4, out, 1);
#undef REFUSED
    free(own);
    random_exchanges(2);
}

TEST_BETWEEN(a_group_has_no_other_call, set_up, tear_down)
{
    uint64_t x = 12;
    struct exchange e;
    draw(&x, &e);
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, call(&e, NULL));
    multi_ok(comm, ceclBarrier(comm, NULL));
    multi_refused(comm, ceclGroupEnd(), ceclInvalidUsage, "the only call");
    random_exchanges(2);
}

TEST_BETWEEN(other_policies_refuse_it, set_up_default, tear_down)
{
    uint64_t x = 13;
    struct exchange e;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    draw(&x, &e);
    multi_refused(comm, call(&e, NULL), ceclInvalidUsage, "CECL_SM_ALLOW");
    options.smPolicy = CECL_SM_ALLOW;
    multi_ok(comm, ceclSetOptions(comm, &options));
    random_exchanges(2);
}

TEST_BETWEEN(unequal_sizes_are_named, set_up_checked, tear_down)
{
    uint64_t x = 14;
    struct exchange e;
    draw(&x, &e);
    char words[64];
    snprintf(words, sizeof(words), "recvrows: %zu on rank 0, %zu on rank 1", e.recvrows,
             e.recvrows - 1);
    e.recvrows -= (size_t)multi_rank;
    multi_refused(comm, call(&e, NULL), ceclInvalidUsage, words);
    random_exchanges(2);
}

/* ---- blocks that do not fit */

/* The communicator fails on every rank. */
static void expect_failure(const char *words)
{
    (void)!ceclStreamSynchronize(comm, NULL);
    const ceclResult_t result = multi_async_within(comm, PROMPT);
    if (result == ceclSuccess || !strstr(ceclGetLastError(comm), words))
        fail_msg("rank %d: %s is not said: %d, %s", multi_rank, words, (int)result,
                 ceclGetLastError(comm));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The call succeeds, but then the communicator fails with the same reason on every rank. */
static void expect_trouble(const struct exchange *e, const char *words)
{
    fill(e, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    multi_ok(comm, call(e, NULL));
    expect_failure(words);
}

TEST_BETWEEN(more_than_a_recvbuff_has_room_for_is_an_error_of_all, set_up, tear_down_failed)
{
    uint64_t x = 15;
    struct exchange e;
    draw(&x, &e);
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++)
            e.rows[from][to] = to == 1 ? 5 : 1;
    e.recvrows = 5 * (size_t)multi_nranks - 1;
    expect_trouble(&e, "for rank 1");
}

TEST_BETWEEN(splits_beyond_sendbuff_are_an_error_of_all, set_up, tear_down_failed)
{
    uint64_t x = 16;
    struct exchange e;
    draw(&x, &e);
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++)
            e.rows[from][to] = from == 0 ? ROWS + (to == 0) : 0;
    expect_trouble(&e, "rank 0");
}

/* Also without CECL_CHECK no row moves, because every rank finds the last rank's line to be of another call. */
TEST_BETWEEN(unequal_sizes_are_an_error_of_all_and_move_nothing, set_up, tear_down_failed)
{
    uint64_t x = 17;
    struct exchange e;
    char words[32];
    int device;
    draw(&x, &e);
    multi_ok(comm, ceclCommCuDevice(comm, &device));
    for (int from = 0; from < multi_nranks; from++)
        for (int to = 0; to < multi_nranks; to++)
            e.rows[from][to] = 1;
    snprintf(words, sizeof(words), "rank %d", multi_nranks - 1);
    if (multi_rank == multi_nranks - 1)
        e.recvrows--;
    fill(&e, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!call(&e, NULL); /* a peer may have found the difference already */
    expect_failure(multi_rank == multi_nranks - 1 ? "differ" : words);
    /* a failed communicator copies nothing to the host, but the host device's memory is the host's */
    for (size_t i = 0; device < 0 && i < room; i++)
        if (recv_buffer[i] != 0x5A)
            fail_msg("rank %d: byte %zu was written", multi_rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
}
