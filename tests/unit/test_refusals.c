/* Calls each public function with a wrong argument, if an argument can be wrong. The message begins with the function's
 * name, and says the argument and its value. A function of cecl.h that is missing here fails the test. */
#include "../with_cmocka.h"

#include <cecl/cecl_device.h>

#define RANKS 1 /* no call waits for another rank */
#include "comms.h"

#define COUNT 16
static ceclComm_t comm;
static int *buffer; /* COUNT integers of symmetric memory */
static char tried[16384] = " ";

static int set_up(void **state)
{
    open_all(state);
    comm = comms[0];
    OK(ceclMemAlloc(comm, (void **)&buffer, COUNT * sizeof(int)));
    return 0;
}

/* The message of this thread must be "NAME: ...", and contain `words`. */
static void check(const char *name, ceclResult_t result, const char *words)
{
    const char *message = ceclGetLastError(NULL);
    const size_t length = strlen(name);
    assert_true(strlen(tried) + length + 2 < sizeof(tried));
    strcat(strcat(tried, name), " ");
    print_message("%s\n", message);
    if (result == ceclSuccess || (strstr(words, ": NULL") && result != ceclInvalidArgument))
        fail_msg("%s returns %d; \"%s\" expected", name, (int)result, words);
    if (strncmp(message, name, length) != 0 || strncmp(message + length, ": ", 2) != 0 ||
        strstr(message + length + 2, name) || !strstr(message, words))
        fail_msg("%s says \"%s\"; \"%s: ...\" with \"%s\" expected", name, message, name, words);
}
#define REFUSED(words, name, ...) check(#name, name(__VA_ARGS__), words)
#define GROUP_END_REFUSED(words) check("ceclGroupEnd", ceclGroupEnd(), words)

TEST(questions)
{
    void *memory;
    REFUSED("version: NULL", ceclGetVersion, NULL);
    REFUSED("comm: NULL", ceclCommCount, NULL, NULL);
    REFUSED("comm: NULL", ceclCommUserRank, NULL, NULL);
    REFUSED("comm: NULL", ceclCommCuDevice, NULL, NULL);
    REFUSED("comm: NULL", ceclCommNodes, NULL, NULL);
    REFUSED("comm: NULL", ceclCommGetAsyncError, NULL, NULL);
    REFUSED("comm: NULL", ceclCommLimits, NULL, NULL);
    REFUSED("comm: NULL", ceclCommGetSharedMemory, NULL, NULL, NULL);
    REFUSED("count: NULL", ceclCommCount, comm, NULL);
    REFUSED("rank: NULL", ceclCommUserRank, comm, NULL);
    REFUSED("device: NULL", ceclCommCuDevice, comm, NULL);
    REFUSED("nodes: NULL", ceclCommNodes, comm, NULL);
    REFUSED("asyncError: NULL", ceclCommGetAsyncError, comm, NULL);
    REFUSED("limits: NULL", ceclCommLimits, comm, NULL);
    REFUSED("stats: NULL", ceclPoolStats, comm, NULL);
    REFUSED("stats: NULL", ceclCallStats, comm, NULL);
    REFUSED("dc: NULL", ceclCommGetDeviceComm, comm, NULL);
    REFUSED("memory: NULL", ceclCommGetSharedMemory, comm, NULL, NULL);
    REFUSED("bytes: NULL", ceclCommGetSharedMemory, comm, &memory, NULL);
}

static int gather(void *context, const void *send, void *recv, size_t bytes)
{
    memcpy(recv, send, bytes);
    return 0;
}

