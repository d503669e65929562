/* All-gather and all-to-all give the right bytes for all sizes, types, placements, streams,
 * directions and kinds of flags. */
#include "multi.h"

static const ceclOp_t ops[] = {ceclOpAllGather, ceclOpAlltoAll};

/* Block sizes in bytes; 256 MiB with CECL_TEST_BIG=1. */
TEST(every_size_in_and_out_of_place_is_right)
{
    static const size_t sizes[] = {0, 1, 3, 4097, 1 << 20, 256 << 20};
    const char *big = getenv("CECL_TEST_BIG");
    ceclComm_t comm = multi_comm(NULL);
    const size_t count = sizeof(sizes) / sizeof(sizes[0]) - (big && *big == '1' ? 0 : 1);
    for (size_t s = 0; s < count; s++)
        for (int o = 0; o < 2; o++)
            for (int in_place = 0; in_place < 2; in_place++)
                multi_check(
                    comm,
                    &(struct multi_case){
                        .op = ops[o], .count = sizes[s], .type = ceclUint8, .in_place = in_place},
                    s * 4 + (uint64_t)o * 2 + (uint64_t)in_place);
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST(every_type_is_right)
{
    ceclComm_t comm = multi_comm(NULL);
    for (int type = 0; type < CECL_NUM_TYPES; type++)
        for (int o = 0; o < 2; o++)
            for (int in_place = 0; in_place < 2; in_place++)
                multi_check(comm,
                            &(struct multi_case){.op = ops[o],
                                                 .count = 1001,
                                                 .type = (ceclDataType_t)type,
                                                 .in_place = in_place},
                            (uint64_t)type + 100);
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST(own_and_default_streams_are_right)
{
    ceclComm_t comm = multi_comm(NULL);
    ceclStream_t streams[4] = {NULL, (ceclStream_t)1, NULL,
                               /* the legacy default stream by both its names, and two created
                                * streams */
                               NULL};
    multi_ok(comm, ceclStreamCreate(comm, &streams[2]));
    multi_ok(comm, ceclStreamCreate(comm, &streams[3]));
    for (uint64_t i = 0; i < 40; i++)
        multi_check(comm,
                    &(struct multi_case){.op = ops[i % 2],
                                         .count = 777 + i,
                                         .type = ceclInt32,
                                         .in_place = i % 3 == 0,
                                         .stream = streams[i % 4]},
                    i);
    multi_ok(comm, ceclStreamDestroy(comm, streams[2]));
    multi_ok(comm, ceclStreamDestroy(comm, streams[3]));
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Calls on two streams without a wait between them: the second call reads the result of the
 * first. */
TEST(calls_on_two_streams_run_in_call_order)
{
    enum { COUNT = 20000, ROUNDS = 20 };
    ceclComm_t comm = multi_comm(NULL);
    const size_t n = (size_t)multi_nranks;
    ceclStream_t first, second;
    uint32_t *a = NULL, *b = NULL, *host = malloc(n * COUNT * sizeof(*host));
    assert_non_null(host);
    multi_ok(comm, ceclStreamCreate(comm, &first));
    multi_ok(comm, ceclStreamCreate(comm, &second));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&a, n * COUNT * sizeof(*a)));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&b, n * COUNT * sizeof(*b)));
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
    multi_ok(NULL, ceclCommDestroy(comm));
    free(host);
}

TEST(odd_offsets_inside_an_allocation_are_right)
{
    ceclComm_t comm = multi_comm(NULL);
    for (size_t shift = 1; shift < 300; shift = shift * 3 + 1)
        for (int o = 0; o < 2; o++)
            multi_check(
                comm,
                &(struct multi_case){.op = ops[o], .count = 555, .type = ceclUint8, .shift = shift},
                shift);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* All-to-all's sendbuff is symmetric here, which pull needs. */
TEST(every_direction_kind_of_flags_and_policy_is_right)
{
    static const char *const directions[] = {"push", "pull"}, *const flags[] = {"auto", "host"};
    const char *const policies[] = {"never", "allow"};
    for (int way = 0; way < 8; way++) {
        multi_setenv("CECL_DIRECTION", directions[way % 2]);
        multi_setenv("CECL_FLAGS", flags[way / 2 % 2]);
        multi_setenv("CECL_SM_POLICY", policies[way / 4]);
        ceclComm_t comm = multi_comm(NULL);
        for (uint64_t i = 0; i < 24; i++)
            multi_check(comm,
                        &(struct multi_case){.op = ops[i % 2],
                                             .count = 1 + i * (i == 20 || i == 23 ? 17011 : 997),
                                             .type = ceclFloat16,
                                             .in_place = i % 4 < 2},
                        i);
        multi_ok(NULL, ceclCommDestroy(comm));
    }
    multi_setenv("CECL_DIRECTION", NULL);
    multi_setenv("CECL_FLAGS", NULL);
    multi_setenv("CECL_SM_POLICY", NULL);
}

/* The ranks agree on where flags are, although only rank 0 has a reason to keep them on the
 * host. */
TEST(few_hardware_queues_on_one_rank_are_right)
{
    const char *before = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    char *const kept = before ? strdup(before) : NULL;
    if (multi_rank == 0)
        multi_setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    ceclComm_t comm = multi_comm(NULL);
    for (uint64_t i = 0; i < 8; i++)
        multi_check(
            comm, &(struct multi_case){.op = ops[i % 2], .count = 1 + i * 997, .type = ceclFloat16},
            i);
    multi_ok(NULL, ceclCommDestroy(comm));
    multi_setenv("CUDA_DEVICE_MAX_CONNECTIONS", kept);
    free(kept);
}

TEST(a_shard_is_the_place_in_recvbuff)
{
    ceclComm_t comm = multi_comm(NULL);
    char *recv = NULL;
    void *shard = NULL;
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv, (size_t)multi_nranks * 512));
    multi_ok(comm, ceclShard(comm, recv, 64, ceclFloat64, &shard));
    assert_ptr_equal(shard, recv + multi_rank * 512);
    ceclExplanation_t e;
    multi_ok(comm, ceclExplain(ceclOpAllGather, shard, recv, 64, ceclFloat64, comm, &e));
    assert_true(e.barriers <= 2); /* in place; out of place a call has 3 barriers */
    multi_refused(comm, ceclShard(comm, recv, 65, ceclFloat64, &shard), ceclInvalidUsage,
                  "left in its allocation");
    multi_refused(comm, ceclShard(comm, NULL, 1, ceclFloat64, &shard), ceclInvalidArgument,
                  "recvbuff: NULL");
    multi_refused(comm, ceclShard(comm, recv, 1, ceclFloat64, NULL), ceclInvalidArgument,
                  "shard: NULL");
    multi_refused(comm, ceclShard(comm, recv, 1, (ceclDataType_t)77, &shard), ceclInvalidArgument,
                  "datatype 77");
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST(in_place_all_to_all_larger_than_staging_is_right)
{
    ceclConfig_t config = multi_config();
    config.stagingBytes = 4096;
    ceclComm_t comm = multi_comm(&config);
    for (size_t count = 5000; count < 60000; count += 17001)
        multi_check(comm,
                    &(struct multi_case){
                        .op = ceclOpAlltoAll, .count = count, .type = ceclUint8, .in_place = true},
                    count);
    multi_ok(NULL, ceclCommDestroy(comm));
}
