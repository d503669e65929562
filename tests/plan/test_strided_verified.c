/* All-gathers and all-to-alls of strided blocks: side by side or one after the other, with gaps, in place
 * and out of place, through staging that cuts rows, alone and in groups. */
#include "plans.h"

#define RANKS_MAX 16

static void draw(uint64_t *x, int n, struct cecl_part *part)
{
    static const uint64_t staging[] = {40, 64, 200, 4096};
    *part = part_of(next(x) % 2 ? CECL_OP_ALL_GATHER_STRIDED : CECL_OP_ALL_TO_ALL_STRIDED,
                    next(x) % 2, next(x) % 2 ? CECL_PUSH : CECL_PULL, 1);
    draw_strided(x, n, 1 + next(x) % 5, part);
    part->way.move.no_sm = next(x) % 2;
    part->way.move.beside = !part->way.move.no_sm && next(x) % 2;
    if (part->way.move.no_sm)
        part->way.move.direction = CECL_PUSH;
    part->way.move.piece_worth = 1 + next(x) % 20;
    part->means.staging_bytes = staging[next(x) % 4];
}

TEST(strided_blocks_are_right)
{
    uint64_t x = 2077;
    for (int round = 0; round < test_share(1200); round++) {
        const int n = 1 + round % RANKS_MAX;
        struct cecl_part parts[3];
        for (int c = 0; c < 3; c++)
            draw(&x, n, &parts[c]);
        verify_calls(parts, 3, n);
    }
}

TEST(strided_blocks_in_groups_are_right)
{
    uint64_t x = 99;
    for (int round = 0; round < test_share(200); round++) {
        const int n = 1 + round % 8;
        const uint32_t count = 2 + (uint32_t)next(&x) % 4;
        struct cecl_part parts[6], mine[6];
        struct cecl_plan plans[8] = {0};
        for (uint32_t i = 0; i < count; i++) {
            draw(&x, n, &parts[i]);
            parts[i].means.staging_bytes = 512;
        }
        for (int r = 0; r < n; r++) {
            for (uint32_t i = 0; i < count; i++) {
                mine[i] = parts[i];
                mine[i].call.nranks = n;
                mine[i].call.rank = r;
            }
            assert_int_equal(cecl_lower_group(mine, count, &plans[r]), ceclSuccess);
        }
        if (cecl_verify(plans, 1, n) != ceclSuccess)
            fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
        for (int r = 0; r < n; r++)
            cecl_plan_free(&plans[r]);
    }
}

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