TEST(communicators)
{
    static const int nobody[] = {7};
    const ceclOob_t oob = {NULL, gather, NULL}, half = {NULL, NULL, NULL};
    ceclConfig_t config = CECL_CONFIG_INITIALIZER;
    ceclUniqueId id;
    ceclComm_t made;
    OK(ceclGetUniqueId(&id));
    config.smPolicy = 17;
    REFUSED("id: NULL", ceclGetUniqueId, NULL);
    REFUSED("nranks -3: 1 to ", ceclCommInitRank, &made, -3, id, 0);
    REFUSED("nranks 1025: 1 to 1024", ceclCommInitRank, &made, 1025, id, 0);
    REFUSED("rank 4: 0 to 0 expected", ceclCommInitRank, &made, 1, id, 4);
    REFUSED("config.smPolicy = 17: 0 to 2 expected", ceclCommInitRankConfig, &made, 1, id, 0,
            &config);
    REFUSED("comm: NULL", ceclCommInitRankConfig, NULL, 1, id, 0, NULL);
    REFUSED("comm: NULL", ceclCommInitAll, NULL, 1, NULL);
    memset(&id, 0, sizeof(id));
    REFUSED("nranks 100000", ceclCommInitRank, &made, 100000, id, 0);
    REFUSED("not made by ceclGetUniqueId", ceclCommInitRank, &made, 4, id, 0);
    REFUSED("nranks 0: 1 to ", ceclCommInitAll, &made, 0, NULL);
    REFUSED("devlist[0] = -2", ceclCommInitAll, &made, 1, (const int[]){-2});
    REFUSED("devlist[1] = -7", ceclCommInitAll, (ceclComm_t[2]){NULL}, 2, (const int[]){0, -7});
    REFUSED("oob: NULL", ceclCommInitOob, &made, 1, 0, NULL, NULL);
    REFUSED("oob->allGather: NULL", ceclCommInitOob, &made, 1, 0, &half, NULL);
    REFUSED("rank -1: 0 to 0 expected", ceclCommInitOob, &made, 1, -1, &oob, NULL);
    REFUSED("color -5", ceclCommSplit, comm, -5, 0, &made, NULL);
    REFUSED("newcomm: NULL", ceclCommSplit, comm, 0, 0, NULL, NULL);
    REFUSED("excludeCount -1: 0 to 0 expected", ceclCommShrink, comm, NULL, -1, &made, NULL);
    REFUSED("excludeCount 1: 0 to 0 expected", ceclCommShrink, comm, nobody, 1, &made, NULL);
    REFUSED("comm: NULL", ceclCommFinalize, NULL);
    REFUSED("comm: NULL", ceclCommDestroy, NULL);
    REFUSED("comm: NULL", ceclCommAbort, NULL);
    REFUSED("comm: NULL", ceclCommRevoke, NULL);
}

TEST(memory)
{
    ceclRegistration_t handle;
    void *at;
    char outside[8];
    REFUSED("ptr: NULL", ceclMemAlloc, comm, NULL, 8);
    REFUSED("bytes 18446744073709551615", ceclMemAlloc, comm, &at, SIZE_MAX);
    snprintf(outside, sizeof(outside), "ptr ");
    REFUSED("ptr 0x", ceclMemFree, comm, outside);
    OK(ceclMemAlloc(comm, &at, 8));
    OK(ceclMemFree(comm, at));
    REFUSED("freed before?", ceclMemFree, comm, at);
    REFUSED("peer 3: 0 to 0 expected", ceclGetPeerPointer, comm, buffer, 3, &at);
    REFUSED("peerPtr: NULL", ceclGetPeerPointer, comm, buffer, 0, NULL);
    REFUSED("ptr 0x", ceclGetPeerPointer, comm, outside, 0, &at);
    REFUSED("ptr: NULL", ceclCommRegister, comm, NULL, 8, &handle);
    REFUSED("bytes 0 at 0x", ceclCommRegister, comm, outside, 0, &handle);
    REFUSED("handle: NULL", ceclCommRegister, comm, outside, 8, NULL);
    REFUSED("handle: NULL", ceclCommDeregister, comm, NULL);
    REFUSED("comm: NULL", ceclCommRegister, NULL, outside, 8, &handle);
    REFUSED("comm: NULL", ceclCommDeregister, NULL, NULL);
    REFUSED("bytes", ceclCommRegister, comm, outside, SIZE_MAX, &handle);
}

