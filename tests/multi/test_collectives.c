/* Random calls of all kinds, on communicators with settings that change how calls are carried out; large calls; calls
 * on two streams. In test_mixed.c several random calls are in flight, on communicators of any members. */
#include "random_call.h"

#define LAST_CARRIED ALL_TO_ALL_STRIDED /* the kinds up to this one reduce nothing */

static void random_kinds(ceclComm_t comm, enum kind last, uint64_t seed)
{
    random_groups(comm, ALL_GATHER, last, 1, multi_share(240), seed);
    random_groups(comm, ALL_GATHER, last, RANDOM_GROUP, multi_share(48), seed + 1);
    if (last > LAST_CARRIED) {
        multi_options(comm, CECL_SM_ALLOW, CECL_UNDEF, CECL_UNDEF);
        random_groups(comm, BY_SPLITS, BY_SPLITS, 1, multi_share(48), seed + 2);
    }
}

/* Push and pull each have a row with one SM. In the last row one rank has few hardware queues, so all keep flags on the
 * host. */
static const struct {
    const char *name, *value;
    const char *beside, *beside_value; /* another setting; NULL: none */
    enum kind last;
    bool first_rank_only;
} settings[] = {
    {"CECL_STAGING_BYTES", "4096", "CECL_SM_POLICY", "never", LAST_CARRIED, false},
    {"CECL_STAGING_BYTES", "4096", "CECL_SM_POLICY", "allow", KINDS - 1, false},
    {"CECL_STAGING_BYTES", "4096", "CECL_CHECK", "1", KINDS - 1, false},
    {"CECL_STAGING_BYTES", "16K", "CECL_DIRECTION", "push", KINDS - 1, false},
    {"CECL_DIRECTION", "push", "CECL_MAX_SMS", "1", KINDS - 1, false},
    {"CECL_DIRECTION", "pull", "CECL_MAX_SMS", "1", KINDS - 1, false},
    {"CECL_DIRECTION", "pull", "CECL_SM_POLICY", "allow", KINDS - 1, false},
    {"CECL_FLAGS", "host", "CECL_SM_POLICY", "allow", KINDS - 1, false},
    {"CECL_FLAGS", "host", "CECL_DIRECTION", "pull", KINDS - 1, false},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1", NULL, NULL, KINDS - 1, true},
};

TEST(random_calls_are_right_under_each_setting)
{
    for (size_t s = 0; s < sizeof(settings) / sizeof(settings[0]); s++) {
        const char *before = getenv(settings[s].name);
        char *const kept = before ? strdup(before) : NULL;
        if (!settings[s].first_rank_only || multi_rank == 0)
            multi_setenv(settings[s].name, settings[s].value);
        if (settings[s].beside)
            multi_setenv(settings[s].beside, settings[s].beside_value);
        ceclComm_t comm = multi_comm(NULL);
        multi_setenv(settings[s].name, kept);
        if (settings[s].beside)
            multi_setenv(settings[s].beside, NULL);
        random_kinds(comm, settings[s].last, 31337 + 2 * s);
        multi_ok(NULL, ceclCommDestroy(comm));
        free(kept);
    }
}

/* Where a call allows it, some ranks are in place and others not. The rows in turn: ranks wait for late ranks; they do
 * not wait; even small broadcasts go in pieces; small calls have other limits; where SMs read at peers, copy engines
 * push all results; where SMs read at peers, copy engines push the results except their ends. */
