/* The choices of the built-in table at and around each threshold, as literal values. Also: any table that a
 * file can contain gives right plans. */
#include "plans.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

static struct cecl_part moving(enum cecl_op_index op, bool in_place, int n, uint64_t bytes,
                               ceclSmPolicy_t policy)
{
    struct cecl_part part = part_of(op, in_place, CECL_PUSH, bytes);
    part.call.nranks = n;
    part.call.options = (struct cecl_options){(uint8_t)policy, CECL_DIRECTION_AUTO, 0};
    choose(&part);
    return part;
}

/* With 192 MiB of staging, and inputs that SMs can read at the peers. */
static struct cecl_part reducing(enum cecl_op_index op, int n, uint64_t bytes, uint8_t direction)
{
    struct cecl_part part = reduction_of(op, (uint64_t)n, bytes, 1);
    part.call.nranks = n;
    part.means.inputs_readable = true;
    part.means.staging_bytes = 192 * MIB;
    part.call.options = (struct cecl_options){CECL_SM_REDUCE_ONLY, direction, 0};
    choose(&part);
    return part;
}

/* ---- calls that only move data */

TEST(own_blocks_are_copied_locally_where_that_was_faster)
{
    const ceclSmPolicy_t allow = CECL_SM_ALLOW, never = CECL_SM_NEVER;
    assert_true(moving(CECL_OP_ALL_GATHER, false, 4, 4 * MIB, allow).way.move.no_sm);
    assert_false(moving(CECL_OP_ALL_GATHER, false, 4, 4 * MIB + 1, allow).way.move.no_sm);
    assert_true(moving(CECL_OP_ALL_GATHER, false, 4, 4 * MIB + 1, never).way.move.no_sm);
    assert_false(moving(CECL_OP_ALL_TO_ALL, false, 4, 1, allow).way.move.no_sm);
    assert_false(moving(CECL_OP_ALL_TO_ALL, true, 4, 1, allow).way.move.no_sm);
    assert_true(moving(CECL_OP_ALL_TO_ALL, true, 4, 1, CECL_SM_REDUCE_ONLY).way.move.no_sm);
}

TEST(a_variable_all_to_all_may_copy_locally_whatever_its_size)
{
    uint64_t layout[64] = {0};
    struct cecl_part part = part_of(CECL_OP_ALL_TO_ALLV, false, CECL_PUSH, 0);
    part.call.nranks = 4;
    set_layout(&part, layout, 4);
    part.call.options = (struct cecl_options){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, 0};
    choose(&part);
    assert_false(part.way.move.no_sm);
}

TEST(local_copies_go_aside_from_256_kib_on)
{
    assert_false(
        moving(CECL_OP_ALL_TO_ALL, false, 4, 256 * KIB - 1, CECL_SM_ALLOW).way.move.beside);
    assert_true(moving(CECL_OP_ALL_TO_ALL, false, 4, 256 * KIB, CECL_SM_ALLOW).way.move.beside);
    assert_int_equal(moving(CECL_OP_ALL_TO_ALL, false, 4, 1, CECL_SM_NEVER).way.move.piece_worth,
                     256 * KIB);
}

static uint64_t rounds_of_a_broadcast(int n, uint64_t bytes)
{
    uint64_t layout[2 * 8] = {0};
    struct cecl_part part = part_of(CECL_OP_ALL_GATHERV, false, CECL_PUSH, bytes);
    part.call.nranks = n;
    set_layout(&part, layout, n);
    layout[1] = bytes;
    part.call.options = (struct cecl_options){CECL_SM_NEVER, CECL_DIRECTION_AUTO, 0};
    choose(&part);
    return part.way.move.spread;
}