TEST(collectives)
{
    static const size_t counts[] = {COUNT}, at[] = {0}, more[] = {COUNT + 1};
    const ceclStrided_t strided = {.width = 2};
    const ceclTiles_t tiles = {.width = 2, .rows = 0, .count = 1, .begins = at};
    const ceclDataType_t type = ceclInt32, none = (ceclDataType_t)99;
    void *shard;
    REFUSED("datatype 99: 0 to ", ceclAllGather, buffer, buffer, COUNT, none, comm, NULL);
    REFUSED("recvbuff: NULL", ceclAllGather, buffer, NULL, COUNT, type, comm, NULL);
    REFUSED("datatype -1", ceclAlltoAll, buffer, buffer, COUNT, (ceclDataType_t)-1, comm, NULL);
    REFUSED("address space", ceclAllGather, buffer, buffer, SIZE_MAX / 2, type, comm, NULL);
    REFUSED("address space", ceclAlltoAll, buffer, buffer, SIZE_MAX / 2, type, comm, NULL);
    REFUSED("address space", ceclBroadcast, buffer, buffer, SIZE_MAX / 2, type, 0, comm, NULL);
    REFUSED("address space", ceclReduceScatter, buffer, buffer, SIZE_MAX / 2, type, ceclSum, comm,
            NULL);
    REFUSED("address space", ceclSend, buffer, SIZE_MAX / 2, type, 0, comm, NULL);
    REFUSED("sendbuff: NULL", ceclSend, NULL, 1, type, 0, comm, NULL);
    REFUSED("datatype 99", ceclSend, buffer, 1, none, 0, comm, NULL);
    REFUSED("sendbuff: NULL", ceclAllReduce, NULL, buffer, 1, type, ceclSum, comm, NULL);
    REFUSED("datatype 99", ceclAllReduce, buffer, buffer, 1, none, ceclSum, comm, NULL);
    REFUSED("ceclAvg", ceclReduceScatter, buffer, buffer, 1, type, ceclAvg, comm, NULL);
    REFUSED("not aligned to its elements of 4 bytes", ceclAllReduce, (char *)buffer + 2, buffer, 1,
            type, ceclSum, comm, NULL);
    REFUSED("sendbuff: NULL", ceclAllGatherv, NULL, 16, buffer, counts, NULL, type, comm, NULL);
    REFUSED("datatype 99", ceclAllGatherv, buffer, 16, buffer, counts, NULL, none, comm, NULL);
    REFUSED("datatype 99", ceclAlltoAllStrided, buffer, buffer, &strided, none, comm, NULL);
    REFUSED("recvbuff: NULL", ceclShard, comm, NULL, COUNT, type, &shard);
    REFUSED("shard: NULL", ceclShard, comm, buffer, COUNT, type, NULL);
    REFUSED("left in its allocation", ceclShard, comm, buffer, COUNT + 100, type, &shard);
    REFUSED("datatype 99", ceclShard, comm, buffer, COUNT, none, &shard);
    REFUSED("strided: NULL", ceclAllGatherStrided, buffer, buffer, NULL, type, comm, NULL);
    REFUSED("strided.rows: 0", ceclAllGatherStrided, buffer, buffer, &strided, type, comm, NULL);
    REFUSED("strided: NULL", ceclAlltoAllStrided, buffer, buffer, NULL, type, comm, NULL);
    REFUSED("recvcounts: NULL", ceclAllGatherv, buffer, 1, buffer, NULL, at, type, comm, NULL);
    REFUSED("sendcount 3", ceclAllGatherv, buffer, 3, buffer, counts, at, type, comm, NULL);
    REFUSED("sendbuff: NULL", ceclAlltoAll, NULL, buffer, COUNT, type, comm, NULL);
    REFUSED("root 5: 0 to 0 expected", ceclBroadcast, buffer, buffer, COUNT, type, 5, comm, NULL);
    REFUSED("sendcounts: NULL", ceclAlltoAllv, buffer, NULL, at, buffer, counts, at, type, comm,
            NULL);
    REFUSED("rank 0 sends 17 elements to rank 0 (sendcounts[0]), which expects 16", ceclAlltoAllv,
            buffer, more, at, buffer, counts, at, type, comm, NULL);
    REFUSED("peerdispls: NULL", ceclAlltoAllvAt, buffer, counts, at, buffer, counts, at, NULL, type,
            comm, NULL);
    REFUSED("root -1: 0 to 0 expected", ceclGather, buffer, buffer, 1, type, -1, comm, NULL);
    REFUSED("root -1: 0 to 0 expected", ceclScatter, buffer, buffer, 1, type, -1, comm, NULL);
    REFUSED("peer 1: 0 to 0 expected", ceclSend, buffer, 1, type, 1, comm, NULL);
    REFUSED("recvbuff: NULL", ceclRecv, NULL, 1, type, 0, comm, NULL);
    REFUSED("op 9", ceclReduceScatter, buffer, buffer, 1, type, (ceclRedOp_t)9, comm, NULL);
    REFUSED("sendtype 2: ceclFloat16 or", ceclReduceScatterAs, buffer, buffer, 1, type, ceclFloat,
            ceclSum, comm, NULL);
    REFUSED("recvtype 8: ceclFloat32 or sendtype (6) expected", ceclReduceScatterAs, buffer, buffer,
            1, ceclHalf, ceclDouble, ceclSum, comm, NULL);
    REFUSED("op 2: ceclSum or ceclAvg", ceclReduceScatterAs, buffer, buffer, 1, ceclHalf, ceclFloat,
            ceclMax, comm, NULL);
    REFUSED("must not overlap", ceclReduceScatterAs, buffer, buffer, 1, ceclHalf, ceclFloat,
            ceclSum, comm, NULL);
    REFUSED("not aligned to its elements of 4 bytes", ceclReduceScatterAs, buffer,
            (char *)buffer + 6, 1, ceclHalf, ceclFloat, ceclSum, comm, NULL);
    REFUSED("tiles.rows: 0", ceclReduceScatterTiles, buffer, buffer, &tiles, type, ceclSum, comm,
            NULL);
    REFUSED("count 18446744073709551615", ceclAllReduce, buffer, buffer, SIZE_MAX, type, ceclSum,
            comm, NULL);
    REFUSED("root 2: 0 to 0 expected", ceclReduce, buffer, buffer, 1, type, ceclSum, 2, comm, NULL);
    REFUSED("comm: NULL", ceclBarrier, NULL, NULL);
    REFUSED("stream 0x", ceclBarrier, comm, (ceclStream_t)(void *)buffer);
}

