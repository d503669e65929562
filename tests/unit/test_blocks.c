/* Compares sub-allocation of the pool's address range with a plain table of units. */
#include "../with_cmocka.h"

#include "alloc/blocks.h"

#define UNIT CECL_BLOCK_ALIGN

static uint64_t take(struct cecl_blocks *blocks, uint64_t bytes)
{
    uint64_t offset = UINT64_MAX;
    ceclResult_t result;
    if (!cecl_blocks_take(blocks, bytes, &offset, &result))
        offset = UINT64_MAX;
    assert_int_equal(result, ceclSuccess);
    return offset;
}

/* The reference: which block each unit belongs to (0: none). A region has REGION units. */
#define REGIONS 4
#define REGION 64
static uint16_t owner[REGIONS * REGION];

static uint64_t lowest_fit(int units)
{
    for (int r = 0; r < REGIONS; r++)
        for (int i = r * REGION; i + units <= (r + 1) * REGION; i++) {
            int n = 0;
            while (n < units && owner[i + n] == 0)
                n++;
            if (n == units)
                return (uint64_t)i * UNIT;
        }
    return UINT64_MAX;
}

TEST(random_sequences_match_a_plain_table)
{
    const unsigned seed = 20260214;
    print_message("seed %u\n", seed);
    srand(seed);
    struct cecl_blocks blocks = {0};
    uint64_t used = 0;
    assert_true(take(&blocks, UNIT) == UINT64_MAX);
    memset(owner, 0, sizeof(owner));
    for (uint64_t r = 0; r < REGIONS; r++)
        assert_int_equal(cecl_blocks_add_region(&blocks, r * REGION * UNIT, REGION * UNIT),
                         ceclSuccess);
    uint16_t id = 0;
    for (int step = 0; step < 200000; step++) {
        int at = rand() % (REGIONS * REGION);
        if (rand() % 2) {
            int units = 1 + rand() % (rand() % 16 == 0 ? 64 : 8);
            uint64_t expected = lowest_fit(units), got = take(&blocks, (uint64_t)units * UNIT);
            assert_true(got == expected);
            id = (uint16_t)(id == UINT16_MAX ? 1 : id + 1);
            for (int i = 0; got != UINT64_MAX && i < units; i++)
                owner[got / UNIT + (uint64_t)i] = id;
            used += got == UINT64_MAX ? 0 : (uint64_t)units * UNIT;
        } else {
            uint16_t mine = owner[at];
            bool starts = mine && (at % REGION == 0 || owner[at - 1] != mine);
            uint64_t start, bytes;
            assert_int_equal(
                cecl_blocks_find(&blocks, (uint64_t)at * UNIT + UNIT - 1, &start, &bytes),
                mine != 0);
            for (int i = 0; mine && (uint64_t)i * UNIT < bytes; i++)
                assert_int_equal(owner[start / UNIT + (uint64_t)i], mine);
            assert_int_equal(cecl_blocks_give(&blocks, (uint64_t)at * UNIT), starts);
            for (int i = at; starts && i < REGIONS * REGION && owner[i] == mine; i++, used -= UNIT)
                owner[i] = 0;
        }
        assert_int_equal(blocks.used_bytes, used);
    }
    cecl_blocks_clear(&blocks);
}
