/* Which rank each rank waits for: the watchdog finds the rank at the end of a chain, and old messages excuse no rank. */
#include "../with_cmocka.h"

#include "boot/rank_list.h"
#include "comm/waits.h"

#define RANKS 200
#define NOW 100000
static struct cecl_waits ranks[RANKS];
static void *memory;

static int set_up(void **state)
{
    memory = calloc(1, cecl_waits_bytes(RANKS));
    for (int r = 0; r < RANKS; r++)
        cecl_waits_open(&ranks[r], memory, r, RANKS);
    return memory == NULL;
}

static int tear_down(void **state)
{
    free(memory);
    return 0;
}

/* `first` and the `more` ranks after it; first = -1: no rank. */
static struct cecl_rank_set list(int first, int more)
{
    struct cecl_rank_set some = {{0}};
    for (int r = first; first >= 0 && r <= first + more; r++)
        cecl_rank_set_add(&some, r);
    return some;
}

static void tells(int rank, int first, int more, int64_t when)
{
    const struct cecl_rank_set some = list(first, more);
    cecl_waits_tell(&ranks[rank], &some, when);
}

/* One look of the watchdog, whose parts find these late ranks one after the other. */
static void looks(int rank, int one, int other, int64_t when)
{
    const struct cecl_rank_set first = list(one, 0), second = list(other, 0);
    struct cecl_rank_set all = {{0}};
    cecl_rank_set_join(&all, &first);
    cecl_rank_set_join(&all, &second);
    cecl_rank_set_join(&all, &first);
    cecl_waits_tell(&ranks[rank], &all, when);
}

static void assert_named(const struct cecl_rank_set *late, const char *expected)
{
    struct cecl_rank_list named = {.count = 0};
    for (int r = 0; r < RANKS; r++)
        if (cecl_rank_set_has(late, r))
            cecl_rank_list_add(&named, r);
    assert_string_equal(cecl_rank_list_words(&named), expected);
}

static void blames(int rank, struct cecl_rank_set late, const char *expected)
{
    cecl_waits_follow(&ranks[rank], NOW - 500, &late);
    assert_named(&late, expected);
}

TEST_BETWEEN(a_rank_that_waits_for_nobody_is_named, set_up, tear_down)
{
    blames(0, list(1, 0), "rank 1");
    tells(0, 1, 0, NOW);
    blames(0, list(1, 0), "rank 1");
    blames(0, list(1, 2), "ranks 1, 2 and 3");
}

TEST_BETWEEN(a_chain_is_followed_to_its_end, set_up, tear_down)
{
    tells(0, 1, 0, NOW);
    tells(1, 150, 0, NOW); /* beyond the first 64 */
    tells(150, 64, 0, NOW - 500);
    blames(0, list(1, 0), "rank 64");
    blames(150, list(64, 0), "rank 64");
    tells(150, -1, 0, NOW);
    blames(0, list(1, 0), "rank 150");
}

TEST_BETWEEN(those_that_wait_are_left_out, set_up, tear_down)
{
    tells(1, 3, 0, NOW);
    tells(2, 3, 1, NOW);
    blames(0, list(1, 2), "ranks 3 and 4");
    tells(4, 2, 0, NOW);
    blames(0, list(1, 2), "rank 3");
}

TEST_BETWEEN(ranks_that_wait_for_each_other_are_all_named, set_up, tear_down)
{
    tells(0, 1, 1, NOW);
    tells(1, 2, 0, NOW);
    tells(2, 0, 1, NOW);
    blames(0, list(1, 1), "ranks 1 and 2");
    tells(0, 5, 0, NOW - 1000); /* rank 0 ignores its own messages */
    blames(0, list(1, 1), "ranks 1 and 2");
    tells(2, 0, 3, NOW); /* rank 3 is outside of the circle */
    blames(0, list(1, 1), "rank 3");
}

TEST_BETWEEN(what_was_told_long_ago_excuses_nobody, set_up, tear_down)
{
    tells(1, 2, 0, NOW - 501);
    blames(0, list(1, 0), "rank 1");
    tells(1, 2, 0, NOW - 499);
    blames(0, list(1, 0), "rank 2");
    tells(1, -1, 0, NOW);
    blames(0, list(1, 0), "rank 1");
    struct cecl_rank_set late = list(1, 1);
    tells(2, 1, 0, 1); /* the clock has just started */
    cecl_waits_follow(&ranks[0], -400, &late);
    assert_named(&late, "rank 1");
}

TEST_BETWEEN(many_are_followed, set_up, tear_down)
{
    blames(0, list(1, CECL_RANKS_NAMED),
           "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1 more");
    for (int r = 1; r < RANKS - 1; r++)
        tells(r, r + 1, 0, NOW);
    blames(0, list(1, CECL_RANKS_NAMED), "rank 199");
    for (int r = RANKS - 1; r > 1; r--)
        tells(r, r - 1, 0, NOW);
    tells(1, -1, 0, NOW);
    blames(0, list(150, 49), "rank 1");
}

TEST_BETWEEN(ranks_that_do_not_exist_are_not_named, set_up, tear_down)
{
    tells(1, RANKS, 5, NOW);
    blames(0, list(1, 0), "rank 1");
}

TEST_BETWEEN(a_look_keeps_what_all_its_parts_found, set_up, tear_down)
{
    looks(1, 2, 70, NOW);
    blames(0, list(1, 0), "ranks 2 and 70");
    looks(1, 2, -1, NOW);
    blames(0, list(1, 0), "rank 2");
    looks(1, -1, 2, NOW);
    blames(0, list(1, 0), "rank 2");
    looks(1, -1, -1, NOW);
    blames(0, list(1, 0), "rank 1");
}

TEST_BETWEEN(a_rank_knows_what_it_has_told_lately, set_up, tear_down)
{
    tells(3, 70, 1, NOW);
    const struct cecl_rank_set own = cecl_waits_of(&ranks[3], 3, NOW - 500),
                               later = cecl_waits_of(&ranks[3], 3, NOW + 1);
    assert_named(&own, "ranks 70 and 71");
    assert_named(&later, "no rank");
    tells(3, -1, 0, NOW);
    const struct cecl_rank_set none = cecl_waits_of(&ranks[3], 3, NOW - 500);
    assert_named(&none, "no rank");
}