TEST(splits)
{
    uint64_t *from, *to;
    ceclExperts_t experts = {.experts = 1, .align = 9999999999};
    OK(ceclMemAlloc(comm, (void **)&from, sizeof(*from)));
    OK(ceclMemAlloc(comm, (void **)&to, 3 * sizeof(*to)));
    REFUSED("sendsplits: NULL", ceclAlltoAllvDevice, buffer, 1, NULL, buffer, 1, to, 1, ceclInt32,
            comm, NULL);
    REFUSED("rowcount 0: 1 or more expected", ceclAlltoAllvDevice, buffer, 1, from, buffer, 1, to,
            0, ceclInt32, comm, NULL);
    REFUSED("experts: NULL", ceclDispatch, buffer, 1, from, buffer, 1, to, NULL, 1, ceclInt32, comm,
            NULL);
    REFUSED("experts->align 9999999999: ", ceclDispatch, buffer, 1, from, buffer, 1, to, &experts,
            1, ceclInt32, comm, NULL);
    experts = (ceclExperts_t){.experts = 9999, .align = 1};
    REFUSED("experts->experts 9999: ", ceclCombine, buffer, 1, from, buffer, 1, to, &experts, 1,
            ceclInt32, comm, NULL);
    experts = (ceclExperts_t){.experts = 1,
                              .align = 1,
                              .scalebytes = SIZE_MAX / 2,
                              .sendscales = buffer,
                              .recvscales = buffer};
    REFUSED("experts->scalebytes 9223372036854775807", ceclDispatch, buffer, 8, from, buffer, 8, to,
            &experts, 1, ceclInt32, comm, NULL);
    REFUSED("datatype 2: ", ceclSumRows, buffer, 1, from, NULL, buffer, 1, 1, 1, ceclInt32, comm,
            NULL);
    REFUSED("nrows 18446744073709551615", ceclSumRows, buffer, SIZE_MAX, from, NULL, buffer, 1, 1,
            1, ceclFloat32, comm, NULL);
    REFUSED("tokens 18446744073709551615", ceclSumRows, buffer, 1, from, NULL, buffer, SIZE_MAX, 1,
            1, ceclFloat32, comm, NULL);
    REFUSED("rowcount 18446744073709551615", ceclSumRows, buffer, 1, from, NULL, buffer, 1, 1,
            SIZE_MAX, ceclFloat32, comm, NULL);
}

