/* Detection of the period in a sequence of calls, which is a string with a letter for each call. */
#include "../with_cmocka.h"

#include "nccl/trial_period.h"

static struct cecl_period period;

static int start(void **state)
{
    memset(&period, 0, sizeof(period));
    return 0;
}

static bool add(char letter)
{
    return cecl_period_next(&period, cecl_period_token((uint64_t)letter * 7919, letter != '+'));
}

/* Makes the calls `times` times. Returns how many calls began a period; *whole: how many of these ended a whole period. */
static int repeat(const char *calls, int times, int *whole)
{
    int begun = 0;
    *whole = 0;
    for (int i = 0; i < times; i++) {
        for (const char *at = calls; *at; at++) {
            const bool begins = add(*at);
            begun += begins;
            *whole += begins && period.was_whole;
        }
    }
    return begun;
}

TEST_BETWEEN(a_sequence_without_a_period_has_none, start, NULL)
{
    uint64_t word = 1;
    for (int i = 0; i < 20000; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        assert_false(add((char)('a' + (word >> 60))));
    }
    assert_int_equal(period.length, 0);
}

TEST_BETWEEN(a_period_is_found_by_the_first_search_after_three_and_64_calls, start, NULL)
{
    int whole;
    assert_int_equal(repeat("abcdefghij", 9, &whole), 0);
    assert_int_equal(period.length, 0);
    repeat("abcdefghij", 1, &whole);
    assert_int_equal(period.length, 10);
    assert_int_equal(repeat("abcdefghij", 10, &whole), 10);
    assert_true(whole >= 9);
}

TEST_BETWEEN(one_call_again_and_again_is_a_period, start, NULL)
{
    int whole;
    repeat("a", 63, &whole);
    assert_int_equal(period.length, 0);
    repeat("a", 1, &whole);
    assert_int_equal(period.length, 1);
    assert_int_equal(repeat("a", 10, &whole), 10);
}

/* FSDP's step: layers that gather, then layers that reduce. All layers make the same calls. */
TEST_BETWEEN(layers_that_repeat_within_a_step_are_not_the_period, start, NULL)
{
    int whole;
    static const char step[] = "gggggggggggggggggggggggggrgrgrgrgrgrgrgrgrgrgrgra";
    repeat(step, 12, &whole);
    assert_int_equal(period.length, sizeof(step) - 1);
}

/* Micro-steps are found first. The last one of each step differs, so in the end the whole step is found. */
TEST_BETWEEN(a_period_that_breaks_off_again_and_again_gives_way_to_a_longer_one, start, NULL)
{
    char step[7 * 25 + 38 + 1] = "";
    int whole;
    for (int i = 0; i < 7; i++)
        strcat(step, "abbbbbbbbbbbbbbbbbbbbbbbc");
    strcat(step, "abbbbbbbbbbbbbbbbbbbbbbbcrrrrrrrrrrrrr");
    repeat(step, 40, &whole);
    assert_int_equal(period.length, strlen(step));
}

TEST_BETWEEN(an_odd_step_costs_no_more_than_itself, start, NULL)
{
    int whole;
    for (int times = 6; times <= 30; times += 24) { /* soon after the period is found, and later */
        start(state);
        repeat("abcdefghijklmnop", times, &whole);
        assert_int_equal(period.length, 16);
        repeat("abcdefghijklmnxxop", 1, &whole);
        assert_int_equal(whole, 1); /* the step before this one */
        repeat("abcdefghijklmnop", 10, &whole);
        assert_true(whole >= 8);
        assert_int_equal(period.length, 16);
    }
}

TEST_BETWEEN(a_changed_sequence_is_found_anew, start, NULL)
{
    int whole;
    repeat("abcdefg", 30, &whole);
    const uint64_t before = period.pattern;
    repeat("abcdefgh", 200, &whole);
    assert_int_equal(period.length, 8);
    assert_true(period.pattern != before);
    repeat("abcdefg", 300, &whole);
    assert_int_equal(period.length, 7);
    assert_true(period.pattern == before);
}

/* The detection starts at any call, but a period never begins within a group. */
TEST_BETWEEN(periods_begin_at_the_same_call, start, NULL)
{
    static const char *const turns[] = {"abc+++d", "bc+++da", "++dabc+", "dabc+++"};
    int whole;
    uint64_t pattern = 0;
    for (int i = 0; i < 4; i++) {
        start(state);
        repeat(turns[i], 20, &whole);
        assert_int_equal(period.length, 7);
        assert_true(i == 0 || period.pattern == pattern);
        pattern = period.pattern;
        for (int call = 0; call < 70; call++)
            assert_false(add(turns[i][call % 7]) && turns[i][call % 7] == '+');
    }
}

TEST_BETWEEN(the_longest_period_is_found_and_no_longer_one, start, NULL)
{
    for (uint32_t length = CECL_PERIOD_MOST; length <= CECL_PERIOD_MOST + 1; length++) {
        start(state);
        for (uint64_t call = 0; call < 4 * (uint64_t)length; call++)
            cecl_period_next(&period, cecl_period_token(call % length * 31, true));
        assert_int_equal(period.length, length > CECL_PERIOD_MOST ? 0 : length);
    }
}
