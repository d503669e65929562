/* Messages about a communicator that is being made, with its rank numbers translated to the parent's. */
#include "../with_cmocka.h"

#include "boot/rank_list.h"

static const int parent_ranks[] = {10, 3, 7, 0};

static void becomes(const char *words, const char *expected)
{
    char out[CECL_MESSAGE_BYTES];
    cecl_words_for_parent(words, parent_ranks, 4, out);
    assert_string_equal(out, expected);
}

TEST(each_rank_gets_the_parents_number)
{
    becomes("rank 1 ended unexpectedly", "rank 3 ended unexpectedly");
    becomes("joining: rank 2: no memory of rank 0's GPU",
            "joining: rank 7: no memory of rank 10's GPU");
    becomes("ranks 0 and 3 are on one GPU (CUDA device 1)",
            "ranks 10 and 0 are on one GPU (CUDA device 1)");
    becomes("ranks 0, 1, 2 and 3 did not come within 600 ms",
            "ranks 10, 3, 7 and 0 did not come within 600 ms");
    becomes("ranks differ in CECL_CHECK: 1 on rank 0, 2 on rank 1",
            "ranks differ in CECL_CHECK: 1 on rank 10, 2 on rank 3");
    becomes("rank 1, 2 times, and rank 2 and 3 others", "rank 3, 2 times, and rank 7 and 3 others");
}

TEST(what_names_no_rank_of_it_stays_as_it_is)
{
    static const char *const same[] = {"",
                                       "no host memory for 2 ranks",
                                       "rank",
                                       "rank 4 and rank 99999999999999999999 are none of four",
                                       "nranks 1: 2 expected",
                                       "excludeRanks[0] = 1",
                                       "ranks differ: 1 here"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        becomes(same[i], same[i]);
}

TEST(a_list_that_is_cut_keeps_its_count)
{
    struct cecl_rank_list list = {0};
    for (int r = 0; r < CECL_RANKS_NAMED + 2; r++)
        cecl_rank_list_add(&list, 1);
    becomes(cecl_rank_list_words(&list),
            "ranks 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 and 2 more");
}

TEST(a_message_that_grows_too_long_is_cut)
{
    char words[CECL_MESSAGE_BYTES] = "", out[CECL_MESSAGE_BYTES];
    while (strlen(words) + strlen("rank 0 ") < sizeof(words))
        strcat(words, "rank 0 ");
    cecl_words_for_parent(words, parent_ranks, 4, out);
    assert_int_equal(strlen(out), CECL_MESSAGE_BYTES - 1);
    assert_memory_equal(out, "rank 10 rank 10 ", 16);
}

TEST(who_began_is_the_last_that_is_said_to_have_given_up)
{
    assert_null(cecl_words_who_began("rank 1 ended unexpectedly"));
    assert_null(cecl_words_who_began("rank 1 gave up and then ended"));
    assert_null(cecl_words_who_began("it gave up: no paper"));
    assert_string_equal(cecl_words_who_began("joining: rank 1 gave up: no paper"),
                        "rank 1 gave up: no paper");
    assert_string_equal(cecl_words_who_began("rank 3 gave up: rank 12 gave up: rank 1"),
                        "rank 12 gave up: rank 1");
}
