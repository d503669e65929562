/* Two equal calls whose plans a test breaks, and what the verifier then says. */
#ifndef CECL_TESTS_BROKEN_H
#define CECL_TESTS_BROKEN_H

#include "plans.h"

#define RANKS 4

static inline struct cecl_plan *two_calls(enum cecl_op_index op, bool in_place,
                                          enum cecl_direction direction)
{
    struct cecl_part parts[2] = {part_of(op, in_place, direction, 6),
                                 part_of(op, in_place, direction, 6)};
    parts[0].means.staging_bytes = parts[1].means.staging_bytes = 9;
    return lower_all(parts, 2, RANKS);
}

static inline void expect_fault(struct cecl_plan *plans, const char *words)
{
    assert_int_equal(cecl_verify(plans, 2, RANKS), ceclInternalError);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' expected in '%s'", words, cecl_message());
    free_plans(plans, 2 * RANKS);
}

#endif
