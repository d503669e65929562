/* The verifier returns a result for every input: invalid calls, sizes beyond any memory, ranks that
 * disagree. It never accesses memory out of bounds (the sanitizers check), and accepts no invalid input. */
#include "broken.h"

TEST(blocks_beyond_any_memory_are_refused)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    for (int i = 0; i < 2 * RANKS; i++) {
        plans[i].part.call.bytes = UINT64_MAX / RANKS + 1; /* times RANKS wraps around to 0 */
        plans[i].nsteps = 0;
    }
    expect_fault(plans, "tracked byte by byte");
}

TEST(copies_to_staging_beyond_any_memory_are_refused)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, true, CECL_PUSH);
    for (int i = 0; i < 2 * RANKS; i++)
        plans[i].part.means.staging_bytes =
            UINT64_MAX / RANKS + 17; /* times RANKS wraps around to a small number */
    plans[RANKS].copies[0].dst.offset = (uint64_t)1 << 40;
    expect_fault(plans, "of staging: more than can be tracked");
}

TEST(blocks_without_a_byte_are_refused)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    for (int i = 0; i < 2 * RANKS; i++) {
        plans[i].part.call.bytes = 0;
        plans[i].nsteps = 0;
    }
    expect_fault(plans, "blocks of 0 bytes");
}

TEST(an_op_that_nobody_defined_is_refused)
{
    static const struct cecl_op *const none[] = {NULL, &cecl_ops[CECL_OP_MEM_ALLOC]};
    for (size_t o = 0; o < sizeof(none) / sizeof(none[0]); o++) {
        struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
        for (int i = 0; i < 2 * RANKS; i++)
            plans[i].part.call.op = none[o];
        expect_fault(plans, "no collective");
    }
}

TEST(a_call_without_the_layout_that_it_needs_is_refused)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_TO_ALLV, CECL_OP_ALL_TO_ALLV_AT};
    for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
        struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
        for (int i = 0; i < 2 * RANKS; i++)
            plans[i].part.call.op = &cecl_ops[ops[o]];
        expect_fault(plans, "layout");
    }
}

TEST(a_layout_of_another_length_is_refused)
{
    const uint64_t layout[2 * RANKS] = {6, 6, 6, 6, 0, 6, 12, 18};
    for (uint32_t words = 0; words <= 5 * RANKS; words++) {
        struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHERV, false, CECL_PUSH);
        for (int i = 0; i < 2 * RANKS; i++) {
            plans[i].part.call.view.layout = layout;
            plans[i].part.call.layout_words = words;
        }
        if (words == 2 * RANKS) {
            assert_int_equal(cecl_verify(plans, 2, RANKS), ceclSuccess);
            free_plans(plans, 2 * RANKS);
        } else {
            expect_fault(plans, "layout");
        }
    }
}

/* Changes one field that must be equal on all ranks. */
static bool disagree(struct cecl_part *part, int field)
{
    switch (field) {
    case 0: part->means.staging_bytes++; return true;
    case 1: part->means.staging_offset += 256; return true;
    case 2: part->means.half ^= 1; return true;
    case 3: part->means.late = !part->means.late; return true;
    case 4: part->means.slots_offset += 512; return true;
    case 5: part->means.slot_bytes += 512; return true;
    case 6: part->way.small = !part->way.small; return true;
    case 7: part->call.op = &cecl_ops[CECL_OP_ALL_GATHER]; return true;
    case 8: part->call.bytes++; return true;
    case 9: part->call.in_place = !part->call.in_place; return true;
    case 10: part->call.root++; return true;
    case 11: part->call.element = 2; return true;
    default: return false;
    }
}

TEST(ranks_that_disagree_are_caught)
{
    for (int field = 0;; field++) {
        struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, true, CECL_PUSH);
        if (!disagree(&plans[2].part, field)) {
            free_plans(plans, 2 * RANKS);
            return;
        }
        expect_fault(plans, "different calls");
    }
}

/* Sums that wrap around to small numbers, or 0. */
TEST(numbers_whose_sum_wraps_around_are_refused)
{
    static const struct {
        uint64_t offset, bytes, rows, pitch;
    } wrong[] = {{UINT64_MAX - 2, 6, 1, 0},
                 {0, UINT64_MAX, 1, 0},
                 {1, UINT64_MAX, 1, 0},
                 {0, 6, 3, (uint64_t)1 << 63},
                 {0, 6, ((uint64_t)1 << 61) + 1, 8},
                 {0, 6, 0, 0},
                 {0, 0, 1, 0}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        for (int is_source = 0; is_source < 2; is_source++) {
            struct cecl_plan *plans = two_calls(CECL_OP_ALL_TO_ALL, false, CECL_PUSH);
            struct cecl_copy *copy = &plans[1].copies[0];
            *(is_source ? &copy->src.offset : &copy->dst.offset) = wrong[i].offset;
            copy->bytes = wrong[i].bytes;
            copy->rows = wrong[i].rows;
            copy->dst_pitch = copy->src_pitch = 8;
            *(is_source ? &copy->src_pitch : &copy->dst_pitch) = wrong[i].pitch;
            expect_fault(plans, "of a copy");
        }
}

TEST(a_batch_whose_end_wraps_around_is_refused)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    struct cecl_step *step = plans[1].steps;
    while (step->kind != CECL_STEP_COPY)
        step++;
    assert_true(plans[1].ncopies > 1);
    step->first = UINT32_MAX;
    step->count = 2;
    expect_fault(plans, "out of the plan's copies");
}

TEST(no_calls_and_no_ranks_are_refused)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    assert_int_equal(cecl_verify(NULL, 1, 1), ceclInternalError);
    assert_int_equal(cecl_verify(plans, 0, RANKS), ceclInternalError);
    assert_int_equal(cecl_verify(plans, -1, RANKS), ceclInternalError);
    assert_int_equal(cecl_verify(plans, 2, 0), ceclInternalError);
    assert_int_equal(cecl_verify(plans, 2, -RANKS), ceclInternalError);
    assert_int_equal(cecl_verify(plans, 2, CECL_MAX_RANKS + 1), ceclInternalError);
    free_plans(plans, 2 * RANKS);
}

TEST(a_fault_of_form_names_call_rank_and_step)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    assert_int_equal(plans[RANKS + 2].steps[1].kind, CECL_STEP_SIGNAL);
    plans[RANKS + 2].steps[1].peer = RANKS;
    expect_fault(plans, "call 1, rank 2, step 1: ");
}

TEST(a_race_names_both_uses_and_their_steps)
{
    struct cecl_plan *plans = two_calls(CECL_OP_ALL_GATHER, true, CECL_PUSH);
    struct cecl_plan *plan = &plans[RANKS + 1]; /* rank 1's second call */
    uint32_t last = 0;
    while (plan->steps[last].kind != CECL_STEP_COPY)
        last++;
    plan->steps[last - 1].phase =
        plan->steps[0].phase; /* keeps the form, but waits for rank 0 twice */
    assert_int_equal(plan->steps[last - 1].peer, 0);
    plan->steps[last - 1].peer = 2;
    assert_int_equal(cecl_verify(plans, 2, RANKS), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "race: recvbuff of rank 0, bytes 6 to 11"));
    assert_non_null(strstr(cecl_message(), "the user of rank 0 before call 1"));
    assert_non_null(strstr(cecl_message(), "the write of call 1, rank 1, step 6"));
    free_plans(plans, 2 * RANKS);
}
