/* The shape of plans: batches, order, local copies, and printed form. fuzz_plan.c shows that they are right. */
#include "plans.h"

static struct cecl_plan lower_one(enum cecl_op_index op, bool in_place,
                                  enum cecl_direction direction, int nranks, int rank)
{
    return lower_at(part_of(op, in_place, direction, 4096), nranks, rank);
}

TEST(out_of_place_issues_one_local_copy)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL};
    for (int o = 0; o < 2; o++)
        for (int d = 0; d < 2; d++) {
            struct cecl_plan plan = lower_one(ops[o], false, d ? CECL_PULL : CECL_PUSH, 5, 1);
            assert_int_equal(cecl_plan_local_copies(&plan), 1);
            assert_int_equal(plan.ncopies, 5);
            cecl_plan_free(&plan);
        }
}

TEST(a_single_rank_needs_no_flags)
{
    struct cecl_plan plan = lower_one(CECL_OP_ALL_GATHER, true, CECL_PUSH, 1, 0);
    assert_int_equal(plan.nsteps, 0);
    cecl_plan_free(&plan);
    plan = lower_one(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 1, 0);
    assert_int_equal(plan.nsteps, 1);
    for (int row = 0; row < CECL_PHASED; row++)
        assert_int_equal(plan.phases[row], 0);
    cecl_plan_free(&plan);
}

TEST(staging_that_is_too_small_is_refused_with_what_is_needed)
{
    struct cecl_part part = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 100);
    struct cecl_plan plan;
    part.call.nranks = 72;
    part.means.staging_bytes = 70;
    assert_int_equal(cecl_lower(&part, &plan), ceclInvalidUsage);
    assert_non_null(strstr(cecl_message(), "CECL_STAGING_BYTES"));
    assert_non_null(strstr(cecl_message(), "71"));
}

/* In a graph the copies of one batch run beside each other, so the own block's copy needs no batch of its own. */
TEST(a_captured_call_copies_its_own_block_in_the_batch_of_the_others)
{
    for (uint32_t captured = 0; captured < 2; captured++) {
        uint32_t batches = 0;
        struct cecl_part part = part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, (uint64_t)64 << 20);
        part.call.nranks = 4;
        part.call.captured = captured;
        part.call.options.sm_policy = CECL_SM_ALLOW;
        choose(&part);
        struct cecl_plan plan = lower_at(part, 4, 1);
        for (uint32_t i = 0; i < plan.nsteps; i++)
            batches += plan.steps[i].kind == CECL_STEP_COPY;
        assert_int_equal(cecl_plan_local_copies(&plan), 1);
        assert_int_equal(batches, captured ? 1 : 2);
        cecl_plan_free(&plan);
    }
}

/* There is a third barrier only if a rank is out of place. */
TEST(peers_return_what_is_out_of_place_alone)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8);
    part.way.move.no_sm = true;
    for (uint64_t in_place = 0; in_place < 8; in_place++) {
        struct cecl_plan *plans = lower_differing(&part, &in_place, 1, 3);
        uint32_t copies = 0;
        for (int r = 0; r < 3; r++) {
            copies += plans[r].ncopies;
            assert_int_equal(plans[r].phases[CECL_LANE_MAIN], in_place == 7 ? 2 : 3);
        }
        assert_int_equal(copies, 6 + 3 - __builtin_popcountll(in_place));
        free_plans(plans, 3);
    }
}

/* Two ranks gather 4 rows of 3 bytes into rows of 8, which leaves a gap of 2. */
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

/* No kernel reads tiles at the peers, whatever direction is requested. */
TEST(the_way_of_tiles_is_through_staging)
{
    static const uint64_t layout[] = {2, 0, 60, 13, 7, 40, 4, 29, 29};
    for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL; direction++) {
        struct cecl_part part = part_of(CECL_OP_REDUCE_SCATTER_TILES, false, CECL_PUSH, 2 * 3 * 5);
        part.call.nranks = 4;
        part.call.rank = 1;
        part.call.view.shape =
            (struct cecl_shape){.width = 5, .rows = 6, .send_pitch = 7, .recv_pitch = 5};
        set_layout(&part, layout, 4);
        part.call.layout_words = sizeof(layout) / sizeof(layout[0]);
        part.call.options.direction = (uint8_t)direction;
        part.means.inputs_readable = true;
        part.means.slot_bytes = 1 << 16;
        choose(&part);
        assert_false(part.way.reduce.read_at_peers);
        assert_false(part.way.small);
    }
}