TEST(broadcasts_spread_from_3_ranks_and_1_mib_on)
{
    assert_int_equal(rounds_of_a_broadcast(2, 64 * MIB), 0);
    assert_int_equal(rounds_of_a_broadcast(3, 1 * MIB - 1), 0);
    assert_int_equal(rounds_of_a_broadcast(3, 1 * MIB), 1);
    assert_int_equal(rounds_of_a_broadcast(8, 16 * MIB - 1), 1);
    assert_int_equal(rounds_of_a_broadcast(8, 16 * MIB), 2);
    assert_int_equal(rounds_of_a_broadcast(8, 112 * MIB), 8);
    assert_int_equal(rounds_of_a_broadcast(8, 1024 * MIB), 8);
}

/* All ranks must make the same choice, although some would choose to pull on their own. */
TEST(ranks_that_differ_in_being_in_place_choose_alike)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_BROADCAST};
    for (int op = 0; op < 2; op++)
        for (uint64_t in_place = 0; in_place < 16; in_place++) {
            struct cecl_way first = {0};
            for (int r = 0; r < 4; r++) {
                struct cecl_part part = part_of(ops[op], false, CECL_PUSH, 64 * MIB);
                uint64_t words[CECL_MAX_RANKS / 64];
                part.call.nranks = 4;
                part.call.rank = r;
                part.call.options = (struct cecl_options){CECL_SM_NEVER, CECL_DIRECTION_PULL, 0};
                learn_outside(&part, in_place, words);
                choose(&part);
                first = r == 0 ? part.way : first;
                assert_memory_equal(&first, &part.way, sizeof(first));
                const bool all_in_place = op == 0 ? in_place == 15 : in_place & 1;
                assert_int_equal(part.way.move.direction, all_in_place ? CECL_PULL : CECL_PUSH);
            }
        }
}

/* ---- reductions */

TEST(all_reduces_are_written_by_sms_up_to_32_mib)
{
    const struct cecl_part at = reducing(CECL_OP_ALL_REDUCE, 4, 32 * MIB, 0),
                           above = reducing(CECL_OP_ALL_REDUCE, 4, 32 * MIB + 1, 0);
    assert_true(at.way.reduce.sms_send);
    assert_int_equal(at.way.reduce.sms_end, 0);
    assert_int_equal(at.way.reduce.max_sms, 16);
    assert_false(above.way.reduce.sms_send);
    assert_int_equal(above.way.reduce.sms_end, 512 * KIB);
    assert_int_equal(above.way.reduce.max_sms, 8);
    assert_int_equal(above.way.reduce.one_shot, 256 * KIB);
    assert_int_equal(above.way.reduce.bulk_min, 1 * MIB);
}

TEST(all_reduces_go_by_staging_from_blocks_of_32_mib_on)
{
    const struct cecl_part below = reducing(CECL_OP_ALL_REDUCE, 4, 128 * MIB - 1024, 0),
                           at = reducing(CECL_OP_ALL_REDUCE, 4, 128 * MIB, 0);
    assert_true(below.way.reduce.read_at_peers);
    assert_false(at.way.reduce.read_at_peers);
    assert_int_equal(at.way.reduce.max_sms, 16);
    assert_int_equal(at.way.reduce.chunk, 16 * MIB);
    assert_int_equal(at.way.reduce.halved, 0);
}

TEST(reduce_scatters_go_by_staging_from_192_mib_on)
{
    const struct cecl_part below = reducing(CECL_OP_REDUCE_SCATTER, 4, 192 * MIB - 1, 0),
                           at = reducing(CECL_OP_REDUCE_SCATTER, 4, 192 * MIB, 0);
    assert_true(below.way.reduce.read_at_peers);
    assert_int_equal(below.way.reduce.max_sms, 8);
    assert_false(at.way.reduce.read_at_peers);
    assert_int_equal(at.way.reduce.chunk, 24 * MIB);
    assert_int_equal(at.way.reduce.halved, 8 * MIB);
}

