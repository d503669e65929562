/* The pool across ranks: growth, coalescing, no exchange in steady state, unequal calls. */
#include "multi.h"

static uint64_t exchanges(ceclComm_t comm)
{
    ceclPoolStats_t stats;
    multi_ok(comm, ceclPoolStats(comm, &stats));
    return stats.exchanges;
}

TEST_WITH_COMM(alloc_free_gather_cycles_exchange_nothing)
{
    const char *given = getenv("CECL_TEST_CYCLES");
    const int cycles = multi_share(given ? atoi(given) : 10000);
    const size_t n = (size_t)multi_nranks;
    char *warm = multi_alloc(comm, n * 2048 * 4);
    multi_ok(comm, ceclMemFree(comm, warm));
    const uint64_t before = exchanges(comm);
    assert_true(before > 0);
    for (int i = 0; i < cycles; i++) {
        const size_t bytes = 16 + (size_t)(i * 37 % 2000);
        char *recv = multi_alloc(comm, n * bytes);
        multi_ok(comm,
                 ceclAllGather(recv + (size_t)multi_rank * bytes, recv, bytes, ceclInt8, comm, 0));
        if (i % 8 == 7)
            multi_ok(comm, ceclStreamSynchronize(comm, 0));
        multi_ok(comm, ceclMemFree(comm, recv));
    }
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    assert_int_equal(exchanges(comm), before);
}

TEST(freed_blocks_coalesce_and_growth_is_counted)
{
    enum { BLOCKS = 64 };
    ceclConfig_t config = multi_config();
    /* Large enough for the communicator's own memory on any device. */
    config.segmentBytes = 64 << 20;
    config.stagingBytes = 4096;
    ceclComm_t comm = multi_comm(&config);
    ceclPoolStats_t start, full, after;
    void *blocks[BLOCKS], *large = NULL, *huge = NULL;
    multi_ok(comm, ceclPoolStats(comm, &start));
    const size_t each = (size_t)((start.mappedBytes - start.usedBytes) / BLOCKS / 256 * 256);
    for (int i = 0; i < BLOCKS; i++)
        multi_ok(comm, ceclMemAlloc(comm, &blocks[i], each));
    multi_ok(comm, ceclPoolStats(comm, &full));
    assert_int_equal(full.segments, start.segments);
    for (int i = 0; i < BLOCKS; i++) /* in a scattered order: 37 and 64 are coprime */
        multi_ok(comm, ceclMemFree(comm, blocks[i * 37 % BLOCKS]));
    multi_ok(comm, ceclMemAlloc(comm, &large, each * BLOCKS));
    multi_ok(comm, ceclPoolStats(comm, &after));
    assert_int_equal(after.segments, start.segments);
    assert_int_equal(after.peakBytes, full.usedBytes);
    multi_ok(comm, ceclMemAlloc(comm, &huge, 3 * (size_t)start.mappedBytes));
    multi_ok(comm, ceclPoolStats(comm, &after));
    assert_int_equal(after.segments, start.segments + 1);
    assert_true(after.exchanges > start.exchanges);
    multi_ok(NULL, ceclCommDestroy(comm));
}

TEST(a_full_pool_is_out_of_memory_on_all_ranks_and_stays_usable)
{
    ceclConfig_t config = multi_config();
    config.poolBytes = 64 << 20;
    config.segmentBytes = 2 << 20;
    config.stagingBytes = 4096;
    ceclComm_t comm = multi_comm(&config);
    void *ptr = (void *)8;
    multi_refused(comm, ceclMemAlloc(comm, &ptr, 65 << 20), ceclOutOfMemory, "CECL_POOL_BYTES");
    multi_refused(comm, ceclMemAlloc(comm, &ptr, SIZE_MAX), ceclOutOfMemory, "do not fit");
    assert_ptr_equal(ptr, (void *)8);
    multi_works(comm, NULL, multi_nranks);
    multi_ok(NULL, ceclCommDestroy(comm));
}

/* Sizes that the program does not set are chosen to fit into the pool. */
TEST(a_small_pool_holds_what_the_communicator_needs)
{
    for (int64_t bytes = 64 << 20; bytes <= 256 << 20; bytes *= 2) {
        ceclConfig_t config = multi_config();
        config.poolBytes = bytes;
        multi_cycle(&config);
    }
}

TEST_WITH_COMM(differing_calls_are_found_at_the_next_growth)
{
    void *ptr = NULL;
    ceclPoolStats_t stats;
    multi_ok(comm, ceclMemAlloc(comm, &ptr, multi_rank == 1 ? 512 : 4096));
    multi_ok(comm, ceclPoolStats(comm, &stats));
    multi_refused(comm, ceclMemAlloc(comm, &ptr, (size_t)stats.mappedBytes * 2), ceclInvalidUsage,
                  "rank 1");
}
