/* What benchmark programs compute from times: medians; the threshold that cecl_tune takes from the times of two
 * methods; the sizes at which cecl_tune --against reports that one library is faster. */
#include "../with_cmocka.h"

#include "bench.h"
#include "tuner/spans.h"

TEST(a_median_is_the_middle_value_or_the_mean_of_both)
{
    double three[] = {9, 1, 5}, four[] = {40, 10, 20, 30}, two[] = {6, 2};
    assert_true(median_of(three, 3) == 5);
    assert_true(median_of(three, 1) == 1);
    assert_true(median_of(four, 4) == 25);
    assert_true(median_of(two, 2) == 4);
}

#define KIB 1024

/* The first method takes 10 us plus 1 us per KiB, the second always 12 us: they are equal at 2 KiB. */
static const struct point crossing[] = {
    {1 * KIB, {11, 12}}, {2 * KIB, {12, 12}}, {4 * KIB, {14, 12}}, {8 * KIB, {18, 12}}};
#define COUNT 4

TEST(a_max_threshold_is_the_last_size_of_the_first_way)
{
    assert_int_equal(split_value(crossing, COUNT, false, 0, 0), 1 * KIB);
    assert_int_equal(split_value(crossing, COUNT, false, 64 * KIB, 0), 2 * KIB);
}

TEST(a_min_threshold_is_the_first_size_of_the_second_way)
{
    assert_int_equal(split_value(crossing, COUNT, true, 1, 1), 2 * KIB);
    assert_int_equal(split_value(crossing, COUNT, true, UINT64_MAX, 1), 4 * KIB);
}

TEST(a_threshold_that_loses_nothing_stays)
{
    assert_int_equal(split_value(crossing, COUNT, false, 1500, 0), 1500);
    assert_int_equal(split_value(crossing, COUNT, false, 3000, 0), 3000);
    assert_int_equal(split_value(crossing, COUNT, true, 4000, 0), 4000);
}

TEST(less_than_two_percent_move_nothing)
{
    const struct point points[] = {{KIB, {101.9, 100}}, {2 * KIB, {101.9, 100}}};
    assert_int_equal(split_value(points, 2, false, 64 * KIB, 0), 64 * KIB);
    const struct point won[] = {{KIB, {102.1, 100}}, {2 * KIB, {102.1, 100}}};
    assert_int_equal(split_value(won, 2, false, 64 * KIB, 7), 7);
}

TEST(the_first_way_may_win_everywhere)
{
    const struct point points[] = {{KIB, {10, 20}}, {2 * KIB, {10, 20}}};
    assert_int_equal(split_value(points, 2, false, 0, 0), 2 * KIB);
    assert_int_equal(split_value(points, 2, true, KIB, 0), 4 * KIB);
    assert_int_equal(split_value(points, 2, false, 64 * KIB, 0), 64 * KIB);
}

TEST(one_disturbed_size_does_not_decide)
{
    const struct point points[] = {
        {KIB, {10, 13}}, {2 * KIB, {900, 13}}, {4 * KIB, {10, 13}}, {8 * KIB, {10, 13}}};
    assert_int_equal(split_value(points, COUNT, false, 8 * KIB, 0), 8 * KIB);
}

/* Neither method wins at the last size, so for larger sizes the best method is unknown. */
TEST(sizes_that_were_not_measured_keep_their_way)
{
    const struct point points[] = {{KIB, {15, 10}}, {2 * KIB, {15, 10}}, {4 * KIB, {10, 10}}};
    assert_int_equal(split_value(points, 3, false, 64 * KIB, 0), 64 * KIB);
    assert_int_equal(split_value(points, 2, false, 64 * KIB, 0), 0);
}

static struct span spans[4];

TEST(nothing_is_faster)
{
    const struct point points[] = {{256, {10, 10}}, {512, {10, 9.9}}, {1024, {10, 20}}};
    assert_int_equal(spans_of(points, 3, spans), 0);
    assert_int_equal(spans_of(points, 0, spans), 0);
}

TEST(all_sizes_are_one_span)
{
    const struct point points[] = {{256, {10, 9}}, {512, {10, 9.8}}, {1024, {10, 1}}};
    assert_int_equal(spans_of(points, 3, spans), 1);
    assert_int_equal(spans[0].least, 256);
    assert_int_equal(spans[0].most, 1024);
}

TEST(a_slower_size_between_divides_them)
{
    const struct point points[] = {{256, {10, 12}},  {512, {10, 9}},  {1024, {10, 8}},
                                   {2048, {10, 11}}, {4096, {10, 9}}, {8192, {10, 10}}};
    assert_int_equal(spans_of(points, 6, spans), 2);
    assert_int_equal(spans[0].least, 512);
    assert_int_equal(spans[0].most, 1024);
    assert_int_equal(spans[1].least, 4096);
    assert_int_equal(spans[1].most, 4096);
}
