/* Every lowering, verified over all ranks: each alone four times in a row, and in mixed sequences
 * on the same buffers. */
#include "plans.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 72};
static const uint64_t block_bytes[] = {1, 7, 24};

static void verify_everywhere(enum cecl_op_index op, bool in_place, enum cecl_direction direction)
{
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++)
        for (size_t b = 0; b < sizeof(block_bytes) / sizeof(block_bytes[0]); b++) {
            struct cecl_part parts[4];
            for (int c = 0; c < 4; c++)
                parts[c] = part_of(op, in_place, direction, block_bytes[b]);
            verify_calls(parts, 4, rank_counts[i]);
        }
}

#define LOWERING_TEST(name, op, in_place, direction)                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        verify_everywhere(op, in_place, direction);                                                \
    }
LOWERING_TEST(all_gather_push_in_place_is_right, CECL_OP_ALL_GATHER, true, CECL_PUSH)
LOWERING_TEST(all_gather_push_out_of_place_is_right, CECL_OP_ALL_GATHER, false, CECL_PUSH)
LOWERING_TEST(all_gather_pull_in_place_is_right, CECL_OP_ALL_GATHER, true, CECL_PULL)
LOWERING_TEST(all_gather_pull_out_of_place_is_right, CECL_OP_ALL_GATHER, false, CECL_PULL)

LOWERING_TEST(all_to_all_push_out_of_place_is_right, CECL_OP_ALL_TO_ALL, false, CECL_PUSH)
LOWERING_TEST(all_to_all_pull_out_of_place_is_right, CECL_OP_ALL_TO_ALL, false, CECL_PULL)
LOWERING_TEST(broadcast_push_in_place_is_right, CECL_OP_BROADCAST, true, CECL_PUSH)
LOWERING_TEST(broadcast_push_out_of_place_is_right, CECL_OP_BROADCAST, false, CECL_PUSH)
LOWERING_TEST(broadcast_pull_in_place_is_right, CECL_OP_BROADCAST, true, CECL_PULL)
LOWERING_TEST(broadcast_pull_out_of_place_is_right, CECL_OP_BROADCAST, false, CECL_PULL)
LOWERING_TEST(gather_out_of_place_is_right, CECL_OP_GATHER, false, CECL_PUSH)
LOWERING_TEST(scatter_out_of_place_is_right, CECL_OP_SCATTER, false, CECL_PUSH)
/* A kernel copies the own block while other blocks are pushed or pulled, between calls without such a
 * copy. */
TEST(own_blocks_copied_on_the_side_lane_are_right)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_BROADCAST,
                                             CECL_OP_ALL_TO_ALL};
    for (int n = 2; n <= 16; n++)
        for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
            struct cecl_part parts[4];
            for (int c = 0; c < 4; c++) {
                parts[c] = part_of(ops[i], false, c == 3 ? CECL_PULL : CECL_PUSH, 7);
                parts[c].way.move.beside = c != 1;
            }
            verify_calls(parts, 4, n);
        }
}

LOWERING_TEST(all_to_all_in_place_is_right, CECL_OP_ALL_TO_ALL, true, CECL_PUSH)

TEST(all_to_all_in_place_in_chunks_is_right)
{
    for (int n = 2; n <= 9; n++)
        for (uint64_t staging = (uint64_t)n - 1; staging < 40; staging += 7) {
            struct cecl_part parts[2];
            for (int c = 0; c < 2; c++) {
                parts[c] = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 13);
                parts[c].means.staging_bytes = staging;
            }
            verify_calls(parts, 2, n);
        }
}

TEST(all_to_all_in_place_among_many_ranks_in_chunks_is_right)
{
    static const int many[] = {16, 32, 72};
    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        struct cecl_part parts[2];
        for (int c = 0; c < 2; c++) {
            parts[c] = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, 24);
            parts[c].means.staging_bytes = 10u * (unsigned)(many[i] - 1); /* chunks of 10, 10, 4 */
        }
        verify_calls(parts, 2, many[i]);
    }
}

