/* The running hash of each rank's calls: what it finds if one rank is far ahead, or long after a difference.
 * tests/multi/test_differ.c tests that ranks learn of every difference. */
#include "../with_cmocka.h"

#include "comm/history.h"

#define RANKS 3
static struct cecl_history ranks[RANKS];
static void *memory;

static int set_up(void **state)
{
    memory = calloc(1, cecl_history_bytes(RANKS));
    for (int r = 0; r < RANKS; r++)
        cecl_history_open(&ranks[r], memory, r, RANKS);
    return memory == NULL;
}

static int tear_down(void **state)
{
    free(memory);
    return 0;
}

/* A rank makes the calls `first` to `last`; its call number `other` differs from the peers' call. */
static void makes(int rank, uint32_t first, uint32_t last, uint32_t other)
{
    for (uint32_t call = first; call <= last; call++)
        cecl_history_note(&ranks[rank], call == other ? 77 : 1000 + call);
}

static void all_make(uint32_t first, uint32_t last)
{
    for (int r = 0; r < RANKS; r++)
        makes(r, first, last, 0);
}

static void agree(void)
{
    struct cecl_history_difference difference;
    for (int r = 0; r < RANKS; r++)
        assert_false(cecl_history_differs(&ranks[r], &difference));
}

static void finds(int rank, int other, uint32_t call)
{
    struct cecl_history_difference difference = {.rank = -1};
    assert_true(cecl_history_differs(&ranks[rank], &difference));
    assert_int_equal(difference.rank, other);
    assert_int_equal(difference.call, call);
}

TEST_BETWEEN(calls_that_one_rank_has_not_come_to_do_not_differ, set_up, tear_down)
{
    all_make(1, 10);
    makes(1, 11, 10 + CECL_HISTORY_CALLS - 1, 0);
    agree();
    makes(1, 10 + CECL_HISTORY_CALLS, 10 + 3 * CECL_HISTORY_CALLS, 0); /* call 10 is overwritten */
    agree();
    makes(0, 11, 10 + 3 * CECL_HISTORY_CALLS, 0);
    makes(2, 11, 10 + 3 * CECL_HISTORY_CALLS, 0);
    agree();
}

TEST_BETWEEN(a_difference_is_found_long_after_it, set_up, tear_down)
{
    makes(0, 1, 1000, 0);
    makes(1, 1, 1000, 3);
    makes(2, 1, 1000, 0);
    finds(0, 1, 1000 - CECL_HISTORY_CALLS + 1); /* the first call that is still kept */
}

TEST_BETWEEN(a_rank_that_is_ahead_is_compared_where_both_are, set_up, tear_down)
{
    makes(0, 1, 20, 5);
    makes(1, 1, 7, 0);
    makes(2, 1, 4, 0);
    finds(0, 1, 5);
    finds(1, 0, 5);
    struct cecl_history_difference difference;
    assert_false(cecl_history_differs(&ranks[2], &difference));
}

/* Each rank tells the facts of a call before it notes the call. */
TEST_BETWEEN(the_facts_of_both_calls_are_known, set_up, tear_down)
{
    struct cecl_history_difference difference;
    struct cecl_facts mine, theirs;
    for (uint32_t call = 1; call <= 3 * CECL_HISTORY_CALLS; call++)
        for (int r = 0; r < RANKS; r++) {
            const bool odd = r == 1 && call == 3 * CECL_HISTORY_CALLS;
            const struct cecl_facts facts = {
                .op = CECL_OP_ALL_GATHER, .ncalls = 1, .count = call + odd};
            cecl_history_tell(&ranks[r], &facts);
            if (r == RANKS - 1 && call == 3 * CECL_HISTORY_CALLS) {
                /* Rank 0 has made this call, too; rank 2 has not, so it sees rank 1's facts as those of its next call. */
                assert_false(cecl_history_next(&ranks[0], 1, &mine, &theirs));
                assert_true(cecl_history_next(&ranks[2], 1, &mine, &theirs));
                assert_int_equal(mine.count, call);
                assert_int_equal(theirs.count, call + 1);
            }
            cecl_history_note(&ranks[r], call + odd);
        }
    assert_true(cecl_history_differs(&ranks[0], &difference));
    assert_true(difference.has_facts);
    assert_int_equal(difference.mine.count, 3 * CECL_HISTORY_CALLS);
    assert_int_equal(difference.theirs.count, 3 * CECL_HISTORY_CALLS + 1);
    /* Later the row that had rank 1's facts belongs to another call. */
    makes(1, 3 * CECL_HISTORY_CALLS + 1, 4 * CECL_HISTORY_CALLS - 1, 0);
    cecl_history_tell(&ranks[1], &theirs);
    assert_true(cecl_history_differs(&ranks[0], &difference));
    assert_true(difference.has_mine);
    assert_false(difference.has_facts);
}
