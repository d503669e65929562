/* The words of captured calls, without calls: what the watchdog reads from them, and how waits end after a failure.
 * This is one rank's view; all ranks' words are in this program's memory. */
#include "host_fixture.h"

#include "comm/progress.h"
#include "flags/awaited.h"

#define RANKS 4
#define ME 1

static struct cecl_hosted hosted;
static struct cecl_flags flags;
static void *memory;
static uint32_t replay;

static uint32_t *word_of(int rank)
{
    return cecl_flags_word(&flags, rank, rank, CECL_COUNTER_TURN);
}

static int open_words(void **state)
{
    memory = calloc(1, cecl_hosted_bytes(RANKS, 0));
    if (set_up(state) != 0 || !memory ||
        cecl_hosted_open(&hosted, dev, memory, RANKS, 0) != ceclSuccess)
        return 1;
    flags = (struct cecl_flags){.dev = dev, .nranks = RANKS, .hosted = &hosted, .replay = &replay};
    for (int r = 0; r < RANKS; r++) {
        flags.rank = (ME + 1 + r) % RANKS; /* ME comes last */
        cecl_turns_describe(&flags, &hosted);
    }
    replay = CECL_REPLAY_ENDED;
    return 0;
}

static int close_words(void **state)
{
    cecl_hosted_close(&hosted);
    free(memory);
    return tear_down(state);
}

/* Sets the word of a rank that has signalled phase j of n. */
static void signal_phase(int rank, uint32_t j, uint32_t n)
{
    *word_of(rank) = cecl_turns_word(j, n, 1);
}

/* Checks that only `rank` is late; -1: no rank is. */
static void expect_late(int rank)
{
    struct cecl_rank_set late = {{0}};
    cecl_turns_late(&flags, &late);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(cecl_rank_set_has(&late, r), r == rank);
}

TEST_BETWEEN(nobody_is_late_at_first, open_words, close_words)
{
    expect_late(-1);
}

TEST_BETWEEN(the_peer_that_is_a_phase_behind_is_late, open_words, close_words)
{
    for (uint32_t n = 3; n <= 20; n++)
        for (uint32_t j = 1; j <= n; j++) {
            for (int r = 0; r < RANKS; r++)
                signal_phase(r, j, n);
            expect_late(-1);
            signal_phase(2, j == 1 ? n : j - 1, n); /* behind */
            signal_phase(3, j % n + 1, n);          /* ahead */
            expect_late(2);
        }
}

TEST_BETWEEN(the_sum_changes_with_each_signal, open_words, close_words)
{
    for (int r = 0; r < RANKS; r++)
        for (uint32_t j = 1; j <= 3; j++) {
            const uint32_t before = cecl_turns_sum(&flags);
            signal_phase(r, j, 3);
            assert_int_not_equal(cecl_turns_sum(&flags), before);
        }
}

/* Some calls have more phases than the cycle has values. */
TEST_BETWEEN(a_call_runs_between_its_first_phase_and_its_last, open_words, close_words)
{
    static const uint32_t counts[] = {3, 4, 20, 65535, 65536, 65537, 200000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        const uint32_t n = counts[i], some[] = {1, 2, n / 2, n - 2, n - 1};
        for (size_t j = 0; j < sizeof(some) / sizeof(some[0]); j++) {
            signal_phase(ME, some[j], n);
            assert_true(cecl_turns_run(&flags));
        }
        signal_phase(ME, n, n);
        assert_false(cecl_turns_run(&flags));
    }
    replay = CECL_REPLAY_BEGUN;
    assert_true(cecl_turns_run(&flags));
}