static bool reads_with_staging_of(enum cecl_op_index op, uint64_t bytes, uint64_t staging)
{
    struct cecl_part part = reduction_of(op, 4, bytes, 1);
    part.call.nranks = 4;
    part.means.inputs_readable = true;
    part.means.staging_bytes = staging;
    part.call.options = (struct cecl_options){CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO, 0};
    choose(&part);
    return part.way.reduce.read_at_peers;
}

/* Two chunks of three peers. */
TEST(staging_is_worth_it_where_chunks_are_large)
{
    assert_true(reads_with_staging_of(CECL_OP_REDUCE_SCATTER, 256 * MIB, 144 * MIB - 1));
    assert_false(reads_with_staging_of(CECL_OP_REDUCE_SCATTER, 256 * MIB, 144 * MIB));
    assert_true(reads_with_staging_of(CECL_OP_ALL_REDUCE, 256 * MIB, 96 * MIB - 1));
    assert_false(reads_with_staging_of(CECL_OP_ALL_REDUCE, 256 * MIB, 96 * MIB));
}

TEST(chunks_have_1_to_64_mib)
{
    const uint8_t push = CECL_DIRECTION_PUSH;
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 4, 8 * MIB - 2048, push).way.reduce.chunk,
                     1 * MIB);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 4, 8 * MIB + 1, push).way.reduce.chunk,
                     1 * MIB + 0);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 4, 8 * MIB + 2048, push).way.reduce.chunk,
                     1 * MIB + 256);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 4, 512 * MIB, push).way.reduce.chunk,
                     64 * MIB);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 4, 1024 * MIB, push).way.reduce.chunk,
                     64 * MIB);
    assert_int_equal(reducing(CECL_OP_ALL_REDUCE, 4, 64 * MIB, push).way.reduce.chunk, 8 * MIB);
}

TEST(reductions_are_urgent_from_blocks_of_2_mib_on)
{
    assert_false(reducing(CECL_OP_REDUCE_SCATTER, 4, 2 * MIB - 1, 0).way.reduce.urgent);
    assert_true(reducing(CECL_OP_REDUCE_SCATTER, 4, 2 * MIB, 0).way.reduce.urgent);
}

/* ---- small calls */

static bool is_small(enum cecl_op_index op, int n, uint64_t bytes)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, (uint64_t)n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.nranks = n;
    part.means.slot_bytes = 64 * MIB;
    part.call.options = (struct cecl_options){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, 0};
    choose(&part);
    return part.way.small;
}

TEST(small_calls_end_where_they_were_measured)
{
    static const struct {
        enum cecl_op_index op;
        uint64_t of_two, of_more;
    } cases[] = {{CECL_OP_ALL_REDUCE, 512 * KIB, 256 * KIB},
                 {CECL_OP_REDUCE_SCATTER, 512 * KIB, 256 * KIB},
                 {CECL_OP_ALL_GATHER, 1 * MIB, 256 * KIB},
                 {CECL_OP_ALL_TO_ALL, 1 * MIB, 256 * KIB}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int n = 2; n <= 16; n++) {
            const uint64_t most = n == 2 ? cases[i].of_two : cases[i].of_more;
            assert_true(is_small(cases[i].op, n, most));
            assert_false(is_small(cases[i].op, n, most + 1));
        }
}

static uint32_t sms_of_a_small_call(enum cecl_op_index op, uint16_t max_sms)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, 4, 4096, 1)
                                : part_of(op, false, CECL_PUSH, 4096);
    part.call.nranks = 4;
    part.means.slot_bytes = 256 * KIB;
    part.call.options = (struct cecl_options){CECL_SM_ALLOW, CECL_DIRECTION_AUTO, max_sms};
    choose(&part);
    assert_true(part.way.small);
    return part.way.small_sms;
}

TEST(small_calls_take_32_sms_or_fewer)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                             CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        assert_int_equal(sms_of_a_small_call(ops[i], 0), 32);
        assert_int_equal(sms_of_a_small_call(ops[i], 7), 7);
        assert_int_equal(sms_of_a_small_call(ops[i], 64), 32);
    }
}
