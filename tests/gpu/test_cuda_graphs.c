/* CUDA graphs that capture calls: their nodes, and their effects when they are launched, cloned, updated and destroyed
 * in any order. Two processes are the ranks, on two GPUs, or on one with CECL_SHARE_GPU=1. */
#include "../with_cmocka.h"

#include <cecl/cecl.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/wait.h>

#define COUNT 20000u /* elements of a block */
#define RANKS 2
#define PROGRAM_S 200

static int rank, to_child[2], to_parent[2];
static ceclComm_t comm;
static cudaStream_t stream, other;
static uint32_t *sendbuff, *recvbuff; /* RANKS blocks each */

#define OK(expr) \
    do { \
        if ((expr) != ceclSuccess) \
            fail_msg("rank %d: %s: %s", rank, #expr, ceclGetLastError(comm)); \
    } while (0)
#define CUDA(expr) \
    do { \
        const cudaError_t error_ = (expr); \
        if (error_ != cudaSuccess) \
            fail_msg("rank %d: %s: %s", rank, #expr, cudaGetErrorString(error_)); \
    } while (0)

static void give(int fd, const void *bytes, size_t count)
{
    assert_int_equal(write(fd, bytes, count), (ssize_t)count);
}

static void take(int fd, void *bytes, size_t count)
{
    char *at = bytes;
    while (count > 0) {
        const ssize_t got = read(fd, at, count);
        assert_true(got > 0);
        at += got;
        count -= (size_t)got;
    }
}

static void meet(void)
{
    char byte = 1;
    give(rank == 0 ? to_child[1] : to_parent[1], &byte, 1);
    take(rank == 0 ? to_parent[0] : to_child[0], &byte, 1);
}

static int open_comm(void **state)
{
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclUniqueId id;
    int gpus = 0;
    CUDA(cudaGetDeviceCount(&gpus));
    config.cudaDevice = gpus > 1 ? rank : 0;
    CUDA(cudaSetDevice(config.cudaDevice));
    if (rank == 0) {
        OK(ceclGetUniqueId(&id));
        give(to_child[1], &id, sizeof(id));
    } else {
        take(to_child[0], &id, sizeof(id));
    }
    OK(ceclCommInitRankConfig(&comm, RANKS, id, rank, &config));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(ceclMemAlloc(comm, (void **)&sendbuff, RANKS * COUNT * sizeof(*sendbuff)));
    OK(ceclMemAlloc(comm, (void **)&recvbuff, RANKS * COUNT * sizeof(*recvbuff)));
    return 0;
}

static int close_comm(void **state)
{
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaStreamDestroy(other));
    OK(ceclCommDestroy(comm));
    meet();
    return 0;
}

enum kind {
    GATHER_IN_PLACE,
    GATHER,
    EXCHANGE,
    BROADCAST,
    BARRIER,
    SWAP,
    SUM_ALL,
    SUM_SCATTER,
    KINDS
};
static ceclResult_t swap(cudaStream_t s)
{
    OK(ceclGroupStart());
    OK(ceclSend(sendbuff, COUNT, ceclUint32, 1 - rank, comm, s));
    OK(ceclRecv(recvbuff, COUNT, ceclUint32, 1 - rank, comm, s));
    return ceclGroupEnd();
}

static ceclResult_t call(enum kind kind, cudaStream_t s)
{
    switch (kind) {
    case GATHER_IN_PLACE:
        return ceclAllGather(recvbuff + (size_t)rank * COUNT, recvbuff, COUNT, ceclUint32, comm, s);
    case GATHER: return ceclAllGather(sendbuff, recvbuff, COUNT, ceclUint32, comm, s);
    case EXCHANGE: return ceclAlltoAll(sendbuff, recvbuff, COUNT, ceclUint32, comm, s);
    case BROADCAST: return ceclBroadcast(sendbuff, recvbuff, COUNT, ceclUint32, 1, comm, s);
    case BARRIER: return ceclBarrier(comm, s);
    case SWAP: return swap(s);
    case SUM_ALL: return ceclAllReduce(sendbuff, recvbuff, COUNT, ceclUint32, ceclSum, comm, s);
    case SUM_SCATTER:
        return ceclReduceScatter(sendbuff, recvbuff, COUNT, ceclUint32, ceclSum, comm, s);
    case KINDS: break;
    }
    return ceclInternalError;
}

static uint32_t given(uint32_t seed, int of, size_t i)
{
    return (uint32_t)((i + 1) * 2654435761u) ^ (seed * 97u + (uint32_t)of * 40503u);
}

static uint32_t host[RANKS * COUNT];

static void put(enum kind kind, uint32_t seed, cudaStream_t s)
{
    uint32_t *input = kind == GATHER_IN_PLACE ? recvbuff + (size_t)rank * COUNT : sendbuff;
    const size_t count = kind == GATHER_IN_PLACE ? COUNT : RANKS * COUNT;
    for (size_t i = 0; i < count; i++)
        host[i] = given(seed, rank, i);
    CUDA(cudaMemcpyAsync(input, host, count * sizeof(*host), cudaMemcpyDefault, s));
    CUDA(cudaStreamSynchronize(s));
}

static void check(uint32_t seed, cudaStream_t s)
{
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemcpy(host, recvbuff, sizeof(host), cudaMemcpyDefault));
    for (size_t i = 0; i < RANKS * COUNT; i++)
        if (host[i] != given(seed, (int)(i / COUNT), i % COUNT))
            fail_msg("rank %d, seed %u: element %zu is wrong", rank, seed, i);
}

