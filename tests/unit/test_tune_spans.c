/* The sizes at which cecl_tune --against says that one library is faster. */
#include "../with_cmocka.h"

#include "tuner/spans.h"

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
