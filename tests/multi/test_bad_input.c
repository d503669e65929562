/* Bad input: the result code and the message of each refusal. After each refusal the communicator
 * is still usable. */
#include "memory.h"

#include <limits.h>

static ceclComm_t comm;
static char *recv_buffer, *send_buffer;
#define BYTES 4096 /* bytes of a block */

static int set_up(void **state)
{
    comm = multi_comm(NULL);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, (size_t)multi_nranks * BYTES));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, (size_t)multi_nranks * BYTES));
    return 0;
}

static int tear_down(void **state)
{
    multi_check(comm, &(struct multi_case){.op = ceclOpAllGather, .count = 500, .type = ceclInt32},
                3);
    multi_check(comm, &(struct multi_case){.op = ceclOpAlltoAll, .count = 500, .type = ceclInt32},
                4);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

/* Both collectives refuse the call in the same way. */
static void refused(const void *send, void *recv, size_t count, int type, ceclResult_t result,
                    const char *words)
{
    multi_refused(comm, ceclAllGather(send, recv, count, (ceclDataType_t)type, comm, 0), result,
                  words);
    multi_refused(comm, ceclAlltoAll(send, recv, count, (ceclDataType_t)type, comm, 0), result,
                  words);
}

TEST_BETWEEN(null_arguments_are_named, set_up, tear_down)
{
    int value;
    ceclResult_t result;
    refused(NULL, recv_buffer, 1, ceclInt8, ceclInvalidArgument, "sendbuff: NULL");
    refused(send_buffer, NULL, 1, ceclInt8, ceclInvalidArgument, "recvbuff: NULL");
    multi_refused(NULL, ceclAllGather(send_buffer, recv_buffer, 1, ceclInt8, NULL, 0),
                  ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclGetVersion(NULL), ceclInvalidArgument, "version: NULL");
    multi_refused(comm, ceclGetUniqueId(NULL), ceclInvalidArgument, "id: NULL");
    multi_refused(comm, ceclCommCount(comm, NULL), ceclInvalidArgument, "count: NULL");
    multi_refused(NULL, ceclCommCount(NULL, &value), ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclCommUserRank(comm, NULL), ceclInvalidArgument, "rank: NULL");
    multi_refused(NULL, ceclCommUserRank(NULL, &value), ceclInvalidArgument, "comm: NULL");
    multi_refused(NULL, ceclCommCuDevice(NULL, &value), ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclCommCuDevice(comm, NULL), ceclInvalidArgument, "device: NULL");
    multi_refused(NULL, ceclCommNodes(NULL, &value), ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclCommNodes(comm, NULL), ceclInvalidArgument, "nodes: NULL");
    multi_refused(NULL, ceclCommGetAsyncError(NULL, &result), ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclCommGetAsyncError(comm, NULL), ceclInvalidArgument, "asyncError: NULL");
    multi_refused(NULL, ceclCommFinalize(NULL), ceclInvalidArgument, "comm: NULL");
    multi_refused(NULL, ceclCommDestroy(NULL), ceclInvalidArgument, "comm: NULL");
    multi_refused(NULL, ceclCommAbort(NULL), ceclInvalidArgument, "comm: NULL");
    multi_refused(comm, ceclMemAlloc(comm, NULL, 1), ceclInvalidArgument, "ptr: NULL");
    multi_refused(comm, ceclPoolStats(comm, NULL), ceclInvalidArgument, "stats: NULL");
    multi_refused(comm, ceclCallStats(comm, NULL), ceclInvalidArgument, "stats: NULL");
    multi_refused(comm, ceclStreamCreate(comm, NULL), ceclInvalidArgument, "stream: NULL");
    multi_refused(comm, ceclStreamDestroy(comm, NULL), ceclInvalidArgument, "default stream");
    multi_refused(comm, ceclMemcpyAsync(comm, NULL, send_buffer, 1, 0), ceclInvalidArgument,
                  "dst: NULL");
    multi_refused(comm, ceclMemcpyAsync(comm, recv_buffer, NULL, 7, 0), ceclInvalidArgument,
                  "src: NULL, with 7 bytes");
    multi_refused(comm,
                  ceclExplain(ceclOpAllGather, send_buffer, recv_buffer, 1, ceclInt8, comm, NULL),
                  ceclInvalidArgument, "explanation: NULL");
    multi_refused(comm, ceclCommInitAll(NULL, 1, NULL), ceclInvalidArgument, "comm: NULL");
}

TEST_BETWEEN(foreign_handles_are_refused, set_up, tear_down)
{
    uint64_t stranger[64] = {0};
    int value;
    multi_refused(NULL, ceclCommCount((ceclComm_t)(void *)stranger, &value), ceclInvalidArgument,
                  "not a communicator");
    multi_refused(NULL, ceclCommDestroy((ceclComm_t)(void *)stranger), ceclInvalidArgument,
                  "not a communicator");
    if (!multi_on_gpus(comm))         /* CUDA crashes on an invalid stream */
        for (int i = 0; i < 2; i++) { /* with a new plan, then with the kept plan */
            multi_refused(comm,
                          ceclAllGather(send_buffer, recv_buffer, 1, ceclInt8, comm,
                                        (ceclStream_t)(void *)stranger),
                          ceclInvalidArgument, "stream");
            multi_refused(comm, ceclStreamSynchronize(comm, (ceclStream_t)(void *)stranger),
                          ceclInvalidArgument, "stream");
            multi_refused(comm, ceclStreamDestroy(comm, (ceclStream_t)(void *)stranger),
                          ceclInvalidArgument, "stream");
            multi_refused(
                comm,
                ceclMemcpyAsync(comm, recv_buffer, send_buffer, 1, (ceclStream_t)(void *)stranger),
                ceclInvalidArgument, "stream");
        }
}

TEST_BETWEEN(unknown_types_are_named, set_up, tear_down)
{
    refused(send_buffer, recv_buffer, 1, -1, ceclInvalidArgument, "datatype -1");
    refused(send_buffer, recv_buffer, 1, CECL_NUM_TYPES, ceclInvalidArgument, "datatype 12");
    refused(send_buffer, recv_buffer, 1, 1000, ceclInvalidArgument, "0 to 11 expected");
}

TEST_BETWEEN(counts_that_overflow_are_refused, set_up, tear_down)
{
    refused(send_buffer, recv_buffer, SIZE_MAX, ceclInt8, ceclInvalidArgument,
            "do not fit into the address space");
    refused(send_buffer, recv_buffer, SIZE_MAX / 2, ceclHalf, ceclInvalidArgument, "count");
    refused(send_buffer, recv_buffer, SIZE_MAX / 8 + 1, ceclDouble, ceclInvalidArgument, "count");
}

TEST_BETWEEN(buffers_that_leave_their_memory_are_refused, set_up, tear_down)
{
    static char plain[BYTES * 16];
    void *peer = NULL;
    char *freed = NULL;
    refused(send_buffer, recv_buffer, BYTES + 1, ceclInt8, ceclInvalidUsage,
            "left in its allocation");
    refused(send_buffer, recv_buffer + 1, BYTES, ceclInt8, ceclInvalidUsage,
            "left in its allocation");
    refused(send_buffer + (size_t)multi_nranks * BYTES - 1, recv_buffer, BYTES, ceclInt8,
            ceclInvalidUsage, "sendbuff");
    multi_ok(comm, ceclGetPeerPointer(comm, recv_buffer, (multi_rank + 1) % multi_nranks, &peer));
    refused(send_buffer, peer, 1, ceclInt8, ceclInvalidUsage, "'s memory");
    multi_ok(comm, ceclMemAlloc(comm, (void **)&freed, (size_t)multi_nranks * 64));
    multi_ok(comm, ceclAllGather(send_buffer, freed, 64, ceclInt8, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(comm, ceclMemFree(comm, freed));
    refused(send_buffer, freed, 64, ceclInt8, ceclInvalidUsage, "freed before?");
    if (multi_on_gpus(comm)) {
        refused(plain, recv_buffer, 1, ceclInt8, ceclInvalidArgument, "is expected");
        refused(send_buffer, plain, 1, ceclInt8, ceclInvalidArgument, "is expected");
    }
}

TEST_BETWEEN(overlapping_buffers_are_refused, set_up, tear_down)
{
    char *own = recv_buffer + (size_t)multi_rank * 1024;
    multi_refused(comm, ceclAllGather(own + 1, recv_buffer, 1024, ceclInt8, comm, 0),
                  ceclInvalidArgument, "overlap");
    if (multi_nranks > 1)
        multi_refused(comm,
                      ceclAllGather(recv_buffer + (size_t)((multi_rank + 1) % multi_nranks) * 1024,
                                    recv_buffer, 1024, ceclInt8, comm, 0),
                      ceclInvalidArgument, "in place, sendbuff is");
    multi_refused(comm, ceclAlltoAll(recv_buffer + 8, recv_buffer, 1000, ceclInt8, comm, 0),
                  ceclInvalidArgument, "overlap");
}

TEST_BETWEEN(peers_out_of_range_are_named, set_up, tear_down)
{
    void *peer = NULL;
    multi_refused(comm, ceclGetPeerPointer(comm, recv_buffer, -1, &peer), ceclInvalidArgument,
                  "peer -1");
    multi_refused(comm, ceclGetPeerPointer(comm, recv_buffer, multi_nranks, &peer),
                  ceclInvalidArgument, "expected");
    multi_refused(comm, ceclGetPeerPointer(comm, &peer, 0, &peer), ceclInvalidArgument,
                  "not memory of this communicator");
    multi_refused(comm, ceclGetPeerPointer(comm, recv_buffer, 0, NULL), ceclInvalidArgument,
                  "peerPtr: NULL");
}

TEST_BETWEEN(ranks_and_sizes_out_of_range_are_refused_before_anyone_waits, set_up, tear_down)
{
    ceclUniqueId id = {{0}};
    ceclComm_t other = NULL;
    multi_refused(NULL, ceclCommInitRank(&other, 0, id, 0), ceclInvalidArgument, "nranks 0");
    multi_refused(NULL, ceclCommInitRank(&other, 100000, id, 0), ceclInvalidArgument,
                  "nranks 100000");
    multi_refused(NULL, ceclCommInitRank(&other, 4, id, 4), ceclInvalidArgument, "rank 4");
    multi_refused(NULL, ceclCommInitRank(&other, 4, id, -1), ceclInvalidArgument, "rank -1");
    multi_refused(NULL, ceclCommInitRank(NULL, 4, id, 0), ceclInvalidArgument, "comm: NULL");
    multi_refused(NULL, ceclCommInitRank(&other, 4, id, 0), ceclInvalidUsage,
                  "not made by ceclGetUniqueId");
    multi_refused(NULL, ceclCommInitOob(&other, 4, 0, NULL, NULL), ceclInvalidArgument,
                  "oob: NULL");
    assert_null(other);
}

/* A setting that is bad on one rank, or differs between ranks, fails the join on all ranks. */
static void join_is_refused(const ceclConfig_t *config, const char *words)
{
    ceclComm_t other = NULL;
    multi_refused(NULL, ceclCommInitMpi(&other, MPI_COMM_WORLD, config), ceclInvalidArgument,
                  words);
    assert_null(other);
}

/* Each field of the configuration, below and above its range, on one rank only. */
TEST_BETWEEN(a_field_out_of_range_is_named_on_every_rank, set_up, tear_down)
{
    static const struct {
        const char *words;
        int64_t value;
    } bad[] = {
        {"config.device = 3: 0 to 2 expected", 3},
        {"config.device = -7: ", -7},
        {"config.cudaDevice = -3: -2 to 65536 expected", -3},
        {"config.smPolicy = 3: ", 3},
        {"config.maxSms = 0: 1 to 1024 expected", 0},
        {"config.maxSms = 1025: ", 1025},
        {"config.registerOnUse = 2: 0 to 1 expected", 2},
        {"config.timeoutMs = -2: 0 to 86400000 expected", -2},
        {"config.timeoutMs = 86400001: ", 86400001},
        {"config.poolBytes = 1048575: ", (1 << 20) - 1},
        {"config.poolBytes = 17592186044417: ", (INT64_C(16) << 40) + 1},
        {"config.segmentBytes = 4095: 4096 to", 4095},
        {"config.stagingBytes = 0: 4096 to", 0},
        {"config.stagingBytes = -2: ", -2},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ceclConfig_t config = multi_config();
        if (multi_rank == multi_nranks - 1) {
            const char *field = bad[i].words + strlen("config.");
            const int small = (int)bad[i].value;
            if (strncmp(field, "device", 6) == 0)
                config.device = small;
            else if (strncmp(field, "cudaDevice", 10) == 0)
                config.cudaDevice = small;
            else if (strncmp(field, "smPolicy", 8) == 0)
                config.smPolicy = small;
            else if (strncmp(field, "maxSms", 6) == 0)
                config.maxSms = small;
            else if (strncmp(field, "registerOnUse", 13) == 0)
                config.registerOnUse = small;
            else if (strncmp(field, "timeoutMs", 9) == 0)
                config.timeoutMs = small;
            else if (strncmp(field, "poolBytes", 9) == 0)
                config.poolBytes = bad[i].value;
            else if (strncmp(field, "segmentBytes", 12) == 0)
                config.segmentBytes = bad[i].value;
            else
                config.stagingBytes = bad[i].value;
        }
        join_is_refused(&config, bad[i].words);
    }
}

TEST_BETWEEN(differing_fields_are_named_on_every_rank, set_up, tear_down)
{
    ceclConfig_t config = multi_config();
    config.poolBytes = multi_rank == 0 ? 64 << 20 : 32 << 20;
    join_is_refused(&config, "poolBytes (CECL_POOL_BYTES): 67108864 on rank 0, 33554432 on rank 1");
    config = multi_config();
    config.segmentBytes = multi_rank == 0 ? 1 << 20 : 2 << 20;
    join_is_refused(&config, "segmentBytes (CECL_SEGMENT_BYTES): 1048576 on rank 0, 2097152 on");
    config = multi_config();
    config.stagingBytes = multi_rank == 0 ? 8192 : 4096;
    join_is_refused(&config, "stagingBytes (CECL_STAGING_BYTES): 8192 on rank 0, 4096 on rank 1");
    config = multi_config();
    config.smPolicy = multi_rank == 0 ? CECL_SM_NEVER : CECL_SM_ALLOW;
    join_is_refused(&config, "smPolicy (CECL_SM_POLICY): 0 on rank 0, 2 on rank 1");
    config = multi_config();
    multi_setenv("CECL_CHECK", multi_rank == 0 ? "1" : "0");
    join_is_refused(&config, "CECL_CHECK: 1 on rank 0, 0 on rank 1");
    multi_setenv("CECL_CHECK", NULL);
}

TEST_BETWEEN(bad_settings_are_refused_on_every_rank, set_up, tear_down)
{
    ceclConfig_t config = multi_config();
    config.smPolicy = multi_rank == 0 ? 17 : CECL_UNDEF;
    join_is_refused(&config, "rank 0: config.smPolicy = 17: 0 to 2 expected");
    config = multi_config();
    config.magic = multi_rank == 0 ? 5 : CECL_CONFIG_MAGIC;
    join_is_refused(&config, "CECL_CONFIG_INITIALIZER");
    config = multi_config();
    config.timeoutMs = 1000 + multi_rank;
    join_is_refused(&config, "ranks differ in timeoutMs");
    config = multi_config();
    static const char *const bad[][2] = {
        {"CECL_TIMEOUT_MS", "abc"},    {"CECL_DEVICE", "gpu"},
        {"CECL_POOL_BYTES", "12"},     {"CECL_DEBUG", "loud"},
        {"CECL_TIMEOUT_MS", "-1"},     {"CECL_TIMEOUT_MS", "99999999999999999999"},
        {"CECL_INIT_TIMEOUT_MS", "0"}, {"CECL_STAGING_BYTES", "4Q"},
        {"CECL_SEGMENT_BYTES", "17T"}, {"CECL_SM_POLICY", "sometimes"},
        {"CECL_DIRECTION", "pul"},     {"CECL_FLAGS", "writes"},
        {"CECL_CHECK", "2"},           {"CECL_CUDA_DEVICE", "0x"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *before = getenv(bad[i][0]);
        char *kept = before ? strdup(before) : NULL;
        multi_setenv(bad[i][0], multi_rank == multi_nranks - 1 ? bad[i][1] : kept);
        join_is_refused(&config, bad[i][0]);
        assert_non_null(strstr(ceclGetLastError(NULL), bad[i][1]));
        multi_setenv(bad[i][0], kept);
        free(kept);
    }
}

TEST(calls_that_need_an_sm_are_refused_under_never)
{
    ceclConfig_t config = multi_config();
    config.smPolicy = CECL_SM_NEVER;
    ceclComm_t strict = multi_comm(&config);
    char *recv = NULL, *send = NULL;
    multi_ok(strict, ceclMemAlloc(strict, (void **)&recv, (size_t)multi_nranks * BYTES));
    multi_ok(strict, ceclMemAlloc(strict, (void **)&send, (size_t)multi_nranks * BYTES));
    for (int i = 0; i < 4; i++) /* each of these calls has a path without SMs */
        multi_check(strict,
                    &(struct multi_case){.op = i / 2 ? ceclOpAlltoAll : ceclOpAllGather,
                                         .in_place = i % 2,
                                         .count = BYTES,
                                         .type = ceclInt8},
                    3);
    multi_ok(NULL, ceclCommDestroy(strict));

    /* One rank has no peer that could return its own block. */
    ceclUniqueId id;
    config.cudaDevice = CECL_CUDA_DEVICE_CURRENT;
    multi_ok(NULL, ceclGetUniqueId(&id));
    multi_ok(NULL, ceclCommInitRankConfig(&strict, 1, id, 0, &config));
    multi_ok(strict, ceclMemAlloc(strict, (void **)&recv, BYTES));
    multi_ok(strict, ceclMemAlloc(strict, (void **)&send, BYTES));
    multi_refused(strict, ceclAllGather(send, recv, BYTES, ceclInt8, strict, 0), ceclInvalidUsage,
                  "CECL_SM_NEVER");
    multi_refused(strict, ceclAlltoAll(send, recv, BYTES, ceclInt8, strict, 0), ceclInvalidUsage,
                  "needs an SM");
    multi_ok(strict, ceclAllGather(recv, recv, BYTES, ceclInt8, strict, 0));
    multi_ok(NULL, ceclCommDestroy(strict));
}

TEST(pull_of_a_sendbuff_out_of_reach_goes_as_a_push)
{
    const size_t block = 64, all = (size_t)multi_nranks * block;
    unsigned char bytes[64 * 64];
    ceclExplanation_t e;
    ceclConfig_t config = multi_config();
    config.smPolicy = CECL_SM_ALLOW; /* otherwise the call is pushed */
    multi_setenv("CECL_DIRECTION", "pull");
    ceclComm_t pulling = multi_comm(&config);
    multi_setenv("CECL_DIRECTION", NULL);
    char *recv = NULL;
    multi_ok(pulling, ceclMemAlloc(pulling, (void **)&recv, all));
    /* memory is private on one rank only; all ranks learn of it */
    struct memory send = memory_new(pulling, multi_rank == 0 ? MEMORY_PRIVATE : MEMORY_SHARED, all);
    multi_fill(bytes, 5, multi_rank, all);
    multi_put(pulling, send.at, bytes, all);
    for (int i = 0; i < 3; i++) {
        multi_ok(pulling, ceclAlltoAll(send.at, recv, block, ceclInt8, pulling, 0));
        multi_ok(pulling, ceclStreamSynchronize(pulling, 0));
        multi_get(pulling, bytes, recv, all);
        for (size_t b = 0; b < all; b++)
            assert_int_equal(
                bytes[b], multi_byte(5, (int)(b / block), (size_t)multi_rank * block + b % block));
    }
    multi_ok(pulling, ceclExplain(ceclOpAlltoAll, send.at, recv, block, ceclInt8, pulling, &e));
    assert_non_null(strstr(e.path, multi_rank == 0 ? "push" : "pull"));
    memory_free(pulling, &send);
    multi_ok(NULL, ceclCommDestroy(pulling));
}
