/* A stream passes ceclBarrier only when all ranks have reached it; then ranks see what peers wrote before it. */
#include "multi.h"

#define ROUNDS 200
#define WORDS 1024

/* In each round ranks write to all others, reach a barrier, and read. A second barrier ends the round. */
TEST_WITH_COMM(what_was_written_before_is_seen_behind)
{
    uint32_t *words, *host = malloc((size_t)multi_nranks * WORDS * sizeof(*host));
    assert_non_null(host);
    const size_t block = WORDS * sizeof(*words);
    words = multi_alloc(comm, (size_t)multi_nranks * block);
    ceclStream_t stream = multi_stream(comm);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t mine[WORDS];
        for (uint32_t i = 0; i < WORDS; i++)
            mine[i] = round * 1000003u + (uint32_t)multi_rank * 131u + i;
        for (int p = 0; p < multi_nranks; p++) {
            void *there;
            multi_ok(comm, ceclGetPeerPointer(comm, words + (size_t)multi_rank * WORDS, p, &there));
            multi_ok(comm, ceclMemcpyAsync(comm, there, mine, block, stream));
        }
        multi_ok(comm, ceclBarrier(comm, stream));
        multi_ok(comm, ceclMemcpyAsync(comm, host, words, (size_t)multi_nranks * block, stream));
        multi_ok(comm, ceclBarrier(comm, stream));
        multi_ok(comm, ceclStreamSynchronize(comm, stream));
        for (int r = 0; r < multi_nranks; r++)
            for (uint32_t i = 0; i < WORDS; i++)
                assert_int_equal(host[(size_t)r * WORDS + i],
                                 round * 1000003u + (uint32_t)r * 131u + i);
    }
    multi_ok(comm, ceclStreamDestroy(comm, stream));
    free(host);
}

TEST_WITH_COMM(nobody_passes_before_the_last_has_come)
{
    for (int late = 0; late < multi_nranks; late++) {
        double came = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        if (multi_rank == late) {
            usleep(30000);
            came = multi_seconds();
        }
        multi_ok(comm, ceclBarrier(comm, NULL));
        multi_ok(comm, ceclStreamSynchronize(comm, NULL));
        const double passed = multi_seconds();
        MPI_Bcast(&came, 1, MPI_DOUBLE, late, MPI_COMM_WORLD);
        assert_true(passed >= came);
    }
}

TEST_WITH(multi_comm_under("CECL_SM_POLICY", "never", NULL),
          it_is_explained_as_one_exchange_without_sms_or_copies)
{
    ceclExplanation_t e;
    multi_ok(comm, ceclGroupStart());
    multi_ok(comm, ceclBarrier(comm, NULL));
    multi_ok(comm, ceclGroupExplain(comm, &e));
    assert_int_equal(e.zeroSm, 1);
    assert_int_equal(e.copies, 0);
    assert_int_equal(e.barriers, 1);
    assert_int_equal(e.bytesSent, 0);
    assert_string_equal(e.path, "barrier");
}