/* Peers return a rank's own block: one peer, several peers, or in rounds. */
static void without_sms(enum cecl_op_index op, bool in_place)
{
    static const struct {
        uint64_t bytes, worth, staging;
    } cases[] = {{1, 64, 4096}, {24, 64, 4096}, {24, 1, 4096}, {24, 5, 4096},
                 {25, 5, 64},   {40, 3, 48},    {61, 1, 40}};
    for (int n = 2; n <= 16; n++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct cecl_part parts[3];
            for (int c = 0; c < 3; c++) {
                parts[c] = part_of(op, in_place, CECL_PUSH, cases[i].bytes);
                parts[c].way.move.no_sm = true;
                parts[c].way.move.piece_worth = cases[i].worth;
                parts[c].means.staging_bytes = cases[i].staging;
            }
            verify_calls(parts, 3, n);
            struct cecl_plan *plans = lower_all(parts, 1, n);
            for (int r = 0; r < n; r++)
                assert_int_equal(cecl_plan_local_copies(&plans[r]), 0);
            free_plans(plans, n);
        }
}

TEST(all_gather_without_sms_is_right)
{
    without_sms(CECL_OP_ALL_GATHER, false);
    without_sms(CECL_OP_ALL_GATHER, true);
}

TEST(broadcast_gather_and_scatter_without_sms_are_right)
{
    without_sms(CECL_OP_BROADCAST, false);
    without_sms(CECL_OP_BROADCAST, true);
    without_sms(CECL_OP_GATHER, false);
    without_sms(CECL_OP_SCATTER, false);
}

TEST(all_to_all_without_sms_is_right)
{
    without_sms(CECL_OP_ALL_TO_ALL, false);
    without_sms(CECL_OP_ALL_TO_ALL, true);
}

/* Each rank is in place or not: all patterns for few ranks, some for many. */
TEST(ranks_may_differ_in_being_in_place)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_BROADCAST};
    uint64_t x = 20261123;
    for (int n = 2; n <= 72; n += n < 9 ? 1 : 21)
        for (int way = 0; way < 8; way++) {
            const int patterns = n < 6 ? 1 << n : 8;
            for (int pattern = 0; pattern < patterns; pattern++) {
                uint64_t in_place[3];
                struct cecl_part parts[3];
                for (int c = 0; c < 3; c++) {
                    in_place[c] = n < 6 && c == 0 ? (uint64_t)pattern : next(&x) | next(&x) << 33;
                    parts[c] = part_of(ops[way % 2], false, way & 4 ? CECL_PULL : CECL_PUSH, 11);
                    parts[c].way.move.no_sm = way & 2;
                    parts[c].way.move.piece_worth = 1 + next(&x) % 5;
                    if (way % 2 && c == 2 && !(way & 4))
                        parts[c].way.move.spread = 1 + next(&x) % 3;
                }
                verify_differing(parts, in_place, 3, n);
            }
        }
}

/* Peers return a block, and pass three barriers, only for ranks that are out of place. */
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

TEST(among_many_ranks_without_sms_is_right)
{
    static const int many[] = {32, 72};
    for (size_t i = 0; i < 2; i++)
        for (int op = 0; op < 4; op++) {
            struct cecl_part parts[2];
            for (int c = 0; c < 2; c++) {
                parts[c] =
                    part_of(op / 2 ? CECL_OP_ALL_TO_ALL : CECL_OP_ALL_GATHER, op % 2, CECL_PUSH, 9);
                parts[c].way.move.no_sm = true;
                parts[c].way.move.piece_worth = 2;
                parts[c].means.staging_bytes = 2u * (unsigned)many[i];
            }
            verify_calls(parts, 2, many[i]);
        }
}

TEST(mixed_sequences_on_the_same_buffers_are_right)
{
    uint64_t x = 20261121;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 150; round++) {
        struct cecl_part parts[5];
        const int n = 2 + round % 6;
        for (int c = 0; c < 5; c++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            parts[c] = part_of(x >> 60 & 1 ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL, x >> 61 & 1,
                               x >> 62 & 1 ? CECL_PUSH : CECL_PULL, 1 + (x >> 50) % 12);
            parts[c].means.staging_bytes = 2 * (uint64_t)n + (x >> 40) % 30;
            parts[c].way.move.no_sm = x >> 59 & 1;
            parts[c].way.move.piece_worth = 1 + (x >> 30) % 9;
        }
        verify_calls(parts, 5, n);
    }
}
