/* Calls over pretended nodes (CECL_NODE_SIZE): results for every layout of the ranks; refusals,
 * with names, of calls that cannot leave a node; timeouts when a rank of another node does not
 * take part. */
#include "multi.h"

#include <stdio.h>
#include <unistd.h>

#define LAYOUTS 4
/* Time limit of calls that shall time out. Ranks must be able to allocate memory within it. */
#define LIMIT_MS 3000

/* Layout `i` of all ranks: 0: one rank a node; 1: two halves; 2: uneven; 3: uneven, reversed. */
static const char *layout(int i)
{
    static char sizes[32];
    const int n = multi_nranks, half = (n + 1) / 2;
    if (i == 0)
        return "1";
    if (i == 1)
        snprintf(sizes, sizeof(sizes), "%d", half);
    else if (n == 8)
        snprintf(sizes, sizeof(sizes), "%s", i == 2 ? "3,5" : "2");
    else
        snprintf(sizes, sizeof(sizes), "%d,%d", i == 2 ? 1 : n - 1, i == 2 ? n - 1 : 1);
    return sizes;
}

/* The nodes of layout `i`: fills in the number of ranks of each node. Returns the number of
 * nodes. */
static int nodes_of(int i, int sizes[64])
{
    const char *at = layout(i);
    const bool even = strchr(at, ',') == NULL;
    int count = 0, ranks = 0;
    while (ranks < multi_nranks) {
        const int size = atoi(at), left = multi_nranks - ranks;
        sizes[count++] = size < left ? size : left;
        ranks += size;
        at = even ? at : strchr(at, ',') ? strchr(at, ',') + 1 : at;
    }
    return count;
}

static ceclComm_t comm_over(const char *sizes)
{
    multi_setenv("CECL_NODE_SIZE", sizes);
    ceclComm_t comm = multi_comm(NULL);
    multi_setenv("CECL_NODE_SIZE", NULL);
    return comm;
}

/* Two nodes; the first and the last rank are on different nodes. */
static ceclComm_t comm_of_two(int timeout_ms)
{
    ceclConfig_t config = multi_config();
    config.timeoutMs = timeout_ms;
    multi_setenv("CECL_NODE_SIZE", layout(1));
    ceclComm_t comm = multi_comm(&config);
    multi_setenv("CECL_NODE_SIZE", NULL);
    return comm;
}

/* ---- right results */

