/* All-gathers whose blocks differ in size and place, including empty blocks. Broadcasts are among them. */
#include "plans.h"

#define RANKS_MAX 16

/* Blocks one after the other in a random order, with gaps; equal on all ranks. */
static void draw(uint64_t *x, int n, struct cecl_part *part, uint64_t layout[2 * RANKS_MAX])
{
    uint64_t at = next(x) % 3;
    const int first = (int)(next(x) % (uint64_t)n), only = (int)(next(x) % 4) == 0 ? first : -1;
    *part = part_of(CECL_OP_ALL_GATHERV, next(x) % 2, next(x) % 2 ? CECL_PUSH : CECL_PULL, 1);
    for (int i = 0; i < n; i++) {
        const int r = (first + i * (n % 7 == 0 ? 1 : 7)) % n; /* every rank once */
        layout[r] = only >= 0 && r != only ? 0 : next(x) % 3 == 0 ? 0 : 1 + next(x) % 20;
        layout[n + r] = at;
        at += layout[r] + next(x) % 3;
        part->call.bytes = layout[r] > part->call.bytes ? layout[r] : part->call.bytes;
    }
    set_layout(part, layout, n);
    part->way.move.no_sm = next(x) % 2;
    part->way.move.piece_worth = 1 + next(x) % 9;
}

TEST(blocks_that_differ_are_right)
{
    uint64_t x = 77;
    for (int round = 0; round < test_share(400); round++) {
        const int n = 1 + round % RANKS_MAX;
        uint64_t layouts[3][2 * RANKS_MAX];
        struct cecl_part parts[3];
        for (int c = 0; c < 3; c++)
            draw(&x, n, &parts[c], layouts[c]);
        verify_calls(parts, 3, n);
    }
}

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
