/* Calls by splits on the device. A reduce-scatter ends on a rank while peers still reduce out of its staging: a call by
 * splits that follows does not disturb them. If rows do not fit, the rank fails only after its call has ended. */
#include "../with_cmocka.h"

#include "comm/comm.h"

#define RANKS 4
#define COUNT 10000
#define ROW 16
#define ROUNDS 20
#include "comms.h"

static struct memory {
    float input[RANKS * COUNT], output[COUNT];
    uint64_t splits[RANKS], received[2 * RANKS];
    unsigned char send[RANKS * ROW], recv[RANKS * ROW];
} * memory[RANKS];

static int open_with_memory(void **state)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = CECL_SM_ALLOW;
    options.direction = CECL_DIRECTION_PUSH; /* selects staging */
    assert_int_equal(open_all(state), 0);
    allocate_all(memory, sizeof(*memory[0]));
    OK_EACH(ceclSetOptions(comms[r], &options));
    return 0;
}

/* Fills inputs directly, as programs may on the host device. */
static void fill(int rank, int round)
{
    struct memory *mine = memory[rank];
    for (int i = 0; i < RANKS * COUNT; i++)
        mine->input[i] = (float)(rank + i % 7);
    for (int p = 0; p < RANKS; p++) {
        mine->splits[p] = 1;
        memset(mine->send + p * ROW, round + rank * RANKS + p, ROW);
    }
}

static void check(int rank, int round)
{
    const struct memory *mine = memory[rank];
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(mine->output[i], (float)(6 + RANKS * ((rank * COUNT + i) % 7)), 0);
    for (int p = 0; p < RANKS; p++)
        assert_int_equal(mine->recv[p * ROW], round + p * RANKS + rank);
}

TEST_BETWEEN(staging_that_peers_still_read_is_left_alone, open_with_memory, close_all)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r < RANKS; r++)
            fill(r, round);
        OK(ceclGroupStart());
        OK_EACH(ceclReduceScatter(memory[r]->input, memory[r]->output, COUNT, ceclFloat32, ceclSum,
                                  comms[r], NULL));
        OK(ceclGroupEnd());
        OK_EACH(ceclAlltoAllvDevice(memory[r]->send, RANKS, memory[r]->splits, memory[r]->recv,
                                    RANKS, memory[r]->received, ROW, ceclUint8, comms[r], NULL));
        finish_all(NULL);
        for (int r = 0; r < RANKS; r++)
            check(r, round);
    }
}

static ceclResult_t error_of(int rank)
{
    ceclResult_t error = ceclInternalError;
    OK(ceclCommGetAsyncError(comms[rank], &error));
    return error;
}

/* Writes what rank 0's kernels write when they find rows that do not fit, `what` last. */
static void find_trouble(void)
{
    struct cecl_splits_trouble *told = comms[0]->engine.flags.trouble;
    told->rank = 2;
    told->experts = 1;
    atomic_store((_Atomic uint32_t *)&told->what, CECL_SPLITS_SEND);
}

/* Rank 0's kernel has found rows that do not fit, and a peer has not reached its own kernel. If rank 0 failed now, the
 * peer would hear of the failure and move no rows. */
TEST_BETWEEN(rows_that_do_not_fit_are_told_once_the_call_has_ended, open_all, abort_all)
{
    for (int r = 0; r < RANKS - 1; r++)
        OK(ceclBarrier(comms[r], NULL));
    find_trouble();
    assert_int_equal(error_of(0), ceclSuccess);
    OK(ceclBarrier(comms[0], NULL));            /* a later call, which is not awaited */
    (void)!ceclBarrier(comms[RANKS - 1], NULL); /* rank 0 may have failed meanwhile */
    (void)!ceclStreamSynchronize(comms[0], NULL);
    assert_int_equal(error_of(0), ceclInvalidUsage);
    assert_non_null(strstr(ceclGetLastError(comms[0]), "rank 2"));
}

/* Rank 0 finds rows that do not fit, but first learns of a peer's end. */
TEST_BETWEEN(a_peers_end_does_not_hide_rows_that_do_not_fit, open_all, abort_all)
{
    OK(ceclBarrier(comms[0], NULL));
    find_trouble();
    OK(ceclCommRevoke(comms[1]));
    (void)!ceclStreamSynchronize(comms[0], NULL);
    assert_int_equal(error_of(0), ceclInvalidUsage);
}