static void blocks_of_every_size_are_right(void **state)
{
    static const size_t counts[] = {0, 1, 33, 5000, 70001};
    for (int i = 0; i < LAYOUTS; i++) {
        ceclComm_t comm = comm_over(layout(i));
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (int kind = 0; kind < 4; kind++)
                multi_check(comm,
                            &(struct multi_case){.op = kind % 2 ? ceclOpAlltoAll : ceclOpAllGather,
                                                 .count = counts[c],
                                                 .type = ceclInt32,
                                                 .in_place = kind / 2},
                            c);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

/* Staging is small, so blocks go in many chunks. */
static void blocks_in_many_chunks_are_right(void **state)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = 256 << 10;
    multi_tuning("net.chunk_min_bytes * any 4096\nnet.chunk_max_bytes * any 65536");
    multi_setenv("CECL_NODE_SIZE", layout(2));
    ceclComm_t comm = multi_comm(&config);
    multi_setenv("CECL_NODE_SIZE", NULL);
    for (int kind = 0; kind < 4; kind++)
        multi_check(comm,
                    &(struct multi_case){.op = kind % 2 ? ceclOpAlltoAll : ceclOpAllGather,
                                         .count = 200001,
                                         .type = ceclInt32,
                                         .in_place = kind / 2},
                    (uint64_t)kind);
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_tuning(NULL);
}

/* Byte i of the rows from rank `from` to rank `to`. Rows of all ranks lie side by side. */
static unsigned char cell(int from, int to, size_t row, size_t at)
{
    return multi_byte(11, from, ((size_t)to * 1000 + row) * 1000 + at);
}

/* Each rank gathers a column of a matrix from each rank, or exchanges columns with each. Staging
 * is so small that its limits lie within rows. */
static void rows_are_right(ceclComm_t comm, bool gathers, bool in_place, bool is_private)
{
    enum { ROWS = 37, WIDTH = 301 };
    const size_t n = (size_t)multi_nranks, pitch = n * WIDTH + 5, all = ROWS * pitch;
    const ceclStrided_t shape = {.rows = ROWS,
                                 .width = WIDTH,
                                 .sendPitch = pitch,
                                 .sendStride = WIDTH,
                                 .recvPitch = pitch,
                                 .recvStride = WIDTH};
    unsigned char *in, *out = malloc(all), *host = malloc(all), *const mine = out;
    if (!is_private)
        multi_ok(comm, ceclMemAlloc(comm, (void **)&out, all));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&in, all));
    memset(host, 0xee, all);
    multi_put(comm, out, host, all);
    for (size_t row = 0; row < ROWS; row++)
        for (int to = 0; to < multi_nranks; to++)
            for (size_t b = 0; b < WIDTH; b++)
                host[row * pitch + (size_t)to * WIDTH + b] =
                    cell(multi_rank, gathers ? 0 : to, row, b);
    unsigned char *from = in_place ? out : in;
    const size_t own = gathers ? (size_t)multi_rank * WIDTH : 0;
    multi_put(comm, from, host, all);
    multi_ok(comm, gathers ? ceclAllGatherStrided(from + own, out, &shape, ceclUint8, comm, 0)
                           : ceclAlltoAllStrided(from, out, &shape, ceclUint8, comm, 0));
    multi_get(comm, host, out, all);
    for (size_t row = 0; row < ROWS; row++)
        for (int p = 0; p < multi_nranks; p++)
            for (size_t b = 0; b < WIDTH; b++)
                assert_int_equal(host[row * pitch + (size_t)p * WIDTH + b],
                                 cell(p, gathers ? 0 : multi_rank, row, b));
    if (!in_place)
        for (size_t row = 0; row + 1 < ROWS; row++)
            assert_int_equal(host[row * pitch + n * WIDTH], 0xee); /* the gap */
    multi_ok(comm, ceclMemFree(comm, in));
    if (!is_private)
        multi_ok(comm, ceclMemFree(comm, out));
    free(mine);
    free(host);
}