TEST(groups_and_options)
{
    ceclExplanation_t explanation;
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.direction = 9;
    REFUSED("options.direction = 9: 0 to 2 expected", ceclSetOptions, comm, &options);
    options = (ceclOptions_t)CECL_OPTIONS_INITIALIZER;
    options.smPolicy = 3;
    REFUSED("options.smPolicy = 3: 0 to 2 expected", ceclSetOptions, comm, &options);
    options = (ceclOptions_t){0};
    REFUSED("CECL_OPTIONS_INITIALIZER", ceclSetOptions, comm, &options);
    options = (ceclOptions_t)CECL_OPTIONS_INITIALIZER;
    GROUP_END_REFUSED("no ceclGroupStart");
    REFUSED("explanation: NULL", ceclExplain, ceclOpAllGather, buffer, buffer, 1, ceclInt32, comm,
            NULL);
    REFUSED("op 9", ceclExplain, (ceclOp_t)9, buffer, buffer, 1, ceclInt32, comm, &explanation);
    OK(ceclGroupStart());
    REFUSED("explanation: NULL", ceclGroupExplain, comm, NULL);
}

/* Calls are numbered over all communicators of the group. Some are refused at once, others at the group's end. */
TEST(a_group_names_the_call_and_its_number)
{
    ceclComm_t other;
    OK(ceclCommInitAll(&other, 1, NULL));
    OK(ceclGroupStart());
    OK(ceclAllGather(buffer, buffer, 1, ceclInt32, comm, NULL));
    assert_int_not_equal(ceclMemAlloc(other, NULL, 8), ceclSuccess);
    assert_string_equal(ceclGetLastError(NULL), "call 2 in the group, ceclMemAlloc: ptr: NULL");
    assert_int_not_equal(ceclSend(buffer, 1, ceclInt32, 7, comm, NULL), ceclSuccess);
    assert_string_equal(ceclGetLastError(NULL),
                        "call 3 in the group, ceclSend: peer 7: 0 to 0 expected");
    assert_int_not_equal(ceclBarrier(NULL, NULL), ceclSuccess);
    assert_string_equal(ceclGetLastError(NULL), "call 4 in the group, ceclBarrier: comm: NULL");
    GROUP_END_REFUSED("call 2 of 4 in the group, ceclMemAlloc: ptr: NULL");
    OK(ceclGroupStart());
    OK(ceclBarrier(other, NULL));
    OK(ceclAllGather(buffer, buffer, 1, ceclInt32, comm, NULL));
    OK(ceclAllGather(buffer, buffer, 1000, ceclInt32, comm, NULL));
    OK(ceclBarrier(other, NULL));
    GROUP_END_REFUSED("call 3 of 4 in the group, ceclAllGather: recvbuff 0x");
    OK(ceclGroupStart());
    OK(ceclBarrier(other, NULL));
    OK(ceclAllGather(buffer, buffer, 2, ceclInt32, comm, NULL));
    OK(ceclBroadcast(buffer + 1, buffer + 1, 2, ceclInt32, 0, comm, NULL));
    GROUP_END_REFUSED("calls 2 (ceclAllGather) and 3 (ceclBroadcast) of the group share memory");
    OK(ceclCommDestroy(other));
}

