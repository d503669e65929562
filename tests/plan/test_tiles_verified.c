/* The way of reduce-scatters of tiles. Random ones: tests/fuzz/fuzz_plan.c. */
#include "plans.h"

/* Whichever method is requested, no kernel reads at the peers. */
TEST(the_way_is_through_staging)
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