TEST_BETWEEN(a_look_tells_whether_a_phase_was_signalled_since_the_last, open_words, close_words)
{
    assert_true(cecl_turns_go_on(&flags));
    assert_true(cecl_turns_go_on(&flags)); /* no call runs */
    for (uint32_t j = 1; j <= 2; j++) {
        signal_phase(ME, j, 3);
        const uint32_t sum = cecl_turns_sum(&flags);
        assert_true(cecl_turns_go_on(&flags));
        assert_false(cecl_turns_go_on(&flags));
        assert_true(cecl_turns_run(&flags));
        assert_int_equal(cecl_turns_sum(&flags), sum);
    }
    signal_phase(ME, 2, 3); /* the same phase of the next replay */
    assert_true(cecl_turns_go_on(&flags));
    assert_false(cecl_turns_go_on(&flags));
    replay = CECL_REPLAY_BEGUN;
    assert_true(cecl_turns_go_on(&flags));
    assert_false(cecl_turns_go_on(&flags));
}

/* At its start this rank's next call waits for the peer, but no word shows it (comm/look.c asks the driver). */
TEST_BETWEEN(a_look_notices_a_peer_that_has_not_ended_a_call_that_has_ended_here, open_words,
             close_words)
{
    for (int late = 0; late < RANKS; late++) {
        if (late == ME)
            continue;
        for (int r = 0; r < RANKS; r++)
            signal_phase(r, r == late ? 2 : 3, 3);
        assert_true(cecl_turns_go_on(&flags));
        assert_false(cecl_turns_go_on(&flags));
        signal_phase(late, 3, 3);
        assert_true(cecl_turns_go_on(&flags));
    }
}

/* This rank waits for all phases of a call with the longest cycle of bits. The peers are in another call, or have
 * given up waiting in this one. */
TEST_BETWEEN(a_release_ends_each_wait_for_a_peer, open_words, close_words)
{
    ceclStream_t stream = new_stream();
    signal_phase(ME, 1, 20);
    for (int r = 0; r < RANKS; r++)
        *(word_of(r) + 1) = 2; /* CALL */
    for (uint32_t j = 0; j < 20; j++)
        for (int r = 0; r < RANKS; r++)
            if (r != ME && j == 1)
                memop(stream, CECL_MEMOP_WAIT_SAME, word_of(r) + 1, 1);
            else if (r != ME)
                memop(stream, CECL_MEMOP_WAIT_ANY, word_of(r), cecl_turns_bit(j, 20));
    cecl_turns_release(&flags);
    synchronize(stream);
    assert_int_equal(*word_of(ME), cecl_turns_word(1, 20, 1));
}

/* The word has only some bits of the number. */
TEST_BETWEEN(a_release_ends_the_wait_for_a_large_number, open_words, close_words)
{
    const uint32_t number = 3 * CECL_TURNS_NUMBERS + 5;
    ceclStream_t stream = new_stream();
    atomic_store(&flags.numbered, number + 2000);
    *word_of(ME) = cecl_turns_word(1, 3, number);
    memop(stream, CECL_MEMOP_WAIT_SAME, word_of(2) + 1, number);
    for (int i = 0; i < 1000 && *(word_of(2) + 1) != number; i++)
        cecl_turns_release(&flags);
    synchronize(stream);
}

/* The rank is in captured call `number`, at phase j of 3. */
static void enter(int rank, uint32_t j, uint32_t number)
{
    *word_of(rank) = cecl_turns_word(j, 3, number);
    *(word_of(rank) + 1) = j < 3 ? number : 0;
}

static void count_kernel(int rank, uint32_t count, uint32_t number)
{
    cecl_hosted_counts(&hosted, ME)[rank] = (uint64_t)number << 32 | count;
}

static void expect_difference(int rank, uint32_t mine, uint32_t theirs)
{
    struct cecl_turns_difference found;
    while (cecl_turns_go_on(&flags))
        ;
    assert_int_equal(cecl_turns_differ(&flags, &found), rank >= 0);
    if (rank < 0)
        return;
    assert_int_equal(found.rank, rank);
    assert_int_equal(found.mine, mine);
    assert_int_equal(found.theirs, theirs);
}

TEST_BETWEEN(another_call_with_phases_is_found, open_words, close_words)
{
    for (int r = 0; r < RANKS; r++)
        enter(r, 1, 7);
    expect_difference(-1, 0, 0);
    enter(2, 2, 7); /* ahead */
    enter(3, 3, 6); /* behind */
    expect_difference(-1, 0, 0);
    enter(3, 1, 9);
    expect_difference(3, 7, 9);
}