TEST(random_calls_are_right_under_other_thresholds)
{
    static const char *const rows[] = {
        "late.wait_ns * any 1000000000",
        "late.wait_ns * any 0",
        "late.wait_ns * any 1000000000\nbroadcast.spread_min_bytes * any 1",
        "small.all_gather.max_bytes * any 5000\nsmall.all_to_all.max_bytes * any 1000",
        "small.all_reduce.max_bytes * any 0\nall_reduce.sms_write_max_bytes * any 0\n"
        "all_reduce.sms_end_bytes * any 0",
        "small.all_reduce.max_bytes * any 0\nall_reduce.sms_write_max_bytes * any 0\n"
        "all_reduce.sms_end_bytes * any 900"};
    for (int way = 0; way < 12; way++) {
        multi_tuning(rows[way / 2]);
        ceclComm_t comm = multi_comm(NULL);
        multi_tuning(NULL);
        multi_options(comm, way / 2 == 3 ? CECL_SM_ALLOW : CECL_UNDEF,
                      way % 2 ? CECL_DIRECTION_PULL : CECL_DIRECTION_AUTO, CECL_UNDEF);
        random_kinds(comm, KINDS - 1, 91 + 3 * (uint64_t)way);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
}

/* Each block of each call has a seed of its own. */
static void large_block_is_right(ceclComm_t comm, bool exchanges, size_t bytes, bool in_place)
{
    static uint64_t seed;
    const size_t n = (size_t)multi_nranks, me = (size_t)multi_rank;
    unsigned char *recv = multi_alloc(comm, n * bytes), *send = multi_alloc(comm, n * bytes),
                  *in = in_place ? recv : send, *own = in_place ? recv + me * bytes : send;
    for (size_t to = 0; to < n && exchanges; to++)
        multi_fill_device(comm, in + to * bytes, seed + to, multi_rank, bytes);
    if (!exchanges)
        multi_fill_device(comm, own, seed + me, multi_rank, bytes);
    multi_ok(comm, exchanges ? ceclAlltoAll(in, recv, bytes, ceclUint8, comm, NULL)
                             : ceclAllGather(own, recv, bytes, ceclUint8, comm, NULL));
    for (size_t r = 0; r < n; r++)
        multi_check_device(comm, recv + r * bytes, seed + (exchanges ? me : r), (int)r, bytes,
                           bytes);
    seed += n;
    multi_ok(comm, ceclMemFree(comm, send));
    multi_ok(comm, ceclMemFree(comm, recv));
}

/* Bytes of a block: 1 MiB, and 256 MiB with CECL_TEST_BIG=1. */
TEST_WITH_COMM(large_blocks_are_right)
{
    static const size_t sizes[] = {1 << 20, 256 << 20};
    const char *big = getenv("CECL_TEST_BIG");
    for (size_t s = 0; s < (big && *big == '1' ? 2 : 1); s++)
        for (int i = 0; i < 4; i++)
            large_block_is_right(comm, i / 2, sizes[s], i % 2);
}

/* Neither a host nor an event waits between calls on the two streams. The second call reads the first one's result. */
TEST_WITH_COMM(calls_on_two_streams_run_in_call_order)
{
    enum { COUNT = 20000, ROUNDS = 20 };
    const size_t n = (size_t)multi_nranks;
    uint32_t *a = NULL, *b = NULL, *host = malloc(n * COUNT * sizeof(*host));
    assert_non_null(host);
    ceclStream_t first = multi_stream(comm);
    ceclStream_t second = multi_stream(comm);
    a = multi_alloc(comm, n * COUNT * sizeof(*a));
    b = multi_alloc(comm, n * COUNT * sizeof(*b));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < COUNT; i++)
            host[i] = round * 1000003u + (uint32_t)multi_rank * 7919u + (uint32_t)i;
        multi_put(comm, a + (size_t)multi_rank * COUNT, host, COUNT * sizeof(*host));
        multi_ok(comm,
                 ceclAllGather(a + (size_t)multi_rank * COUNT, a, COUNT, ceclUint32, comm, first));
        multi_ok(comm, ceclAlltoAll(a, b, COUNT, ceclUint32, comm, second));
        multi_ok(comm, ceclStreamSynchronize(comm, second));
        multi_get(comm, host, b, n * COUNT * sizeof(*host));
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < COUNT; i++)
                assert_int_equal(host[r * COUNT + i],
                                 round * 1000003u + (uint32_t)multi_rank * 7919u + (uint32_t)i);
    }
    multi_ok(comm, ceclStreamDestroy(comm, first));
    multi_ok(comm, ceclStreamDestroy(comm, second));
    free(host);
}

TEST_WITH_COMM(a_shard_is_the_place_in_recvbuff)
{
    void *shard = NULL;
    char *recv = multi_alloc(comm, (size_t)multi_nranks * 512);
    multi_ok(comm, ceclShard(comm, recv, 64, ceclFloat64, &shard));
    assert_ptr_equal(shard, recv + multi_rank * 512);
    ceclExplanation_t e;
    multi_ok(comm, ceclExplain(ceclOpAllGather, shard, recv, 64, ceclFloat64, comm, &e));
    assert_true(e.barriers <= 2); /* in place; out of place a call has 3 */
}