TEST(one_sided)
{
    ceclWindow_t window;
    const ceclSignalWait_t wait = {.signal = 99, .count = 1}, stranger = {.peer = 8, .count = 1},
                           none = {.count = -4};
    const ceclDataType_t type = ceclInt32;
    void *at;
    OK(ceclWindowShare(comm, buffer, COUNT * sizeof(int), &window));
    REFUSED("window: NULL", ceclWindowShare, comm, buffer, 8, NULL);
    REFUSED("ptr: NULL", ceclWindowShare, comm, NULL, 8, &window);
    REFUSED("window: NULL", ceclWindowFree, comm, NULL);
    REFUSED("window: NULL", ceclWindowPointer, comm, NULL, 0, &at);
    REFUSED("peer -1: 0 to 0 expected", ceclWindowPointer, comm, window, -1, &at);
    REFUSED("ptr: NULL", ceclWindowPointer, comm, window, 0, NULL);
    REFUSED("peer 3: 0 to 0 expected", ceclPut, buffer, 1, type, 3, window, 0, comm, NULL);
    REFUSED("offset 64", ceclGet, buffer, 1, type, 0, window, 64, comm, NULL);
    REFUSED("signal 64: 0 to 63 expected", ceclPutSignal, buffer, 1, type, 0, window, 0, 64, comm,
            NULL);
    REFUSED("signal -1: 0 to 63 expected", ceclSignal, 0, -1, comm, NULL);
    REFUSED("waits[0].signal 99: 0 to 63 expected", ceclWaitSignal, 1, &wait, comm, NULL);
    REFUSED("waits: NULL, with nwaits 1", ceclWaitSignal, 1, NULL, comm, NULL);
    REFUSED("nwaits 0: 1 or more expected", ceclWaitSignal, 0, &wait, comm, NULL);
    REFUSED("waits[0].peer 8: 0 to 0 expected", ceclWaitSignal, 1, &stranger, comm, NULL);
    REFUSED("waits[0].count -4: 1 or more expected", ceclWaitSignal, 1, &none, comm, NULL);
    OK(ceclWindowFree(comm, window));
}

TEST(streams)
{
    const ceclStream_t other = (ceclStream_t)(void *)buffer;
    REFUSED("stream: NULL", ceclStreamCreate, comm, NULL);
    REFUSED("stream 0x", ceclStreamSynchronize, comm, other);
    REFUSED("stream: NULL", ceclStreamDestroy, comm, NULL);
    REFUSED("event: NULL", ceclEventCreate, comm, NULL);
    REFUSED("event: NULL", ceclEventRecord, comm, NULL, NULL);
    REFUSED("event: NULL", ceclStreamWaitEvent, comm, NULL, NULL);
    REFUSED("event: NULL", ceclEventDestroy, comm, NULL);
    REFUSED("dst: NULL", ceclMemcpyAsync, comm, NULL, buffer, 8, NULL);
    REFUSED("src: NULL, with 8 bytes", ceclMemcpyAsync, comm, buffer, NULL, 8, NULL);
    REFUSED("stream", ceclStreamBeginCapture, comm, NULL);
    REFUSED("graph: NULL", ceclStreamEndCapture, comm, NULL, NULL);
    REFUSED("graph: NULL", ceclGraphLaunch, NULL, NULL);
}

/* Functions that have no wrong argument, or return no result. */
static const char *const without[] = {"ceclGroupStart", "ceclGraphDestroy", "ceclGetLastError",
                                      "ceclGetErrorString"};

TEST(no_public_function_is_missing)
{
    char line[512], name[64], word[80];
    int functions = 0;
    FILE *header = fopen(HEADER, "r");
    assert_non_null(header);
    while (fgets(line, sizeof(line), header)) {
        const char *open = strchr(line, '('), *from = strstr(line, " cecl");
        if (strncmp(line, "CECL_API", 8) != 0 || !open)
            continue;
        for (const char *next = from; next && next < open; next = strstr(next + 1, " cecl"))
            from = next; /* the last word before the bracket */
        const char *star = strstr(line, "*cecl");
        if (star)
            from = star;
        assert_int_equal(sscanf(from + 1, "%63[A-Za-z]", name), 1);
        bool is_known = false;
        for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
            is_known = is_known || strcmp(name, without[i]) == 0;
        snprintf(word, sizeof(word), " %s ", name);
        if (!is_known && !strstr(tried, word))
            fail_msg("%s of cecl.h is given no wrong argument here", name);
        functions++;
    }
    fclose(header);
    assert_true(functions > 40);
}

TESTS_BETWEEN(set_up, close_all)
