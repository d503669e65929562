/* The rows of strided blocks in plans. Random strided calls: tests/fuzz/fuzz_plan.c. */
#include "plans.h"

/* 2 ranks gather 4 rows of 3 bytes into rows of 8: a gap of 2. */
TEST(rows_go_in_one_copy_to_each_peer)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER_STRIDED, true, CECL_PUSH, 12);
    part.call.view.shape = (struct cecl_shape){.width = 3,
                                               .rows = 4,
                                               .send_pitch = 8,
                                               .send_stride = 3,
                                               .recv_pitch = 8,
                                               .recv_stride = 3};
    struct cecl_plan *plans = lower_all(&part, 1, 2);
    assert_int_equal(plans[0].ncopies, 1);
    assert_int_equal(plans[0].copies[0].rows, 4);
    assert_int_equal(plans[0].copies[0].bytes, 3);
    assert_int_equal(cecl_plan_bytes(&plans[0]), 12);
    free_plans(plans, 2);
}
