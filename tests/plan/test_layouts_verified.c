/* A fault in a gather of blocks that differ that the verifier must find. Random ones: tests/fuzz/fuzz_plan.c. */
#include "plans.h"

TEST(a_write_beside_the_blocks_is_found)
{
    const uint64_t layout[] = {4, 4, 0, 8}; /* a gap at 4 */
    struct cecl_part part = part_of(CECL_OP_ALL_GATHERV, false, CECL_PUSH, 4);
    set_layout(&part, layout, 2);
    struct cecl_plan *plans = lower_all(&part, 1, 2);
    assert_int_equal(cecl_verify(plans, 1, 2), ceclSuccess);
    plans[0].copies[0].bytes = 3;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    plans[0].copies[0].bytes = 4;
    plans[0].copies[0].dst.offset = 4;
    assert_int_equal(cecl_verify(plans, 1, 2), ceclInternalError);
    free_plans(plans, 2);
}
