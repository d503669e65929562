/* The rows of strided blocks in plans, and faults in them that the verifier must find. Random strided calls:
 * tests/fuzz/fuzz_plan.c. */
#include "plans.h"

/* 2 ranks gather 4 rows of 3 bytes into rows of 8: a gap of 2. */
static struct cecl_plan *gather_with_gap(void)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER_STRIDED, true, CECL_PUSH, 12);
    part.call.view.shape = (struct cecl_shape){.width = 3,
                                               .rows = 4,
                                               .send_pitch = 8,
                                               .send_stride = 3,
                                               .recv_pitch = 8,
                                               .recv_stride = 3};
    return lower_all(&part, 1, 2);
}

TEST(rows_go_in_one_copy_to_each_peer)
{
    struct cecl_plan *plans = gather_with_gap();
    assert_int_equal(plans[0].ncopies, 1);
    assert_int_equal(plans[0].copies[0].rows, 4);
    assert_int_equal(plans[0].copies[0].bytes, 3);
    assert_int_equal(cecl_plan_bytes(&plans[0]), 12);
    free_plans(plans, 2);
}

TEST(broken_rows_are_found)
{
    struct cecl_plan *plans = gather_with_gap();
    struct cecl_copy *copy = &plans[0].copies[0];
    const struct cecl_copy right = *copy;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclSuccess);
    copy->rows = 3;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->rows = 5;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->bytes = 4;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->dst_pitch = 7;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->src_pitch = 2; /* less than a row */
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->rows = 0;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    copy->rows = UINT64_MAX / 2;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    *copy = right;
    plans[1].part.call.view.shape.recv_pitch = 9; /* ranks differ */
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    free_plans(plans, 2);
}
