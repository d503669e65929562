/* Bad input: the result code and the message of each refusal, after which the communicator is still usable. */
#include <stddef.h>

#include "memory.h"

static ceclComm_t comm;
static char *recv_buffer, *send_buffer;
#define BYTES 4096 /* of a block */

static int set_up(void **state)
{
    comm = multi_comm(NULL);
    recv_buffer = multi_alloc(comm, (size_t)multi_nranks * BYTES);
    send_buffer = multi_alloc(comm, (size_t)multi_nranks * BYTES);
    return 0;
}

static int tear_down(void **state)
{
    multi_works(comm, NULL, multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
    return 0;
}

/* The collectives and their explanations refuse the call in the same words. A refused explanation writes nothing. */
static void refused(const void *send, void *recv, size_t count, int type, ceclResult_t result,
                    const char *words)
{
    const ceclDataType_t datatype = (ceclDataType_t)type;
    for (ceclOp_t op = ceclOpAllGather; op <= ceclOpAlltoAll; op++) {
        char said[1024];
        ceclExplanation_t e, untouched;
        memset(&untouched, 0x3C, sizeof(untouched));
        e = untouched;
        multi_refused(comm,
                      op == ceclOpAllGather ? ceclAllGather(send, recv, count, datatype, comm, 0)
                                            : ceclAlltoAll(send, recv, count, datatype, comm, 0),
                      result, words);
        snprintf(said, sizeof(said), "%s", strstr(ceclGetLastError(comm), ": "));
        multi_refused(comm, ceclExplain(op, send, recv, count, datatype, comm, &e), result, words);
        assert_string_equal(strstr(ceclGetLastError(comm), ": "), said);
        assert_memory_equal(&e, &untouched, sizeof(e));
    }
}

TEST_BETWEEN(bad_buffers_are_refused_and_explained_in_the_same_words, set_up, tear_down)
{
    static char plain[BYTES * 16];
    void *peer = NULL;
    refused(NULL, recv_buffer, 1, ceclInt8, ceclInvalidArgument, "sendbuff: NULL");
    refused(send_buffer, NULL, 1, ceclInt8, ceclInvalidArgument, "recvbuff: NULL");
    refused(send_buffer, recv_buffer, 1, -1, ceclInvalidArgument, "datatype -1");
    refused(send_buffer, recv_buffer, SIZE_MAX / 2, ceclInt64, ceclInvalidArgument,
            "address space");
    refused(recv_buffer + multi_rank * 64 + 1, recv_buffer, 64, ceclInt8, ceclInvalidArgument,
            "overlap");
    refused(send_buffer, recv_buffer, BYTES + 1, ceclInt8, ceclInvalidUsage,
            "left in its allocation");
    refused(send_buffer, recv_buffer + 1, BYTES, ceclInt8, ceclInvalidUsage,
            "left in its allocation");
    refused(send_buffer + (size_t)multi_nranks * BYTES - 1, recv_buffer, BYTES, ceclInt8,
            ceclInvalidUsage, "sendbuff");
    multi_ok(comm, ceclGetPeerPointer(comm, recv_buffer, multi_next(), &peer));
    refused(send_buffer, peer, 1, ceclInt8, ceclInvalidUsage, "'s memory");
    char *freed = multi_alloc(comm, (size_t)multi_nranks * 64);
    multi_ok(comm, ceclAllGather(send_buffer, freed, 64, ceclInt8, comm, 0));
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    multi_ok(comm, ceclMemFree(comm, freed));
    refused(send_buffer, freed, 64, ceclInt8, ceclInvalidUsage, "freed before?");
    if (multi_on_gpus(comm)) {
        refused(plain, recv_buffer, 1, ceclInt8, ceclInvalidArgument, "is expected");
        refused(send_buffer, plain, 1, ceclInt8, ceclInvalidArgument, "is expected");
    }
}

#define BAD(words, call) multi_refused(comm, (call), ceclInvalidArgument, words)

TEST_BETWEEN(overlapping_buffers_are_refused, set_up, tear_down)
{
    char *const recv = recv_buffer, *const send = send_buffer;
    char *const next = recv + multi_next() * 1024;
    const size_t n = (size_t)multi_nranks;
    size_t counts[64], displs[64];
    char words[64];
    for (size_t r = 0; r < n; r++) {
        counts[r] = 10;
        displs[r] = r * 9;
    }
    BAD("in place, sendbuff is", ceclAllGather(next, recv, 1024, ceclInt8, comm, 0));
    BAD("overlap", ceclAlltoAll(recv + 8, recv, 1000, ceclInt8, comm, 0));
    BAD("the blocks of ranks 0 and 1 overlap at byte 9",
        ceclAllGatherv(send, 10, recv, counts, displs, 0, comm, 0));
    BAD("overlap", ceclAllReduce(recv + 4, recv, 4, ceclInt32, ceclSum, comm, 0));
    /* Every rank refuses: if only the root did, the others would wait for it. */
    BAD("overlap", ceclReduce(recv + 4, recv, 4, ceclInt32, ceclSum, 0, comm, 0));
    snprintf(words, sizeof(words), "in place, sendbuff is %p", (void *)(recv + 64));
    BAD(words, ceclReduceScatter(recv + 60, recv + 64 + (size_t)multi_rank * 32, 8, ceclInt32,
                                 ceclSum, comm, 0));
    /* A call of 0 elements takes any addresses. */
    multi_ok(comm, ceclAllReduce(send + 2, recv + 1, 0, ceclInt32, ceclSum, comm, 0));
#define GATHER(...) \
    ceclAllGatherStrided(send, recv, &(ceclStrided_t){__VA_ARGS__}, ceclFloat, comm, 0)
    BAD("sendPitch: 12 bytes; a row has 16", GATHER(.width = 4, .rows = 2, .sendPitch = 3));
    BAD("recvStride: 16 bytes", GATHER(.width = 4, .rows = 2, .recvPitch = 4 * n - 1));
    BAD("overlap in recvbuff", GATHER(.width = 4, .rows = 2, .recvStride = 3));
    BAD("pitches up to 2147483647", GATHER(.width = 4, .rows = 2, .recvPitch = 1u << 30));
    BAD("address space", GATHER(.width = SIZE_MAX / 2, .rows = 2));
    BAD("address space", GATHER(.width = 4, .rows = SIZE_MAX / 32));
    /* A gather ignores sendStride, so it takes any value. */
    multi_ok(comm, GATHER(.width = 3, .rows = 3, .sendStride = SIZE_MAX));
    multi_ok(comm, GATHER(.rows = 4));
    displs[multi_nranks - 1] = SIZE_MAX / 2;
    BAD("address space", ceclAllGatherv(send, 10, recv, counts, displs, ceclInt64, comm, 0));
}

TEST_BETWEEN(bad_tiles_are_named, set_up, tear_down)
{
    const size_t far[64] = {SIZE_MAX / 8};
    char *const matrix = send_buffer, *const result = recv_buffer;
    const ceclTiles_t three = {1, 3, 1, 0, NULL}, empty = {.count = 1, .rows = 1};
#define TILES(recv, tiles, op) ceclReduceScatterTiles(matrix, recv, tiles, ceclInt32, op, comm, 0)
#define SHAPE(...) (&(ceclTiles_t){__VA_ARGS__})
    BAD("tiles: NULL", TILES(result, NULL, ceclSum));
    BAD("tiles.count: 0", TILES(result, SHAPE(.rows = 1, .width = 1), ceclSum));
    BAD("tiles.count 1025", TILES(result, SHAPE(.count = 1025, .rows = 1, .width = 1), ceclSum));
    BAD("pitch: 8 bytes; a row has 12", TILES(result, SHAPE(1, 3, 2, 2, NULL), ceclSum));
    BAD("pitches up to", TILES(result, SHAPE(1, 3, 2, 1u << 30, NULL), ceclSum));
    BAD("address space", TILES(result, SHAPE(1, SIZE_MAX / 2, 3, 0, NULL), ceclSum));
    BAD("address space", TILES(result, SHAPE(1, 3, 1, 3, far), ceclSum));
    BAD("overlap", TILES(matrix, &three, ceclSum));
    BAD("ceclAvg", TILES(result, &three, ceclAvg));
    multi_refused(comm, TILES(result, SHAPE(1, 3, (size_t)1 << 24, 3, NULL), ceclSum),
                  ceclInvalidUsage, "left in its allocation");
    multi_ok(comm, TILES(result, &empty, ceclSum));
}

/* A setting that is bad on one rank fails the join on all ranks. (Settings that differ: test_split.c, bench/differ.sh.) */
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
#define FIELD(name) offsetof(ceclConfig_t, name), sizeof(((ceclConfig_t *)NULL)->name)
    static const struct {
        size_t at, size;
        int64_t value;
        const char *words;
    } bad[] = {
        {FIELD(device), 3, "config.device = 3: 0 to 2 expected"},
        {FIELD(device), -7, "config.device = -7: "},
        {FIELD(cudaDevice), -3, "config.cudaDevice = -3: -2 to 65536 expected"},
        {FIELD(smPolicy), 3, "rank 0: config.smPolicy = 3: 0 to 2 expected"},
        {FIELD(maxSms), 0, "config.maxSms = 0: 1 to 1024 expected"},
        {FIELD(maxSms), 1025, "config.maxSms = 1025: "},
        {FIELD(registerOnUse), 2, "config.registerOnUse = 2: 0 to 1 expected"},
        {FIELD(timeoutMs), -2, "config.timeoutMs = -2: 0 to 86400000 expected"},
        {FIELD(timeoutMs), 86400001, "config.timeoutMs = 86400001: "},
        {FIELD(poolBytes), (1 << 20) - 1, "config.poolBytes = 1048575: "},
        {FIELD(poolBytes), (INT64_C(16) << 40) + 1, "config.poolBytes = 17592186044417: "},
        {FIELD(segmentBytes), 4095, "config.segmentBytes = 4095: 4096 to"},
        {FIELD(stagingBytes), 0, "config.stagingBytes = 0: 4096 to"},
        {FIELD(stagingBytes), -2, "config.stagingBytes = -2: "},
        {FIELD(magic), 5, "CECL_CONFIG_INITIALIZER"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ceclConfig_t config = multi_config();
        const int first = strncmp(bad[i].words, "rank 0", 6) == 0 ? 0 : multi_nranks - 1;
        if (multi_rank == first) /* the low bytes of a number come first */
            memcpy((char *)&config + bad[i].at, &bad[i].value, bad[i].size);
        join_is_refused(&config, bad[i].words);
    }
}

TEST(calls_that_need_an_sm_are_refused_under_never)
{
    ceclConfig_t config = multi_config();
    ceclComm_t strict = NULL;
    config.smPolicy = CECL_SM_NEVER;
    config.cudaDevice = CECL_CUDA_DEVICE_CURRENT;
    /* A rank alone has no peer that could return its own block. */
    multi_ok(NULL, ceclCommInitMpi(&strict, MPI_COMM_SELF, &config));
    char *recv = multi_alloc(strict, BYTES);
    char *send = multi_alloc(strict, BYTES);
    multi_refused(strict, ceclAllGather(send, recv, BYTES, ceclInt8, strict, 0), ceclInvalidUsage,
                  "CECL_SM_NEVER");
    multi_refused(strict, ceclAlltoAll(send, recv, BYTES, ceclInt8, strict, 0), ceclInvalidUsage,
                  "needs an SM");
    multi_ok(strict, ceclAllGather(recv, recv, BYTES, ceclInt8, strict, 0));
    multi_ok(NULL, ceclCommDestroy(strict));
}
