/* The median that the benchmark programs print. */
#include "../with_cmocka.h"

#include "bench.h"

TEST(an_odd_count_has_a_middle_value)
{
    double values[] = {9, 1, 5};
    assert_true(median_of(values, 3) == 5);
    assert_true(median_of(values, 1) == 1);
}

/* Otherwise two rounds would print the slower one. */
TEST(an_even_count_has_the_mean_of_both_middle_values)
{
    double values[] = {40, 10, 20, 30}, two[] = {6, 2};
    assert_true(median_of(values, 4) == 25);
    assert_true(median_of(two, 2) == 4);
}
