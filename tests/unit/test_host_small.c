/* Small collectives on the host device run in stream order, and their arguments are copied when they are enqueued.
 * test_small_host.c tests how their waits end. Two ranks are two streams of one device. */
#include "host_fixture.h"

#define RANKS 2
#define SLOT 4096
#define BLOCK 1000
#define SOON_MS 45000 /* only a hang takes longer */

static struct {
    unsigned char *slots[RANKS];
    uint32_t rows[RANKS][RANKS]; /* [holder][writer] */
    uint32_t end[RANKS], late[RANKS], done[RANKS];
    unsigned char send[RANKS][BLOCK], recv[RANKS][RANKS * BLOCK];
    ceclStream_t streams[RANKS];
} all;

static int open_ranks(void **state)
{
    memset(&all, 0, sizeof(all));
    if (set_up(state) != 0)
        return 1;
    for (int r = 0; r < RANKS; r++) {
        const size_t bytes = (size_t)cecl_small_slots_bytes(RANKS, SLOT);
        all.slots[r] = aligned_alloc(256, bytes);
        assert_non_null(all.slots[r]);
        memset(all.slots[r], 0, bytes);
        all.streams[r] = new_stream();
        memset(all.send[r], 11 * (r + 1), BLOCK);
    }
    return 0;
}

static int close_ranks(void **state)
{
    const int failed = tear_down(state); /* its streams are idle afterwards */
    for (int r = 0; r < RANKS; r++)
        free(all.slots[r]);
    return failed;
}

static uint32_t word(const uint32_t *at)
{
    uint32_t value = 0;
    assert_int_equal(dev->ops->words_read(dev, at, 1, &value), ceclSuccess);
    return value;
}

static void await_word(const uint32_t *at, uint32_t value)
{
    const int64_t start = cecl_now_ms();
    while (word(at) != value && cecl_now_ms() - start < SOON_MS)
        usleep(1000);
    assert_int_equal(word(at), value);
}

/* Enqueues a rank's all-gather, whose arguments exist only until this function returns. */
static void gather(int rank, uint32_t epoch)
{
    struct cecl_meeting meeting = {.does = CECL_MEET_SIGNAL_FIRST | CECL_MEET_DONE,
                                   .first = epoch + 100,
                                   .rank = (uint32_t)rank,
                                   .nranks = RANKS,
                                   .row = all.rows[rank],
                                   .word = &all.rows[0][rank],
                                   .apart = sizeof(all.rows[0]),
                                   .ended = &all.end[rank],
                                   .done = &all.done[rank],
                                   .done_value = epoch};
    struct cecl_small small = {.kind = CECL_SMALL_ALL_GATHER,
                               .rank = rank,
                               .nranks = RANKS,
                               .send = all.send[rank],
                               .recv = all.recv[rank],
                               .bytes = BLOCK,
                               .slot_bytes = SLOT,
                               .epoch = epoch,
                               .end = &all.end[rank],
                               .late = &all.late[rank],
                               .meeting = &meeting};
    memcpy(small.slots, all.slots, sizeof(all.slots));
    assert_int_equal(dev->ops->small(dev, all.streams[rank], &small), ceclSuccess);
    memset(&small, 0xee, sizeof(small));
    memset(&meeting, 0xee, sizeof(meeting));
}

static void blocks_are_there(int rank)
{
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < BLOCK; i++)
            assert_int_equal(all.recv[rank][(size_t)r * BLOCK + i], 11 * (r + 1));
}

TEST_BETWEEN(it_runs_in_the_order_of_its_stream, open_ranks, close_ranks)
{
    uint32_t go = 0, after[RANKS] = {0};
    unsigned char late_data[BLOCK];
    memset(late_data, 11, BLOCK);
    memset(all.send[0], 0, BLOCK);
    memop(all.streams[0], CECL_MEMOP_WAIT, &go, 1);
    copy(all.streams[0], all.send[0], late_data, BLOCK);
    for (int r = 0; r < RANKS; r++) {
        gather(r, 1);
        memop(all.streams[r], CECL_MEMOP_WRITE, &after[r], 1);
    }
    await_word(&all.rows[0][1], 101);
    usleep(20000);
    assert_int_equal(word(&all.rows[1][0]), 0); /* rank 0 has not begun */
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(word(&after[r]), 0);
    release(&go, 1);
    for (int r = 0; r < RANKS; r++) {
        synchronize(all.streams[r]);
        blocks_are_there(r);
        assert_int_equal(all.late[r], 0);
        assert_int_equal(all.done[r], 1);
        assert_int_equal(after[r], 1);
    }
}

/* After each call of rank 0 another stream waits for `done`, and the next round waits for that stream. A sleeper that
 * is not woken looks again after 50 ms, so ten rounds would take 0.5 s. Other work of this machine may delay some
 * groups of ten rounds, but not all. */
TEST_BETWEEN(who_sleeps_until_it_is_done_is_woken, open_ranks, close_ranks)
{
    enum { ROUNDS = 200, TEN = 10, UNWOKEN_MS = TEN * 50 };
    uint32_t turn = 0;
    int64_t least_ms = INT64_MAX;
    ceclStream_t other = new_stream();
    for (uint32_t i = 1; i <= ROUNDS; i += TEN) {
        const int64_t start = cecl_now_ms();
        for (uint32_t k = i; k < i + TEN; k++) {
            memop(all.streams[1], CECL_MEMOP_WAIT, &turn, k - 1);
            gather(0, k);
            gather(1, k);
            memop(other, CECL_MEMOP_WAIT, &all.done[0], k);
            memop(other, CECL_MEMOP_WRITE, &turn, k);
        }
        synchronize(other);
        const int64_t took_ms = cecl_now_ms() - start;
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_true(least_ms < UNWOKEN_MS / 2);
    for (int r = 0; r < RANKS; r++)
        synchronize(all.streams[r]);
}

TEST_BETWEEN(a_device_that_closes_does_not_wait_for_peers, open_ranks, close_ranks)
{
    for (uint32_t i = 1; i <= 3; i++)
        gather(0, i);
    await_word(&all.rows[1][0], 101);
    const int64_t start = cecl_now_ms();
    dev->ops->close(dev);
    assert_true(cecl_now_ms() - start < SOON_MS);
    assert_int_equal(all.late[0], 0);
    assert_int_equal(all.done[0], 0);
    assert_int_equal(set_up(state), 0);
    release(&all.end[0], 1); /* the stream's work must end before the test frees the slots */
    await_word(&all.done[0], 3);
}

TEST_BETWEEN(what_cannot_be_is_refused_and_not_enqueued, open_ranks, close_ranks)
{
    const struct cecl_small small = {.nranks = RANKS, .bytes = SLOT + 1, .slot_bytes = SLOT};
    struct cecl_small good = small;
    assert_int_equal(dev->ops->small(dev, all.streams[0], &small), ceclInvalidArgument);
    assert_int_equal(dev->ops->stream_query(dev, all.streams[0]), ceclSuccess);
    good.bytes = SLOT;
    assert_int_equal(dev->ops->stream_destroy(dev, all.streams[0]), ceclSuccess);
    assert_int_equal(dev->ops->small(dev, all.streams[0], &good), ceclInvalidArgument);
}
