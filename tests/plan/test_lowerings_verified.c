/* The lowerings of calls that only move data, verified over all ranks: each one for every number of ranks and in every
 * way, three times in a row. Random sequences and groups of calls: tests/fuzz/fuzz_plan.c. */
#include "plans.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};

/* A block is moved whole, in pieces, or in rounds or chunks through staging. */
static const struct {
    uint64_t bytes, worth, staging; /* staging: for each rank */
} cases[] = {{1, 64, 64}, {24, 1, 64}, {25, 5, 4}, {61, 1, 3}};

/* BESIDE: own blocks are copied on the side lane, in every second call. */
enum way { PUSHED, PULLED, WITHOUT_SMS, BESIDE, WAYS };

static void verify_lowering(enum cecl_op_index op, int n, bool in_place, enum way way)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cecl_part parts[3];
        for (int c = 0; c < 3; c++) {
            parts[c] = part_of(op, in_place, way == PULLED ? CECL_PULL : CECL_PUSH, cases[i].bytes);
            parts[c].way.move.no_sm = way == WITHOUT_SMS;
            parts[c].way.move.beside = way == BESIDE && c != 1;
            parts[c].way.move.piece_worth = cases[i].worth;
            parts[c].means.staging_bytes = cases[i].staging * (uint64_t)n;
            parts[c].call.root = cecl_ops[op].rooted ? c % n : 0;
        }
        verify_calls(parts, 3, n);
        struct cecl_plan *plans = lower_all(parts, 1, n);
        for (int r = 0; r < n && n > 1 && way == WITHOUT_SMS; r++)
            assert_int_equal(cecl_plan_local_copies(&plans[r]), 0);
        free_plans(plans, n);
    }
}

TEST(every_lowering_is_right_for_every_number_of_ranks)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_BROADCAST, CECL_OP_GATHER, CECL_OP_SCATTER};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        for (size_t j = 0; j < sizeof(rank_counts) / sizeof(rank_counts[0]); j++)
            for (enum way way = PUSHED; way < WAYS; way++) {
                const bool at_root = cecl_ops[ops[i]].family == CECL_FAMILY_AT_ROOT;
                if (at_root && (way == PULLED || way == BESIDE))
                    continue;
                verify_lowering(ops[i], rank_counts[j], false, way);
                if (!at_root && way != BESIDE) /* in place a rank has no own block to copy */
                    verify_lowering(ops[i], rank_counts[j], true, way);
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