TEST(a_plan_prints_one_line_a_step)
{
    static const char expected[] =
        "cecl: rank 1: plan, 2 ranks: all-gather, 4096 bytes a block: push, one batch\n"
        "cecl: rank 1:     CECL_SM_ALLOW, out of place: the rank's own block is copied within its "
        "GPU, which needs an SM and is faster\n"
        "cecl: rank 1:      0  signal rank 0: phase 1\n"
        "cecl: rank 1:      1  wait for rank 0: phase 1\n"
        "cecl: rank 1:      2  copy 2 in one batch\n"
        "cecl: rank 1:         send[1]+0 -> recv[0]+4096  4096 bytes\n"
        "cecl: rank 1:         send[1]+0 -> recv[1]+4096  4096 bytes (local: needs an SM)\n"
        "cecl: rank 1:      3  signal rank 0: phase 2\n"
        "cecl: rank 1:      4  wait for rank 0: phase 2\n";
    struct cecl_plan plan = lower_one(CECL_OP_ALL_GATHER, false, CECL_PUSH, 2, 1);
    expect_print(&plan, expected);
    cecl_plan_free(&plan);
}

/* A plan of two calls that no lowering makes: it has each kind of step that the test above lacks. */
TEST(every_kind_of_step_is_printed)
{
    static const char expected[] =
        "cecl: rank 1: plan, 3 ranks: all-gather, 8 bytes a block: any way\n"
        "cecl: rank 1:     and, 3 ranks: all-to-all in place, 6 bytes a block: any way\n"
        "cecl: rank 1:     any reason\n"
        "cecl: rank 1:      0  side: wait for lane 0\n"
        "cecl: rank 1:      1  wait for rank 2: lines, phase 1\n"
        "cecl: rank 1:      2  post 8 bytes to rank 2, each line with its flag: send[1]+4 -> "
        "staging[2]+64\n"
        "cecl: rank 1:      3  copy 1 in one batch\n"
        "cecl: rank 1:         recv of call 1[0]+5 -> recv[1]+7  2 rows, 10 bytes apart at the "
        "destination and 20 at the source, of  3 bytes\n"
        "cecl: rank 1:      4  reduce 2 sources of 12 bytes, on SMs\n"
        "cecl: rank 1:         staging[0]+1\n"
        "cecl: rank 1:         staging[1]+2\n"
        "cecl: rank 1:         -> recv[1]+3\n"
        "cecl: rank 1:         reduce 1 sources of 16 bytes, on SMs\n"
        "cecl: rank 1:         staging[2]+4\n"
        "cecl: rank 1:         -> recv[1]+5\n";
    struct cecl_step steps[] = {
        {.kind = CECL_STEP_AFTER, .lane = CECL_LANE_SIDE},
        {.kind = CECL_STEP_WAIT, .peer = 2, .first = CECL_COUNTER_SLOTS, .phase = 1},
        {.kind = CECL_STEP_POST, .peer = 2, .first = 0, .phase = 1},
        {.kind = CECL_STEP_COPY, .first = 1, .count = 1},
        {.kind = CECL_STEP_REDUCE, .first = 0, .count = 2}};
    struct cecl_copy copies[] = {
        {.src = {4, CECL_AREA_SEND, 1}, .dst = {64, CECL_AREA_STAGING, 2}, .bytes = 8, .rows = 1},
        {.src = {5, CECL_AREA_COUNT + CECL_AREA_RECV, 0},
         .dst = {7, CECL_AREA_RECV, 1},
         .bytes = 3,
         .rows = 2,
         .dst_pitch = 10,
         .src_pitch = 20}};
    struct cecl_place sources[] = {
        {1, CECL_AREA_STAGING, 0}, {2, CECL_AREA_STAGING, 1}, {4, CECL_AREA_STAGING, 2}};
    struct cecl_reduce reductions[] = {
        {.dst = {3, CECL_AREA_RECV, 1}, .bytes = 12, .first = 0, .nsrc = 2},
        {.dst = {5, CECL_AREA_RECV, 1}, .bytes = 16, .first = 2, .nsrc = 1}};
    struct cecl_part parts[] = {part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 8),
                                part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 6)};
    struct cecl_plan plan = {.parts = parts,
                             .nparts = 2,
                             .steps = steps,
                             .nsteps = 5,
                             .copies = copies,
                             .ncopies = 2,
                             .sources = sources,
                             .nsources = 3,
                             .reductions = reductions,
                             .nreductions = 2,
                             .path = "any way",
                             .reason = "any reason"};
    parts[0].call.nranks = parts[1].call.nranks = 3;
    plan.part.call.rank = 1;
    expect_print(&plan, expected);
}

static ssize_t count_write(void *writes, const char *text, size_t bytes)
{
    ++*(int *)writes;
    return (ssize_t)bytes;
}

/* The stream is unbuffered, as stderr is. The text of 64 ranks is larger than the function's own buffer. */
TEST(a_plan_is_written_at_once)
{
    int writes = 0;
    struct cecl_plan plan = lower_one(CECL_OP_ALL_GATHER, false, CECL_PUSH, 64, 1);
    FILE *out = fopencookie(&writes, "w", (cookie_io_functions_t){.write = count_write});
    assert_non_null(out);
    setvbuf(out, NULL, _IONBF, 0);
    cecl_plan_print(&plan, out);
    fclose(out);
    assert_int_equal(writes, 1);
    cecl_plan_free(&plan);
}
