/* Communicators over several hosts, which CECL_NODE_SIZE pretends: NCCL carries their calls. On the host device the
 * stand-in of tests/nccl takes its place (CECL_NCCL_PATH). tests/multi/test_carried_calls.c makes random calls. */
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "../prompt.h"
#include "../with_cmocka.h"

#include "../world/bytes.h"
#include "ranks.h"

static const struct setup two_and_two = {.nranks = 4, .node_size = "2", .joins = true};
static const struct setup three_and_one = {.nranks = 4, .node_size = "3", .joins = true};
static bool on_gpus(void)
{
    const char *device = getenv("CECL_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

static void captured_call(struct rank *r)
{
    ceclGraph_t graph;
    OK(ceclStreamBeginCapture(r->comm, r->stream));
    REFUSED(ceclBarrier(r->comm, r->stream), ceclInvalidUsage,
            "captures no calls over several hosts");
    OK(ceclStreamEndCapture(r->comm, r->stream, &graph));
    OK(ceclGraphDestroy(graph));
}

/* tests/multi/test_carried_calls.c captures calls on GPUs. */
TEST(a_captured_call_is_refused_on_the_host_device)
{
    if (on_gpus())
        skip_because("it is carried on GPUs");
    assert_true(ranks_run(&two_and_two, captured_call));
}

static void end_beside_a_graph(struct rank *r)
{
    ceclGraph_t graph;
    OK(ceclStreamBeginCapture(r->comm, r->stream));
    OK(ceclAllGather(r->send, r->recv, 1, ceclInt8, r->comm, r->stream));
    OK(ceclStreamEndCapture(r->comm, r->stream, &graph));
    REFUSED(ceclMemFree(r->comm, r->recv), ceclInvalidUsage, "a graph holds a captured");
    REFUSED(ceclCommDestroy(r->comm), ceclInvalidUsage, "graphs hold 1 captured call");
    OK(ceclGraphDestroy(graph));
    r->comm = NULL;
}

/* test_carried_inside.c shows the same without GPUs. */
TEST(a_communicator_ends_beside_a_living_graph)
{
    if (!on_gpus())
        skip_because("it needs GPUs");
    assert_true(ranks_run(&two_and_two, end_beside_a_graph));
}

TEST_ON(two_and_two, messages_are_carried)
{
    const int next = (r->rank + 1) % r->nranks, before = (r->rank + r->nranks - 1) % r->nranks;
    const size_t bytes = 1000;
    model_fill(r->host, 7, r->rank, bytes);
    CHECK(rank_put(r, r->send, r->host, bytes));
    OK(ceclGroupStart());
    OK(ceclSend(r->send, bytes, ceclInt8, next, r->comm, r->stream));
    OK(ceclRecv(r->recv, bytes, ceclInt8, before, r->comm, r->stream));
    OK(ceclSend(r->send, bytes, ceclInt8, r->rank, r->comm, r->stream));
    OK(ceclRecv(r->recv + bytes, bytes, ceclInt8, r->rank, r->comm, r->stream));
    OK(ceclGroupEnd());
    CHECK(rank_get(r, r->host, r->recv, 2 * bytes));
    for (size_t i = 0; i < bytes; i++)
        CHECK(r->host[i] == model_byte(7, before, i) &&
              r->host[bytes + i] == model_byte(7, r->rank, i));
    REFUSED(ceclSend(r->send, bytes, ceclInt8, r->rank, r->comm, r->stream), ceclInvalidUsage,
            "is the rank itself");
}

static bool gathers(struct rank *r, ceclComm_t comm)
{
    int rank, nranks;
    unsigned char mine, all[RANKS_MOST];
    if (ceclCommUserRank(comm, &rank) != ceclSuccess || ceclCommCount(comm, &nranks) != ceclSuccess)
        return false;
    mine = (unsigned char)(100 + rank);
    if (!rank_put(r, r->send, &mine, 1) ||
        ceclAllGather(r->send, r->recv, 1, ceclInt8, comm, r->stream) != ceclSuccess ||
        ceclStreamSynchronize(comm, r->stream) != ceclSuccess ||
        !rank_get(r, all, r->recv, (size_t)nranks))
        return false;
    for (int q = 0; q < nranks; q++)
        if (all[q] != 100 + q)
            return false;
    return true;
}

static const char *way_of(struct rank *r, ceclComm_t comm)
{
    static ceclExplanation_t explanation;
    return ceclExplain(ceclOpAllGather, r->send, r->recv, 1, ceclInt8, comm, &explanation) ==
                   ceclSuccess
               ? explanation.path
               : "";
}

static void split_by_host(struct rank *r)
{
    int nodes[RANKS_MOST];
    ceclComm_t host, across, none = r->comm;
    OK(ceclCommNodes(r->comm, nodes));
    OK(ceclCommSplit(r->comm, nodes[r->rank], r->rank, &host, NULL));
    CHECK(!strstr(way_of(r, host), "NCCL"));
    CHECK(gathers(r, host) && gathers(r, r->comm));
    OK(ceclCommSplit(r->comm, r->rank % 2, -r->rank, &across, NULL)); /* one rank of each host */
    CHECK(strstr(way_of(r, across), "carried by NCCL"));
    CHECK(gathers(r, across) && gathers(r, host));
    OK(ceclCommSplit(r->comm, r->rank == 1 ? CECL_SPLIT_NOCOLOR : 0, 0, &none, NULL));
    CHECK((none == NULL) == (r->rank == 1));
    CHECK(!none || gathers(r, none));
    REFUSED(ceclCommSplit(r->comm, -7, 0, &none, NULL), ceclInvalidArgument, "color -7");
    if (none)
        OK(ceclCommDestroy(none));
    OK(ceclCommDestroy(across));
    CHECK(gathers(r, host));
    OK(ceclCommDestroy(host));
    CHECK(gathers(r, r->comm));
}

TEST(children_of_one_host_are_cecls_own)
{
    assert_true(ranks_run(&two_and_two, split_by_host));
}

TEST_ON(three_and_one, nodes_are_numbered)
{
    int nodes[RANKS_MOST];
    OK(ceclCommNodes(r->comm, nodes));
    CHECK(nodes[0] == 0 && nodes[1] == 0 && nodes[2] == 0 && nodes[3] == 1);
}

TEST_ON(two_and_two, a_group_has_both_kinds_of_communicators)
{
    ceclComm_t host;
    unsigned char all[8];
    const unsigned char mine = (unsigned char)(50 + r->rank);
    OK(ceclCommSplit(r->comm, r->rank / 2, 0, &host, NULL));
    CHECK(rank_put(r, r->send, &mine, 1));
    for (int turn = 0; turn < 2; turn++) {
        OK(ceclGroupStart());
        if (turn == 0)
            OK(ceclAllGather(r->send, r->recv + 8, 1, ceclInt8, host, r->stream));
        OK(ceclAllGather(r->send, r->recv, 1, ceclInt8, r->comm, r->stream));
        if (turn == 1)
            OK(ceclAllGather(r->send, r->recv + 8, 1, ceclInt8, host, r->stream));
        OK(ceclGroupEnd());
        CHECK(rank_get(r, all, r->recv, 4));
        CHECK(all[0] == 50 && all[1] == 51 && all[2] == 52 && all[3] == 53);
        CHECK(rank_get(r, all, r->recv + 8, 2));
        CHECK(all[0] == 50 + r->rank / 2 * 2 && all[1] == 51 + r->rank / 2 * 2);
    }
    OK(ceclCommDestroy(host));
}

/* A refused call means that no call of the group is made: recvbuffs stay as they are, and later calls find their peers. */
TEST_ON(two_and_two, a_refused_group_makes_no_call)
{
    ceclComm_t host;
    unsigned char before[16], all[16];
    const ceclStrided_t strided = {.width = 4, .rows = 2};
    OK(ceclCommSplit(r->comm, r->rank / 2, 0, &host, NULL));
    memset(before, 9, sizeof(before));
    CHECK(rank_put(r, r->recv, before, sizeof(before)));
    for (int turn = 0; turn < 3; turn++) {
        OK(ceclGroupStart());
        OK(ceclAllGather(r->send, r->recv, 1, ceclInt8, r->comm, r->stream));
        OK(ceclAllGather(r->send, r->recv + 8, 1, ceclInt8, host, r->stream));
        if (turn == 0)
            REFUSED(
                ceclAllGatherStrided(r->send, r->recv + 64, &strided, ceclInt8, r->comm, r->stream),
                ceclInvalidUsage, "call ceclAllGather");
        else if (turn == 1) /* refused only at the group's end */
            OK(ceclAllGather(r->send, r->recv + 1, 1, ceclInt8, r->comm, r->stream));
        else
            OK(ceclSend(r->send, 1, ceclInt8, r->rank, r->comm, r->stream));
        CHECK(ceclGroupEnd() != ceclSuccess);
        CHECK(rank_get(r, all, r->recv, sizeof(all)));
        CHECK(memcmp(all, before, sizeof(all)) == 0);
    }
    CHECK(gathers(r, r->comm) && gathers(r, host));
    OK(ceclCommDestroy(host));
}

TEST_ON(two_and_two, memory_is_this_ranks_alone)
{
    ceclExplanation_t e;
    ceclLimits_t limits;
    ceclPoolStats_t stats;
    ceclRegistration_t handle;
    ceclResult_t error;
    void *mine, *shard;
    OK(ceclMemAlloc(r->comm, &mine, (size_t)(r->rank + 1) << 20)); /* sizes may differ */
    OK(ceclMemFree(r->comm, mine));
    REFUSED(ceclMemFree(r->comm, mine), ceclInvalidArgument, "not allocated");
    OK(ceclPoolStats(r->comm, &stats));
    CHECK(stats.usedBytes == 2 * ROOM);
    OK(ceclCommRegister(r->comm, r->send, ROOM, &handle));
    OK(ceclCommDeregister(r->comm, handle));
    OK(ceclShard(r->comm, r->recv, 10, ceclInt32, &shard));
    CHECK((unsigned char *)shard == r->recv + 40 * r->rank);
    OK(ceclCommLimits(r->comm, &limits));
    CHECK(limits.groupCalls > 100 && limits.groupMessages > 100 && !limits.hostFlags);
    OK(ceclExplain(ceclOpAllGather, r->send, r->recv, 100, ceclInt8, r->comm, &e));
    CHECK(!e.zeroSm && strstr(e.path, "carried by NCCL") && strstr(e.reason, "on its SMs"));
    OK(ceclGroupStart());
    OK(ceclBarrier(r->comm, r->stream));
    OK(ceclGroupExplain(r->comm, &e));
    CHECK(!e.zeroSm && strstr(e.path, "carried by NCCL"));
    OK(ceclCommGetAsyncError(r->comm, &error));
    CHECK(error == ceclSuccess);
}

#define LACKS(words, call) REFUSED(call, ceclInvalidUsage, words)

TEST_ON(two_and_two, what_nccl_lacks_is_refused_by_name)
{
    const ceclStrided_t strided = {.width = 4, .rows = 2};
    const ceclTiles_t tiles = {.count = 1, .width = 4, .rows = 2};
    const ceclExperts_t experts = {.experts = 1, .align = 1};
    const ceclStream_t stream = r->stream;
    unsigned char *send = r->send, *recv = r->recv;
    uint64_t *splits = (uint64_t *)(void *)send, *out = (uint64_t *)(void *)recv;
    const ceclSignalWait_t wait = {.peer = 0, .count = 1};
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    ceclDeviceComm_t dc;
    ceclWindow_t window = NULL;
    ceclComm_t child, comm = r->comm;
    void *p;
    size_t bytes;
    LACKS("call ceclAllGather", ceclAllGatherStrided(send, recv, &strided, ceclInt8, comm, stream));
    LACKS("call ceclAlltoAll", ceclAlltoAllStrided(send, recv, &strided, ceclInt8, comm, stream));
    LACKS("another buffer", ceclAlltoAll(recv, recv, 4, ceclInt8, comm, stream));
    LACKS("call ceclReduceScatter",
          ceclReduceScatterTiles(send, recv, &tiles, ceclInt32, ceclSum, comm, stream));
    LACKS("convert sendbuff, and call ceclReduceScatter",
          ceclReduceScatterAs(send, recv, 4, ceclBfloat16, ceclFloat32, ceclSum, comm, stream));
    LACKS("call ceclAlltoAllv", ceclAlltoAllvDevice(send + 4096, 1, splits, recv + 4096, 1, out, 1,
                                                    ceclInt8, comm, stream));
    LACKS("call ceclAlltoAllv", ceclDispatch(send + 4096, 1, splits, recv + 4096, 1, out, &experts,
                                             1, ceclInt8, comm, stream));
    LACKS("call ceclAlltoAllv", ceclCombine(send + 4096, 1, splits, recv + 4096, 1, out, &experts,
                                            1, ceclInt8, comm, stream));
    LACKS("ceclSend", ceclGetPeerPointer(comm, send, 0, &p));
    LACKS("ceclCommSplit", ceclCommGetDeviceComm(comm, &dc));
    LACKS("ceclCommSplit", ceclCommGetSharedMemory(comm, &p, &bytes));
    LACKS("ceclSend", ceclWindowShare(comm, send, 64, &window));
    LACKS("ceclSend", ceclWindowFree(comm, window));
    LACKS("ceclSend", ceclWindowPointer(comm, window, 0, &p));
    LACKS("ceclSend", ceclPut(send, 1, ceclInt8, 0, window, 0, comm, stream));
    LACKS("ceclSend", ceclGet(recv, 1, ceclInt8, 0, window, 0, comm, stream));
    LACKS("ceclSend", ceclPutSignal(send, 1, ceclInt8, 0, window, 0, 0, comm, stream));
    LACKS("ceclSend", ceclSignal(0, 0, comm, stream));
    LACKS("ceclSend", ceclWaitSignal(1, &wait, comm, stream));
    LACKS("ceclCommInitRank", ceclCommShrink(comm, NULL, 0, &child, NULL));
    options.smPolicy = CECL_SM_NEVER;
    LACKS("on its SMs", ceclSetOptions(comm, &options));
    options.smPolicy = CECL_SM_ALLOW;
    OK(ceclSetOptions(comm, &options));
    options.maxSms = 3;
    LACKS("maxSms", ceclSetOptions(comm, &options));
    OK(ceclSetOptions(comm, NULL));
    CHECK(gathers(r, comm));
}

static void join_by_callbacks(struct rank *r)
{
    const ceclOob_t oob = {r, rank_gather, NULL};
    OK(ceclCommInitOob(&r->comm, r->nranks, r->rank, &oob, NULL));
    OK(ceclStreamCreate(r->comm, &r->stream));
    OK(ceclMemAlloc(r->comm, (void **)&r->send, ROOM));
    OK(ceclMemAlloc(r->comm, (void **)&r->recv, ROOM));
    CHECK(strstr(way_of(r, r->comm), "carried by NCCL") && gathers(r, r->comm));
    split_by_host(r);
    if (!r->failed)
        OK(ceclCommDestroy(r->comm));
}

TEST(ranks_join_by_callbacks)
{
    const struct setup setup = {.nranks = 4, .node_size = "2"};
    assert_true(ranks_run(&setup, join_by_callbacks));
}

static void join_as_threads(struct rank *r)
{
    ceclComm_t comms[4];
    REFUSED(ceclCommInitAll(comms, 4, NULL), ceclInvalidUsage, "call ceclCommInitRank");
}

TEST(one_call_for_all_ranks_is_refused)
{
    const struct setup setup = {.nranks = 1, .node_size = "2"};
    if (on_gpus())
        skip_because("it needs the host device");
    assert_true(ranks_run(&setup, join_as_threads));
}

static const char *expected; /* what each rank's message contains */
static ceclResult_t expected_result;

static void join_fails(struct rank *r)
{
    REFUSED(ceclCommInitRank(&r->comm, r->nranks, r->id, r->rank), expected_result, expected);
}

/* Whether all ranks are refused with the same reason if the variable is set on rank `only` (negative: on all). */
static bool refuses(const char *name, const char *value, int only, ceclResult_t result,
                    const char *text)
{
    const struct setup setup = {
        .nranks = 4, .node_size = "2", .name = name, .value = value, .only = only};
    expected = text;
    expected_result = result;
    return ranks_run(&setup, join_fails);
}

TEST(nccl_is_missing)
{
    assert_true(refuses("CECL_NCCL_PATH", "/nowhere", -1, ceclSystemError, "/nowhere"));
    assert_true(refuses("CECL_NCCL_PATH", "/nowhere", 2, ceclSystemError, "/nowhere"));
}

TEST(nccl_is_too_old)
{
    if (on_gpus())
        skip_because("it needs the stand-in");
    assert_true(refuses("CECL_TEST_NCCL_VERSION", "21605", -1, ceclSystemError, "2.17"));
    assert_true(refuses("CECL_TEST_NCCL_VERSION", "21605", 3, ceclSystemError, "2.17"));
}

TEST(nccl_differs_on_one_rank)
{
    if (on_gpus())
        skip_because("it needs the stand-in");
    assert_true(refuses("CECL_TEST_NCCL_VERSION", "22100", 1, ceclInvalidUsage,
                        "different versions of NCCL: 22100 on rank 1, 22809 on rank 0"));
}

TEST(sm_never_is_refused)
{
    assert_true(refuses("CECL_SM_POLICY", "never", -1, ceclInvalidUsage, "CECL_SM_NEVER"));
}

TEST(the_host_device_without_a_stand_in_is_refused)
{
    if (on_gpus())
        skip_because("it needs the host device");
    assert_true(
        refuses("CECL_NCCL_PATH", NULL, -1, ceclInvalidUsage,
                "ranks are on 2 hosts: all ranks on one host, in one network namespace, "
                "expected (is CECL_NODE_SIZE set?); over several hosts NCCL carries calls, on "
                "GPUs only"));
}

/* A barrier of all ranks, without cecl. */
static bool meets(struct rank *r)
{
    unsigned char mine = 0, all[RANKS_MOST];
    return rank_gather(r, &mine, all, 1) == 0;
}

/* Rank `victim` is killed while the others wait for it. */
static int victim;

static void one_is_killed(struct rank *r)
{
    char name[32];
    CHECK(gathers(r, r->comm) && meets(r));
    if (r->rank == victim)
        raise(SIGKILL);
    snprintf(name, sizeof(name), victim == 0 ? "made the unique id has ended" : "rank %d has ended",
             victim);
    const ceclResult_t made = ceclBarrier(r->comm, r->stream);
    CHECK(made == ceclSuccess || made == ceclRemoteError);
    CHECK(rank_await_failure(r) == ceclRemoteError);
    CHECK(strstr(ceclGetLastError(r->comm), name));
    CHECK(ceclBarrier(r->comm, r->stream) == ceclRemoteError);
    ceclCommAbort(r->comm);
    r->comm = NULL;
}

TEST(a_killed_rank_is_named)
{
    for (victim = 0; victim < 4; victim++)
        assert_true(ranks_run(&two_and_two, one_is_killed));
}

static int dies_after_us;

static void one_dies_joining(struct rank *r)
{
    const struct itimerval timer = {.it_value.tv_usec = dies_after_us};
    const time_t start = time(NULL);
    char name[16];
    snprintf(name, sizeof(name), "rank %d", victim);
    CHECK(meets(r));
    if (r->rank == victim)
        setitimer(ITIMER_REAL, &timer, NULL); /* SIGALRM ends the process */
    const ceclResult_t made = ceclCommInitRank(&r->comm, r->nranks, r->id, r->rank);
    if (r->rank == victim)
        raise(SIGKILL);
    CHECK(made != ceclSuccess || rank_await_failure(r) == ceclRemoteError);
    CHECK(rank_says(r, name) ||
          rank_says(r, "unique id")); /* for ranks that come late, the id is used up */
    CHECK(time(NULL) - start < PROMPT);
    if (r->comm)
        ceclCommAbort(r->comm);
}

TEST(a_rank_that_dies_while_it_joins_is_named)
{
    const struct setup setup = {.nranks = 4,
                                .node_size = "2",
                                .name = "CECL_INIT_TIMEOUT_MS", /* ends a wait for a dead victim */
                                .value = "10000",
                                .only = -1};
    for (int i = 0; i < 16; i++) {
        victim = i % 4;
        dies_after_us = 1000 + 500 * i;
        assert_true(ranks_run(&setup, one_dies_joining));
    }
}

static bool leaves; /* whether rank 1 leaves, or only makes no call */

static void one_does_not_call(struct rank *r)
{
    CHECK(gathers(r, r->comm));
    if (r->rank == 1 && leaves)
        return;
    if (r->rank != 1)
        CHECK(ceclBarrier(r->comm, r->stream) != ceclSuccess);
    CHECK(rank_await_failure(r) != ceclSuccess);
    CHECK(strstr(ceclGetLastError(r->comm),
                 leaves ? "rank 1 has left" : "has waited for other ranks"));
    ceclCommAbort(r->comm);
    r->comm = NULL;
}

static bool time_limit_ends_the_wait(const char *limit_ms)
{
    const struct setup setup = {.nranks = 4,
                                .node_size = "2",
                                .joins = true,
                                .name = "CECL_TIMEOUT_MS",
                                .value = limit_ms,
                                .only = -1};
    return ranks_run(&setup, one_does_not_call);
}

/* The longer limit is for a machine that is so busy that the first calls do not end within the shorter one. */
TEST(a_rank_that_does_not_call_runs_into_the_time_limit_and_is_named_if_it_has_left)
{
    for (int also = 0; also < 2; also++) {
        leaves = also;
        assert_true(time_limit_ends_the_wait("2000") || time_limit_ends_the_wait("20000"));
    }
}

TEST_ON(two_and_two, a_revoked_communicator_fails_everywhere)
{
    CHECK(gathers(r, r->comm) && meets(r));
    if (r->rank == 2)
        OK(ceclCommRevoke(r->comm));
    CHECK(rank_await_failure(r) == ceclRemoteError);
    CHECK(strstr(ceclGetLastError(r->comm), "ceclCommRevoke"));
    CHECK(r->rank == 2 || strstr(ceclGetLastError(r->comm), "rank 2 gave up"));
    ceclCommAbort(r->comm);
    r->comm = NULL;
}

/* Ranks that leave after their last call do no harm, not even the one whose process made the unique id. */
TEST_ON(two_and_two, ranks_may_leave_early)
{
    ceclResult_t error;
    CHECK(gathers(r, r->comm));
    if (r->rank == 3)
        exit(0); /* without ceclCommDestroy */
    if (r->rank < 2) {
        OK(ceclCommFinalize(r->comm));
        OK(ceclCommDestroy(r->comm));
        exit(0);
    }
    sleep(1);
    OK(ceclCommGetAsyncError(r->comm, &error));
    CHECK(error == ceclSuccess);
}