static cudaGraph_t captured(enum kind kind, int times, cudaStream_t s,
                            enum cudaStreamCaptureMode mode)
{
    cudaGraph_t graph = NULL;
    CUDA(cudaStreamBeginCapture(s, mode));
    for (int i = 0; i < times; i++)
        OK(call(kind, s));
    CUDA(cudaStreamEndCapture(s, &graph));
    return graph;
}

static cudaGraphExec_t made_of(cudaGraph_t graph)
{
    cudaGraphExec_t exec = NULL;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

/* Functions of the driver about nodes, because the runtime does not know all kinds of nodes. */
static struct {
    CUresult (*get_nodes)(CUgraph, CUgraphNode *, size_t *);
    CUresult (*get_type)(CUgraphNode, CUgraphNodeType *);
    CUresult (*get_before)(CUgraphNode, CUgraphNode *, size_t *);
} driver;

static void find_functions(void)
{
    static const char *const names_of[] = {"cuGraphGetNodes", "cuGraphNodeGetType",
                                           "cuGraphNodeGetDependencies"};
    void *const places[] = {&driver.get_nodes, &driver.get_type, &driver.get_before};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
    for (int i = 0; i < 3; i++) {
        void *function = dlsym(library, names_of[i]);
        assert_non_null(function);
        memcpy(places[i], &function, sizeof(function));
    }
}

static CUgraphNodeType type_of(CUgraphNode node)
{
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    assert_int_equal(driver.get_type(node, &type), CUDA_SUCCESS);
    return type;
}

static void count_nodes(cudaGraph_t graph, size_t counts[32])
{
    CUgraphNode nodes[512];
    size_t count = 512;
    find_functions();
    memset(counts, 0, 32 * sizeof(*counts));
    assert_int_equal(driver.get_nodes(graph, nodes, &count), CUDA_SUCCESS);
    assert_true(count < 512);
    for (size_t i = 0; i < count; i++)
        counts[(size_t)type_of(nodes[i]) % 32]++;
}

static size_t all_of(const size_t counts[32])
{
    size_t all = 0;
    for (int i = 0; i < 32; i++)
        all += counts[i];
    return all;
}

/* An in-place gather, or a send and a receive, has these nodes between two event nodes: a batch of memory operations, a
 * copy to the one peer, and another batch. */
TEST(each_call_has_the_nodes_that_its_plan_has)
{
    static const size_t copies[] = {1, 2, 2, 1, 0, 1}, batches[] = {2, 3, 3, 2, 1, 2};
    for (int kind = 0; kind < KINDS; kind++) {
        size_t counts[32];
        cudaGraph_t graph = captured((enum kind)kind, 1, stream, cudaStreamCaptureModeThreadLocal);
        count_nodes(graph, counts);
        assert_int_equal(counts[CU_GRAPH_NODE_TYPE_WAIT_EVENT], 1);
        assert_int_equal(counts[CU_GRAPH_NODE_TYPE_EVENT_RECORD], 1);
        assert_int_equal(all_of(counts), counts[CU_GRAPH_NODE_TYPE_WAIT_EVENT] +
                                             counts[CU_GRAPH_NODE_TYPE_EVENT_RECORD] +
                                             counts[CU_GRAPH_NODE_TYPE_MEMCPY] +
                                             counts[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] +
                                             counts[CU_GRAPH_NODE_TYPE_KERNEL]);
        if (kind >= SUM_ALL) {
            assert_true(counts[CU_GRAPH_NODE_TYPE_KERNEL] > 0);
        } else { /* no kernel: copies need no SM if each rank has its own GPU */
            assert_int_equal(counts[CU_GRAPH_NODE_TYPE_KERNEL], 0);
            if (kind == GATHER_IN_PLACE || kind == BARRIER || kind == SWAP) {
                assert_int_equal(counts[CU_GRAPH_NODE_TYPE_MEMCPY], copies[kind]);
                assert_int_equal(counts[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP], batches[kind]);
            }
        }
        CUDA(cudaGraphDestroy(graph));
    }
}

/* Only at its start does a graph wait for other launches. */
TEST(several_calls_of_one_graph_wait_once)
{
    size_t counts[32];
    cudaGraph_t graph = captured(GATHER_IN_PLACE, 4, stream, cudaStreamCaptureModeThreadLocal);
    count_nodes(graph, counts);
    assert_int_equal(counts[CU_GRAPH_NODE_TYPE_WAIT_EVENT], 1);
    assert_int_equal(counts[CU_GRAPH_NODE_TYPE_MEMCPY], 4);
    CUDA(cudaGraphDestroy(graph));
}

/* ---- launching; tests/multi/test_graphs.c checks results of all kinds of calls, also on GPUs */

/* While the stream captures, this rank publishes new memory, and the peer imports it. */
TEST(new_memory_is_told_during_a_global_capture)
{
    uint32_t *plain, *former = recvbuff;
    CUDA(cudaMalloc((void **)&plain, RANKS * COUNT * sizeof(*plain)));
    recvbuff = plain;
    cudaGraph_t graph = captured(GATHER_IN_PLACE, 1, stream, cudaStreamCaptureModeGlobal);
    cudaGraphExec_t exec = made_of(graph);
    put(GATHER_IN_PLACE, 5, stream);
    CUDA(cudaGraphLaunch(exec, stream));
    check(5, stream);
    meet();
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    recvbuff = former;
    meet();
    CUDA(cudaFree(plain));
}

#define LARGE ((size_t)(4 << 20) + 24) /* elements of a block: 16 MiB */

static bool follows_two_copies(cudaGraph_t graph)
{
    CUgraphNode nodes[64], before[64];
    size_t count = 64;
    find_functions();
    assert_int_equal(driver.get_nodes(graph, nodes, &count), CUDA_SUCCESS);
    for (size_t i = 0; i < count; i++) {
        size_t nbefore = 64, copies = 0;
        assert_int_equal(driver.get_before(nodes[i], before, &nbefore), CUDA_SUCCESS);
        for (size_t j = 0; j < nbefore; j++)
            copies += type_of(before[j]) == CU_GRAPH_NODE_TYPE_MEMCPY;
        if (copies == 2)
            return true;
    }
    return false;
}

/* test_zero_sm.c launches such a graph. */
TEST(copies_of_a_large_batch_are_two_chains)
{
    uint32_t *in = NULL, *out = NULL;
    cudaGraph_t graph = captured(EXCHANGE, 1, stream, cudaStreamCaptureModeThreadLocal);
    assert_false(follows_two_copies(graph));
    CUDA(cudaGraphDestroy(graph));
    OK(ceclMemAlloc(comm, (void **)&in, RANKS * LARGE * sizeof(*in)));
    OK(ceclMemAlloc(comm, (void **)&out, RANKS * LARGE * sizeof(*out)));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(ceclAlltoAll(in, out, LARGE, ceclUint32, comm, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    assert_true(follows_two_copies(graph));
    CUDA(cudaGraphDestroy(graph));
    OK(ceclMemFree(comm, in));
    OK(ceclMemFree(comm, out));
}

/* The broken capture holds a call. When the capture is ended, the call is gone, and the stream can capture again. */
TEST(a_broken_capture_can_be_ended)
{
    ceclGraph_t graph = NULL;
    OK(ceclStreamBeginCapture(comm, stream));
    OK(call(GATHER, stream));
    assert_int_not_equal(cudaStreamSynchronize(stream), cudaSuccess); /* breaks the capture */
    assert_int_equal(call(GATHER, stream), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(comm), "was broken"));
    assert_int_equal(ceclStreamEndCapture(comm, stream, &graph), ceclUnhandledCudaError);
    assert_null(graph);
    (void)cudaGetLastError();
    OK(ceclStreamBeginCapture(comm, stream));
    OK(call(GATHER, stream));
    OK(ceclStreamEndCapture(comm, stream, &graph));
    put(GATHER, 9, stream);
    OK(ceclGraphLaunch(graph, stream));
    check(9, stream);
    meet();
    OK(ceclGraphDestroy(graph));
}

static void launch_and_check(cudaGraphExec_t exec, uint32_t seed)
{
    put(GATHER, seed, stream);
    CUDA(cudaGraphLaunch(exec, stream));
    check(seed, stream);
    meet();
}

TEST(clones_outlive_what_they_were_made_of)
{
    cudaGraph_t clone = NULL;
    cudaGraph_t graph = captured(GATHER, 1, stream, cudaStreamCaptureModeThreadLocal);
    cudaGraphExec_t first = made_of(graph);
    CUDA(cudaGraphClone(&clone, graph));
    CUDA(cudaGraphDestroy(graph));
    cudaGraphExec_t second = made_of(clone);
    launch_and_check(first, 1);
    launch_and_check(second, 2);
    CUDA(cudaGraphExecDestroy(first));
    CUDA(cudaGraphDestroy(clone));
    launch_and_check(second, 3);
    assert_int_equal(ceclMemFree(comm, recvbuff), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(NULL), "a graph holds"));
    launch_and_check(second, 4);
    CUDA(cudaGraphExecDestroy(second));
    OK(ceclMemFree(comm, recvbuff));
    OK(ceclMemAlloc(comm, (void **)&recvbuff, RANKS * COUNT * sizeof(*recvbuff)));
}

TEST(a_graph_that_was_updated_does_the_new_call)
{
    uint32_t *former = recvbuff;
    cudaGraphExecUpdateResultInfo info;
    cudaGraph_t graph = captured(GATHER, 1, stream, cudaStreamCaptureModeThreadLocal);
    cudaGraphExec_t exec = made_of(graph);
    launch_and_check(exec, 6);
    CUDA(cudaGraphDestroy(graph));
    OK(ceclMemAlloc(comm, (void **)&recvbuff, RANKS * COUNT * sizeof(*recvbuff)));
    graph = captured(GATHER, 1, stream, cudaStreamCaptureModeThreadLocal);
    CUDA(cudaGraphExecUpdate(exec, graph, &info));
    CUDA(cudaGraphDestroy(graph));
    launch_and_check(exec, 7);
    OK(ceclMemFree(comm, former)); /* only the call before the update used it */
    launch_and_check(exec, 8);
    CUDA(cudaGraphExecDestroy(exec));
}

TEST(captures_that_come_and_go_leave_memory_free)
{
    size_t before = 0, after = 0, all = 0;
    for (int i = 0; i < 300; i++) {
        cudaGraph_t graph = captured(GATHER, 2, stream, cudaStreamCaptureModeThreadLocal);
        cudaGraphExec_t exec = made_of(graph);
        if (i % 2)
            CUDA(cudaGraphDestroy(graph));
        CUDA(cudaGraphLaunch(exec, stream));
        CUDA(cudaGraphExecDestroy(exec)); /* the graph's launch may still be running */
        if (i % 2 == 0)
            CUDA(cudaGraphDestroy(graph));
        if (i == 50)
            CUDA(cudaMemGetInfo(&before, &all));
    }
    CUDA(cudaStreamSynchronize(stream));
    meet();
    CUDA(cudaMemGetInfo(&after, &all));
    assert_true(before < after + ((size_t)64 << 20)); /* the other rank may use the GPU too */
}

int main(void)
{
    int status = 0;
    alarm(PROGRAM_S);
    if (pipe(to_child) != 0 || pipe(to_parent) != 0)
        return 1;
    const pid_t child = fork();
    if (child < 0)
        return 1;
    rank = child == 0;
    alarm(PROGRAM_S);
    const int failed = tests_run(open_comm, close_comm);
    if (rank == 1)
        _exit(failed != 0);
    return waitpid(child, &status, 0) != child || status != 0 || failed != 0;
}