static void strided_blocks_are_right(void **state)
{
    ceclConfig_t config = multi_config();
    for (int i = 0; i < LAYOUTS; i++) {
        config.stagingBytes = i % 2 ? 64 << 10 : 4 << 20;
        multi_setenv("CECL_NODE_SIZE", layout(i));
        ceclComm_t comm = multi_comm(&config);
        multi_setenv("CECL_NODE_SIZE", NULL);
        for (int kind = 0; kind < 4; kind++) {
            rows_are_right(comm, kind % 2, kind / 2, false);
            if (!multi_on_gpus(comm)) /* recvbuff in memory that peers cannot reach */
                rows_are_right(comm, kind % 2, kind / 2, true);
        }
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

static float input(int rank, size_t i)
{
    return (float)(multi_byte(7, rank, i) + 1) * 0.001f * (float)(1 + i % 3);
}

/* The expected result: sums over the ranks of each node, then over the nodes. */
static float sum_over(const int *sizes, int count, size_t i)
{
    volatile float sum = 0;
    for (int n = 0, rank = 0; n < count; n++) {
        volatile float part = input(rank++, i);
        for (int l = 1; l < sizes[n]; l++)
            part = part + input(rank++, i);
        sum = n == 0 ? part : sum + part;
    }
    return sum;
}

static void floats_are_added_up_node_by_node_on_all_ranks(void **state)
{
    enum { COUNT = 40000 };
    float *host = malloc(COUNT * sizeof(float)), *buffer;
    for (int i = 0; i < LAYOUTS; i++) {
        int sizes[64];
        const int count = nodes_of(i, sizes);
        ceclComm_t comm = comm_over(layout(i));
        multi_ok(comm, ceclMemAlloc(comm, (void **)&buffer, COUNT * sizeof(float)));
        for (size_t e = 0; e < COUNT; e++)
            host[e] = input(multi_rank, e);
        multi_put(comm, buffer, host, COUNT * sizeof(float));
        multi_ok(comm, ceclAllReduce(buffer, buffer, COUNT, ceclFloat32, ceclSum, comm, 0));
        multi_get(comm, host, buffer, COUNT * sizeof(float));
        for (size_t e = 0; e < COUNT; e++) {
            const float want = sum_over(sizes, count, e);
            if (memcmp(&host[e], &want, sizeof(want)) != 0)
                fail_msg("layout %s, element %zu: %.9g, %.9g expected", layout(i), e,
                         (double)host[e], (double)want);
        }
        multi_ok(NULL, ceclCommDestroy(comm));
    }
    free(host);
}

/* In one group, each rank sends two messages to all ranks. The first message is larger than the
 * network accepts at once. */
static void messages_between_all_ranks_are_right(void **state)
{
    enum { COUNT = 150000, CUT = 80000 };
    const size_t n = (size_t)multi_nranks;
    for (int i = 0; i < LAYOUTS; i++) {
        ceclComm_t comm = comm_over(layout(i));
        unsigned char *in, *out, *host = malloc(n * COUNT);
        multi_ok(comm, ceclMemAlloc(comm, (void **)&in, n * COUNT));
        multi_ok(comm, ceclMemAlloc(comm, (void **)&out, n * COUNT));
        multi_fill(host, 3, multi_rank, n * COUNT);
        multi_put(comm, in, host, n * COUNT);
        for (int round = 0; round < 3; round++) {
            multi_ok(comm, ceclGroupStart());
            for (int p = 0; p < multi_nranks; p++) {
                unsigned char *const from = in + (size_t)p * COUNT, *to = out + (size_t)p * COUNT;
                multi_ok(comm, ceclSend(from, CUT, ceclUint8, p, comm, 0));
                multi_ok(comm, ceclRecv(to, CUT, ceclUint8, p, comm, 0));
                multi_ok(comm, ceclSend(from + CUT, COUNT - CUT, ceclUint8, p, comm, 0));
                multi_ok(comm, ceclRecv(to + CUT, COUNT - CUT, ceclUint8, p, comm, 0));
            }
            multi_ok(comm, ceclGroupEnd());
        }
        multi_get(comm, host, out, n * COUNT);
        for (int p = 0; p < multi_nranks; p++)
            for (size_t b = 0; b < COUNT; b++)
                assert_int_equal(host[(size_t)p * COUNT + b],
                                 multi_byte(3, p, (size_t)multi_rank * COUNT + b));
        free(host);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

static const char *path_of(ceclComm_t comm, const char *what)
{
    static ceclExplanation_t e;
    void *buffer, *mine;
    multi_ok(comm, ceclMemAlloc(comm, &buffer, (size_t)multi_nranks * 64));
    multi_ok(comm, ceclShard(comm, buffer, 16, ceclInt32, &mine));
    multi_ok(comm, ceclExplain(ceclOpAllGather, mine, buffer, 16, ceclInt32, comm, &e));
    multi_ok(comm, ceclMemFree(comm, buffer));
    return strcmp(what, "path") == 0 ? e.path : e.reason;
}

/* A child has the same division into nodes as its parent, if its ranks are on several nodes. */
static void children_keep_their_parents_nodes(void **state)
{
    const int half = (multi_nranks + 1) / 2;
    ceclComm_t comm = comm_over(layout(1)), child = NULL;
    assert_non_null(strstr(path_of(comm, "path"), "2 nodes"));
    assert_non_null(strstr(path_of(comm, "reason"), multi_on_gpus(comm)  ? "NCCL 2"
                                                    : getenv("CECL_NET") ? "MPI"
                                                                         : "shared memory"));
    multi_ok(comm, ceclCommSplit(comm, multi_rank / half, 0, &child, NULL));
    assert_null(strstr(path_of(child, "path"), "nodes"));
    multi_ok(NULL, ceclCommDestroy(child));
    multi_ok(comm, ceclCommSplit(comm, multi_rank % half, 0, &child, NULL));
    int size = 0;
    multi_ok(child, ceclCommCount(child, &size));
    if (size == 2)
        assert_non_null(strstr(path_of(child, "path"), "2 nodes"));
    multi_ok(NULL, ceclCommDestroy(child));
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void expect_nodes(ceclComm_t comm, int count, const int *sizes)
{
    int nodes[64], rank = 0;
    multi_ok(comm, ceclCommNodes(comm, nodes));
    for (int node = 0; node < count; node++)
        for (int i = 0; i < sizes[node]; i++)
            assert_int_equal(nodes[rank++], node);
    assert_int_equal(rank, multi_nranks);
}

/* In a child whose ranks are in reverse order, what was the last node is the first. */
static void each_ranks_node_is_told(void **state)
{
    int sizes[64];
    const int half = (multi_nranks + 1) / 2, reversed[] = {multi_nranks - half, half};
    for (int i = 0; i < LAYOUTS; i++) {
        ceclComm_t comm = comm_over(layout(i));
        expect_nodes(comm, nodes_of(i, sizes), sizes);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
    ceclComm_t comm = comm_over(layout(1)), child = NULL;
    multi_ok(comm, ceclCommSplit(comm, 0, -multi_rank, &child, NULL));
    expect_nodes(child, 2, reversed);
    multi_ok(NULL, ceclCommDestroy(child));
    multi_ok(NULL, ceclCommDestroy(comm));
    comm = multi_comm(NULL);
    expect_nodes(comm, 1, &multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* ---- refusals */

static void expect_no_comm(const char *sizes, const char *words)
{
    const ceclConfig_t config = multi_config();
    ceclComm_t comm = NULL;
    multi_setenv("CECL_NODE_SIZE", sizes);
    multi_refused(NULL, ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config), ceclInvalidArgument,
                  words);
    multi_setenv("CECL_NODE_SIZE", NULL);
}

static void sizes_that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {"0",   "3,", ",3",   "x",
                                      "2 2", "-1", "1025", "1,1,1,1,1,1,1,1,1,1,1,1,1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect_no_comm(bad[i], bad[i]);
    expect_no_comm("1,100", "CECL_NODE_SIZE=1,100: sizes that sum to");
}

static void a_rank_that_has_other_nodes_is_named_on_all(void **state)
{
    char words[64];
    const int odd = multi_nranks > 2 ? 0 : 1;
    snprintf(words, sizeof(words), "ranks differ in CECL_NODE_SIZE: 2 on rank %d, 1 on", odd);
    expect_no_comm(multi_rank == odd ? "2" : "1", words);
    snprintf(words, sizeof(words), "ranks differ in CECL_NODE_SIZE: not set on rank %d, 1 on", odd);
    expect_no_comm(multi_rank == odd ? NULL : "1", words);
}

/* MPI with all threads is available if the tests use it as the network. */
static void mpi_between_nodes_is_refused_where_it_cannot_be(void **state)
{
    const ceclConfig_t config = multi_config();
    const bool goes_by_mpi = getenv("CECL_NET") != NULL;
    ceclComm_t comm = NULL;
    ceclComm_t some = comm_over(layout(1));
    const bool on_gpus = multi_on_gpus(some);
    multi_ok(NULL, ceclCommDestroy(some));
    if (on_gpus)
        skip_because("on GPUs, NCCL connects nodes");
    const ceclUniqueId id = multi_one_id();
    multi_setenv("CECL_NODE_SIZE", "1");
    multi_setenv("CECL_NET", "mpi");
    multi_refused(NULL, ceclCommInitRankConfig(&comm, multi_nranks, id, multi_rank, &config),
                  ceclInvalidUsage, "CECL_NET=mpi: only ceclCommInitMpi");
    if (!goes_by_mpi) {
        multi_refused(NULL, ceclCommInitMpi(&comm, MPI_COMM_WORLD, &config), ceclInvalidUsage,
                      "needs MPI_THREAD_MULTIPLE, but MPI has MPI_THREAD_FUNNELED");
        multi_setenv("CECL_NET", NULL);
    }
    multi_setenv("CECL_NODE_SIZE", NULL);
}

static void what_cannot_leave_a_node_is_refused_by_name(void **state)
{
    const ceclStrided_t strided = {.rows = 2, .width = 4};
    ceclComm_t comm = comm_over(layout(1));
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    const int away = multi_rank < (multi_nranks + 1) / 2 ? multi_nranks - 1 : 0;
    const ceclSignalWait_t wait = {away, 0, 1};
    ceclDeviceComm_t dc;
    void *buffer, *there;
    multi_ok(comm, ceclMemAlloc(comm, &buffer, 8192));
    char *const input = (char *)buffer + 4096;
    multi_refused(comm, ceclCommGetDeviceComm(comm, &dc), ceclInvalidUsage,
                  "make a communicator of one node");
    multi_refused(
        comm, ceclGetPeerPointer(comm, buffer, multi_rank == 0 ? multi_nranks - 1 : 0, &there),
        multi_rank == 0 || multi_rank >= (multi_nranks + 1) / 2 ? ceclInvalidUsage : ceclSuccess,
        NULL);
    multi_refused(comm, ceclPut(input, 4, ceclInt8, away, NULL, 0, comm, 0), ceclInvalidUsage,
                  "ceclPut with another node over 2 nodes of");
    multi_refused(comm, ceclSignal(away, 0, comm, 0), ceclInvalidUsage,
                  "ceclSignal with another node over 2 nodes of");
    multi_refused(comm, ceclWaitSignal(1, &wait, comm, 0), ceclInvalidUsage,
                  "ceclWaitSignal with another node over 2 nodes of");
    ceclStream_t stream;
    ceclGraph_t graph;
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    multi_refused(comm, ceclSend(input, 4, ceclInt8, away, comm, stream), ceclInvalidUsage,
                  "is on another node, and messages between nodes cannot be captured");
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    /* a refused call changes nothing */
    multi_check(comm, &(struct multi_case){.op = ceclOpAllGather, .count = 9, .type = ceclInt8}, 1);
    multi_ok(NULL, ceclCommDestroy(comm));

    comm = comm_over("1");
    options.smPolicy = CECL_SM_NEVER;
    multi_ok(comm, ceclSetOptions(comm, &options));
    multi_ok(comm, ceclMemAlloc(comm, &buffer, 8192));
    multi_refused(comm, ceclAllGather((char *)buffer + 4096, buffer, 4, ceclInt8, comm, 0),
                  ceclInvalidUsage, multi_on_gpus(comm) ? "takes up to 2" : "alone in its node");
    multi_refused(comm,
                  ceclAllGatherStrided((char *)buffer + 4096, buffer, &strided, ceclInt8, comm, 0),
                  ceclInvalidUsage, multi_on_gpus(comm) ? "takes up to 2" : "packs and spreads");
    multi_ok(NULL, ceclCommDestroy(comm));
}

static void the_least_staging_suffices(void **state)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = 4096;
    multi_setenv("CECL_NODE_SIZE", layout(2));
    ceclComm_t comm = multi_comm(&config);
    multi_setenv("CECL_NODE_SIZE", NULL);
    for (int in_place = 0; in_place < 2; in_place++)
        multi_check(
            comm,
            &(struct multi_case){
                .op = ceclOpAlltoAll, .count = 999, .type = ceclFloat64, .in_place = in_place},
            9);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* ---- failure */

/* The first rank sends more to the last rank than the network accepts. Checks the first rank's
 * error; the other ranks take no part. */
static void expect_failure(ceclComm_t comm, ceclResult_t want, const char *words)
{
    const int last = multi_nranks - 1, tag = 3;
    unsigned char *buffer;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&buffer, 1 << 20));
    if (multi_rank == 0) {
        /* before the call, because NCCL may wait in it to connect */
        MPI_Send(NULL, 0, MPI_BYTE, last, tag, MPI_COMM_WORLD);
        const ceclResult_t sent = ceclSend(buffer, 1 << 20, ceclUint8, last, comm, 0);
        assert_true(sent == ceclSuccess || sent == want);
        assert_int_equal(multi_async_within(comm, PROMPT), want);
        if (!strstr(ceclGetLastError(comm), words))
            fail_msg("'%s' expected in '%s'", words, ceclGetLastError(comm));
    } else if (multi_rank == last) { /* the last rank leaves after this */
        MPI_Recv(NULL, 0, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void a_peer_that_stays_away_is_named_in_time(void **state)
{
    char words[64];
    ceclComm_t comm = comm_of_two(LIMIT_MS);
    snprintf(words, sizeof(words), "a call has waited for rank %d", multi_nranks - 1);
    expect_failure(comm, ceclTimeout, words);
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!ceclCommAbort(comm);
}

/* A graph of a gather, launched once on all ranks, and then again on all but the last rank. Each rank is
 * alone in its node, so the others wait in an exchange. */
static void a_rank_that_does_not_launch_its_graph_is_named(void **state)
{
    char words[64];
    ceclConfig_t config = multi_config();
    config.timeoutMs = 2 * LIMIT_MS; /* on GPUs, NCCL connects during the capture */
    multi_setenv("CECL_NODE_SIZE", layout(0));
    ceclComm_t comm = multi_comm(&config);
    multi_setenv("CECL_NODE_SIZE", NULL);
    ceclStream_t stream;
    ceclGraph_t graph;
    unsigned char *buffer;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&buffer, 1 << 20));
    multi_ok(comm, ceclStreamCreate(comm, &stream));
    multi_ok(comm, ceclStreamBeginCapture(comm, stream));
    for (int i = 0; i < 2; i++)
        multi_ok(comm,
                 ceclAllGather(buffer + 1000 * multi_rank, buffer, 1000, ceclUint8, comm, stream));
    multi_ok(comm, ceclStreamEndCapture(comm, stream, &graph));
    multi_ok(comm, ceclGraphLaunch(graph, stream));
    multi_ok(comm, ceclStreamSynchronize(comm, stream));
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank != multi_nranks - 1) {
        snprintf(words, sizeof(words), "a graph that was launched has waited for rank %d",
                 multi_nranks - 1);
        multi_ok(comm, ceclGraphLaunch(graph, stream));
        assert_int_not_equal(multi_async_within(comm, PROMPT), ceclSuccess);
        const char *message = ceclGetLastError(comm);
        const bool is_named = multi_on_gpus(comm) /* NCCL does not say which rank is missing */
                              || strstr(message, words);
        if (!is_named || !strstr(message, "in an exchange between nodes"))
            fail_msg("'%s' expected in '%s'", words, message);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!ceclStreamSynchronize(comm, stream);
    multi_ok(comm, ceclGraphDestroy(graph));
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    (void)!ceclCommAbort(comm);
}

static void a_peer_that_leaves_is_named(void **state)
{
    char words[64];
    ceclComm_t comm = comm_of_two(60000);
    if (multi_on_gpus(comm)) {
        multi_ok(NULL, ceclCommDestroy(comm));
        skip_because("NCCL does not name the rank that it waits for");
    }
    snprintf(words, sizeof(words), "rank %d has left, and a call waits for it", multi_nranks - 1);
    expect_failure(comm, ceclRemoteError, words);
    if (multi_rank == multi_nranks - 1) {
        usleep(50000);
        (void)!ceclCommDestroy(comm);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (multi_rank != multi_nranks - 1)
        (void)!ceclCommAbort(comm);
}

static void a_peer_that_aborts_is_named(void **state)
{
    char words[64];
    ceclComm_t comm = comm_of_two(60000);
    snprintf(words, sizeof(words), "rank %d gave up", multi_nranks - 1);
    expect_failure(comm, ceclRemoteError, words);
    if (multi_rank == multi_nranks - 1) {
        usleep(50000);
        multi_ok(NULL, ceclCommRevoke(comm));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!ceclCommAbort(comm);
}

/* A rank of the other node does not come to a collective. The wait fails in every phase of the
 * plan. */
static void a_rank_that_stays_away_from_a_collective_is_named_on_all(void **state)
{
    char words[64];
    ceclComm_t comm = comm_of_two(LIMIT_MS);
    void *buffer;
    multi_ok(comm, ceclMemAlloc(comm, &buffer, 4096));
    snprintf(words, sizeof(words), "waited for rank %d", multi_nranks - 1);
    if (multi_rank != multi_nranks - 1) {
        const ceclResult_t result =
            ceclAllGather((char *)buffer + 2048, buffer, 4, ceclInt8, comm, 0);
        assert_true(result == ceclTimeout || result == ceclRemoteError);
        if (!strstr(ceclGetLastError(comm), words))
            fail_msg("'%s' expected in '%s'", words, ceclGetLastError(comm));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!ceclCommAbort(comm);
}

static void ends_of_a_message_that_differ_are_named(void **state)
{
    const int last = multi_nranks - 1;
    char words[96];
    ceclComm_t comm = comm_of_two(60000);
    void *buffer;
    if (multi_on_gpus(comm)) {
        multi_ok(NULL, ceclCommDestroy(comm));
        skip_because("NCCL does not compare message sizes");
    }
    multi_ok(comm, ceclMemAlloc(comm, &buffer, 4096));
    if (multi_rank == 0)
        multi_ok(comm, ceclSend(buffer, 10, ceclInt8, last, comm, 0));
    if (multi_rank == last) {
        multi_ok(comm, ceclRecv(buffer, 7, ceclInt8, 0, comm, 0));
        assert_int_equal(multi_async_within(comm, PROMPT), ceclInvalidUsage);
        snprintf(words, sizeof(words), "from rank 0 to rank %d: ceclSend has 10 bytes, ceclRecv 7",
                 last);
        if (!strstr(ceclGetLastError(comm), words))
            fail_msg("'%s' expected in '%s'", words, ceclGetLastError(comm));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    (void)!ceclCommAbort(comm);
}

/* Some rank aborts while others send to it, and receives nothing. What the network still carries then must not
 * reach the next communicator. */
static void messages_to_a_rank_that_aborted_reach_no_later_communicator(void **state)
{
    for (int round = 0; round < 12; round++) {
        const int culprit = round % multi_nranks;
        ceclComm_t comm = comm_over("1");
        void *buffer;
        if (multi_on_gpus(comm)) {
            multi_ok(NULL, ceclCommDestroy(comm));
            skip_because("NCCL may wait for the culprit to connect");
        }
        multi_ok(comm, ceclMemAlloc(comm, &buffer, 4096));
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < 1 + round % 4 && multi_rank != culprit; i++)
            (void)!ceclSend(buffer, 100, ceclInt8, culprit, comm, 0);
        if (multi_rank != culprit)
            (void)!ceclStreamSynchronize(comm, 0);
        multi_ok(NULL, ceclCommAbort(comm));
        comm = comm_over("1");
        for (uint64_t seed = 0; seed < 3; seed++)
            multi_check(comm,
                        &(struct multi_case){.op = ceclOpAlltoAll, .count = 99, .type = ceclInt8},
                        seed);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_every_size_are_right),
        cmocka_unit_test(blocks_in_many_chunks_are_right),
        cmocka_unit_test(strided_blocks_are_right),
        cmocka_unit_test(floats_are_added_up_node_by_node_on_all_ranks),
        cmocka_unit_test(messages_between_all_ranks_are_right),
        cmocka_unit_test(children_keep_their_parents_nodes),
        cmocka_unit_test(each_ranks_node_is_told),
        cmocka_unit_test(sizes_that_are_none_are_refused),
        cmocka_unit_test(a_rank_that_has_other_nodes_is_named_on_all),
        cmocka_unit_test(mpi_between_nodes_is_refused_where_it_cannot_be),
        cmocka_unit_test(what_cannot_leave_a_node_is_refused_by_name),
        cmocka_unit_test(the_least_staging_suffices),
        cmocka_unit_test(a_peer_that_stays_away_is_named_in_time),
        cmocka_unit_test(a_rank_that_does_not_launch_its_graph_is_named),
        cmocka_unit_test(a_peer_that_leaves_is_named),
        cmocka_unit_test(a_peer_that_aborts_is_named),
        cmocka_unit_test(a_rank_that_stays_away_from_a_collective_is_named_on_all),
        cmocka_unit_test(ends_of_a_message_that_differ_are_named),
        cmocka_unit_test(messages_to_a_rank_that_aborted_reach_no_later_communicator),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
