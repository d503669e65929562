/* Reduce-scatters of tiles, verified over all ranks: tiles with gaps, next to each other, above each other
 * and in any order, at different places on each rank; in chunks that begin and end within a row and within
 * a tile; in sequences and groups, and with late ranks. */
#include "plans.h"

#define RANKS_MAX 9
#define CALLS 3

/* A call of all ranks. */
struct tiled {
    struct cecl_part part;
    uint64_t layout[RANKS_MAX][DRAWN_TILE_WORDS(RANKS_MAX)];
};

static void draw(uint64_t *x, int n, struct tiled *t)
{
    const uint32_t element = 1u << next(x) % 3;
    struct cecl_part *part = &t->part;
    *part = reduction_of(CECL_OP_REDUCE_SCATTER, (uint64_t)n, 1, element);
    draw_tiles(x, n, part, t->layout[0], DRAWN_TILE_WORDS(RANKS_MAX));
    part->way.reduce.share = part->call.bytes;
    part->way.reduce.chunk = (1 + next(x) % 9) * element;
    part->way.reduce.halved = next(x) % 2 ? 0 : (1 + next(x) % 3) * element;
    part->means.staging_bytes =
        next(x) % 2 ? 4096 : (uint64_t)n * element * CECL_CHUNKS_IN_FLIGHT * (1 + next(x) % 4);
}

static struct cecl_part part_at(const struct tiled *t, int n, int rank)
{
    struct cecl_part part = t->part;
    part.call.nranks = n;
    part.call.rank = rank;
    part.call.view.layout = t->layout[rank];
    return part;
}

static void verify(struct cecl_plan *plans, int ncalls, int n, int round)
{
    if (cecl_verify(plans, ncalls, n) != ceclSuccess)
        fail_msg("round %d, %d ranks: %s", round, n, cecl_message());
    for (int i = 0; i < ncalls * n; i++)
        cecl_plan_free(&plans[i]);
}

TEST(tiles_are_reduced)
{
    uint64_t x = 37;
    for (int round = 0; round < test_share(900); round++) {
        const int n = 1 + round % RANKS_MAX;
        struct cecl_plan plans[CALLS * RANKS_MAX] = {0};
        struct tiled calls[CALLS];
        for (int c = 0; c < CALLS; c++)
            draw(&x, n, &calls[c]);
        if (!verifies_this_time())
            continue;
        for (int p = 0; p < CALLS * n; p++) {
            const struct cecl_part part = part_at(&calls[p / n], n, p % n);
            assert_int_equal(cecl_lower(&part, &plans[p]), ceclSuccess);
        }
        verify(plans, CALLS, n, round);
    }
}

/* In a group with calls that only move data; the group runs twice. */
TEST(tiles_are_reduced_in_groups)
{
    uint64_t x = 38;
    for (int round = 0; round < test_share(200); round++) {
        const int n = 1 + round % 6;
        struct cecl_plan plans[2 * RANKS_MAX] = {0};
        struct tiled calls[CALLS];
        for (int c = 0; c < CALLS; c++) {
            draw(&x, n, &calls[c]);
            calls[c].part.means.staging_bytes = 4096;
        }
        const struct cecl_part gather = part_of(CECL_OP_ALL_GATHER, false, CECL_PUSH, 5);
        for (int p = 0; p < 2 * n; p++) {
            struct cecl_part parts[CALLS + 1];
            for (int c = 0; c < CALLS; c++)
                parts[c] = part_at(&calls[c], n, p % n);
            parts[CALLS] = gather;
            parts[CALLS].call.nranks = n;
            parts[CALLS].call.rank = p % n;
            parts[CALLS].means.staging_bytes = 4096;
            assert_int_equal(cecl_lower_group(parts, CALLS + 1, &plans[p]), ceclSuccess);
        }
        verify(plans, 2, n, round);
    }
}

/* A rank accesses only its own buffers, so late ranks change nothing. */
TEST(late_ranks_change_nothing)
{
    uint64_t x = 39;
    for (int round = 0; round < test_share(100); round++) {
        const int n = 2 + round % 5;
        struct cecl_plan plans[RANKS_MAX] = {0};
        struct tiled call;
        draw(&x, n, &call);
        for (int r = 0; r < n; r++) {
            struct cecl_part part = part_at(&call, n, r);
            part.means.late = true;
            part.earlier = (UINT64_C(1) << r) - 1;
            assert_int_equal(cecl_lower_group(&part, 1, &plans[r]), ceclSuccess);
        }
        verify(plans, 1, n, round);
    }
}

/* Whichever method is requested, no kernel reads at the peers. */
TEST(the_way_is_through_staging)
{
    uint64_t x = 40;
    for (int direction = CECL_DIRECTION_AUTO; direction <= CECL_DIRECTION_PULL; direction++) {
        struct tiled call;
        draw(&x, 4, &call);
        struct cecl_part part = part_at(&call, 4, 1);
        part.call.options.direction = (uint8_t)direction;
        part.means.inputs_readable = true;
        part.means.slot_bytes = 1 << 16;
        choose(&part);
        assert_false(part.way.reduce.read_at_peers);
        assert_false(part.way.small);
    }
}