TEST_BETWEEN(a_kernel_before_this_call_is_found, open_words, close_words)
{
    count_kernel(ME, 4, 2);
    count_kernel(0, 4, 2);
    enter(ME, 1, 7);
    count_kernel(3, 4, 2);
    count_kernel(2, 5, 8);
    expect_difference(2, 7, 8);
    enter(ME, 2, 7); /* the peer may have ended this call */
    expect_difference(-1, 0, 0);
}

TEST_BETWEEN(another_kernel_is_found, open_words, close_words)
{
    replay = CECL_REPLAY_BEGUN;
    for (int r = 0; r < RANKS; r++)
        count_kernel(r, 5, 3);
    expect_difference(-1, 0, 0);
    count_kernel(2, 4, 1); /* behind */
    expect_difference(-1, 0, 0);
    enter(2, 1, 7);
    expect_difference(2, 3, 7);
    count_kernel(2, 5, 4);
    expect_difference(2, 3, 4);
}

TEST_BETWEEN(a_rank_that_has_not_launched_a_kernel_is_late, open_words, close_words)
{
    replay = CECL_REPLAY_BEGUN;
    for (int r = 0; r < RANKS; r++)
        count_kernel(r, r == 2 ? 4 : 5, 3);
    expect_late(2);
}

/* The peer's own host still sees whether its call runs. */
TEST_BETWEEN(a_release_leaves_how_far_a_peer_is, open_words, close_words)
{
    signal_phase(ME, 1, 3);
    for (uint32_t j = 1; j <= 3; j++) {
        signal_phase(2, j, 3);
        cecl_turns_release(&flags);
        assert_int_equal(*word_of(2) >> 16, cecl_turns_word(j, 3, 1) >> 16);
    }
}

TEST_BETWEEN(a_release_ends_the_wait_that_a_call_begins_with, open_words, close_words)
{
    ceclStream_t stream = new_stream();
    signal_phase(3, 2, 3); /* the last act of its process */
    memop(stream, CECL_MEMOP_WAIT_ANY, word_of(3), cecl_turns_bit(0, 3));
    assert_false(cecl_turns_run(&flags));
    cecl_turns_release(&flags);
    synchronize(stream);
    assert_int_equal(*word_of(2), cecl_turns_bit(0, 1));
}

/* Peers that still run their own captured calls must not go on because of this rank. */
TEST_BETWEEN(a_release_without_a_call_that_runs_writes_nothing, open_words, close_words)
{
    signal_phase(3, 1, 3);
    cecl_turns_release(&flags);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(*word_of(r), r == 3 ? cecl_turns_word(1, 3, 1) : cecl_turns_bit(0, 1));
}

/* The rows begin in the order of their counters, and fill the table. */
TEST_BETWEEN(each_awaited_word_has_one_counter_slot_and_rank, open_words, close_words)
{
    static const int slots[] = {1, 1, 1, 1, CECL_SIGNALS, CECL_HANDED, CECL_HANDED};
    uint32_t *own = calloc(cecl_awaited_own_words(RANKS), sizeof(*own));
    size_t next = 0;
    assert_int_equal(cecl_awaited_describe(&flags, &hosted, own), ceclSuccess);
    for (int c = 0; c < (int)(sizeof(slots) / sizeof(slots[0])); c++) {
        const struct cecl_counter *counter = &flags.counters[CECL_COUNTER_READY + c];
        assert_true(slots[c] == 1 || counter->slot_bytes == RANKS * sizeof(uint32_t));
        for (int rank = 0; rank < RANKS; rank++)
            assert_ptr_equal(counter->words + (uint64_t)rank * counter->apart,
                             cecl_hosted_awaited(&hosted, rank) + next);
        next += (size_t)slots[c] * RANKS;
    }
    assert_int_equal(next, cecl_hosted_awaited_words(RANKS));
    cecl_awaited_forget(&flags);
    free(own);
}
