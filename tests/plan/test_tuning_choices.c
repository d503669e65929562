/* What the built-in table chooses around each threshold, as literal values, and what the caller's options decide. */
#include "plans.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

static struct cecl_way chosen(enum cecl_op_index op, bool in_place, uint64_t bytes,
                              ceclSmPolicy_t policy, ceclDirection_t direction)
{
    struct cecl_part part = call_of_size(op, 4, bytes);
    part.call.in_place = in_place;
    part.means.inputs_readable = true;
    part.call.options = (struct cecl_options){(uint8_t)policy, (uint8_t)direction, 0};
    choose(&part);
    return part.way;
}

/* A reduction with this much staging, whose inputs SMs can read at the peers. */
static struct cecl_part reducing_with(uint64_t staging, enum cecl_op_index op, uint64_t bytes,
                                      uint8_t direction)
{
    struct cecl_part part = call_of_size(op, 4, bytes);
    part.means.inputs_readable = true;
    part.means.staging_bytes = staging;
    part.call.options = (struct cecl_options){CECL_SM_REDUCE_ONLY, direction, 0};
    choose(&part);
    return part;
}

static struct cecl_part reducing(enum cecl_op_index op, uint64_t bytes, uint8_t direction)
{
    return reducing_with(192 * MIB, op, bytes, direction);
}

TEST(own_blocks_are_copied_locally_where_that_was_faster)
{
    const ceclSmPolicy_t allow = CECL_SM_ALLOW, never = CECL_SM_NEVER;
    const ceclDirection_t any = CECL_DIRECTION_AUTO;
    assert_true(chosen(CECL_OP_ALL_GATHER, false, 4 * MIB, allow, any).move.no_sm);
    assert_false(chosen(CECL_OP_ALL_GATHER, false, 4 * MIB + 1, allow, any).move.no_sm);
    assert_true(chosen(CECL_OP_ALL_GATHER, false, 4 * MIB + 1, never, any).move.no_sm);
    assert_false(chosen(CECL_OP_ALL_TO_ALL, false, 1, allow, any).move.no_sm);
    assert_false(chosen(CECL_OP_ALL_TO_ALL, true, 1, allow, any).move.no_sm);
    assert_true(chosen(CECL_OP_ALL_TO_ALL, true, 1, CECL_SM_REDUCE_ONLY, any).move.no_sm);
}

TEST(two_policies_let_no_copy_stay_within_a_gpu)
{
    static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL};
    const ceclDirection_t any = CECL_DIRECTION_AUTO;
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes *= 64)
        for (int i = 0; i < 4; i++) {
            assert_true(chosen(ops[i / 2], i % 2, bytes, CECL_SM_NEVER, any).move.no_sm);
            assert_true(chosen(ops[i / 2], i % 2, bytes, CECL_SM_REDUCE_ONLY, any).move.no_sm);
        }
}

TEST(a_forced_direction_wins_over_the_table)
{
    const ceclSmPolicy_t never = CECL_SM_NEVER, allow = CECL_SM_ALLOW;
    const ceclDirection_t any = CECL_DIRECTION_AUTO, push = CECL_DIRECTION_PUSH,
                          pull = CECL_DIRECTION_PULL;
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes *= 64) {
        assert_int_equal(chosen(CECL_OP_ALL_GATHER, true, bytes, never, push).move.direction,
                         CECL_PUSH);
        assert_int_equal(chosen(CECL_OP_ALL_GATHER, true, bytes, never, pull).move.direction,
                         CECL_PULL);
        assert_int_equal(chosen(CECL_OP_ALL_TO_ALL, false, bytes, allow, any).move.direction,
                         CECL_PUSH);
        assert_int_equal(chosen(CECL_OP_ALL_TO_ALL, false, bytes, allow, pull).move.direction,
                         CECL_PULL);
        /* not pulled, because peers must return what was pushed to them */
        assert_int_equal(chosen(CECL_OP_ALL_GATHER, false, bytes, never, pull).move.direction,
                         CECL_PUSH);
    }
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
    const ceclDirection_t any = CECL_DIRECTION_AUTO;
    assert_false(chosen(CECL_OP_ALL_TO_ALL, false, 256 * KIB - 1, CECL_SM_ALLOW, any).move.beside);
    assert_true(chosen(CECL_OP_ALL_TO_ALL, false, 256 * KIB, CECL_SM_ALLOW, any).move.beside);
    assert_int_equal(chosen(CECL_OP_ALL_TO_ALL, false, 1, CECL_SM_NEVER, any).move.piece_worth,
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

/* All ranks must choose alike, although some ranks alone would choose to pull. */
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

TEST(all_reduces_are_written_by_sms_up_to_32_mib)
{
    const struct cecl_part at = reducing(CECL_OP_ALL_REDUCE, 32 * MIB, 0),
                           above = reducing(CECL_OP_ALL_REDUCE, 32 * MIB + 1, 0);
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
    const struct cecl_part below = reducing(CECL_OP_ALL_REDUCE, 128 * MIB - 1024, 0),
                           at = reducing(CECL_OP_ALL_REDUCE, 128 * MIB, 0);
    assert_true(below.way.reduce.read_at_peers);
    assert_false(at.way.reduce.read_at_peers);
    assert_int_equal(at.way.reduce.max_sms, 16);
    assert_int_equal(at.way.reduce.chunk, 16 * MIB);
    assert_int_equal(at.way.reduce.halved, 0);
}

TEST(reduce_scatters_go_by_staging_from_192_mib_on)
{
    const struct cecl_part below = reducing(CECL_OP_REDUCE_SCATTER, 192 * MIB - 1, 0),
                           at = reducing(CECL_OP_REDUCE_SCATTER, 192 * MIB, 0);
    assert_true(below.way.reduce.read_at_peers);
    assert_int_equal(below.way.reduce.max_sms, 8);
    assert_false(at.way.reduce.read_at_peers);
    assert_int_equal(at.way.reduce.chunk, 24 * MIB);
    assert_int_equal(at.way.reduce.halved, 8 * MIB);
}

/* Staging is used if it holds, for each of three peers, two chunks of the smallest size that is worth it. */
TEST(staging_is_worth_it_where_chunks_are_large)
{
    static const struct {
        enum cecl_op_index op;
        uint64_t staging;
    } cases[] = {{CECL_OP_REDUCE_SCATTER, 144 * MIB}, {CECL_OP_ALL_REDUCE, 96 * MIB}};
    for (int i = 0; i < 4; i++) {
        const uint64_t staging = cases[i / 2].staging - (uint64_t)(i % 2);
        const struct cecl_part part = reducing_with(staging, cases[i / 2].op, 256 * MIB, 0);
        assert_int_equal(part.way.reduce.read_at_peers, i % 2);
    }
}

TEST(chunks_have_1_to_64_mib)
{
    const uint8_t push = CECL_DIRECTION_PUSH;
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 8 * MIB - 2048, push).way.reduce.chunk,
                     1 * MIB);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 8 * MIB + 1, push).way.reduce.chunk,
                     1 * MIB + 0);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 8 * MIB + 2048, push).way.reduce.chunk,
                     1 * MIB + 256);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 512 * MIB, push).way.reduce.chunk, 64 * MIB);
    assert_int_equal(reducing(CECL_OP_REDUCE_SCATTER, 1024 * MIB, push).way.reduce.chunk, 64 * MIB);
    assert_int_equal(reducing(CECL_OP_ALL_REDUCE, 64 * MIB, push).way.reduce.chunk, 8 * MIB);
}

TEST(reductions_are_urgent_from_blocks_of_2_mib_on)
{
    assert_false(reducing(CECL_OP_REDUCE_SCATTER, 2 * MIB - 1, 0).way.reduce.urgent);
    assert_true(reducing(CECL_OP_REDUCE_SCATTER, 2 * MIB, 0).way.reduce.urgent);
}

static bool is_small(enum cecl_op_index op, int n, uint64_t bytes, ceclSmPolicy_t policy,
                     ceclDirection_t direction)
{
    struct cecl_part part = call_of_size(op, n, bytes);
    part.means.slot_bytes = 64 * MIB;
    part.call.options = (struct cecl_options){(uint8_t)policy, (uint8_t)direction, 0};
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
            const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, n);
            const uint64_t most = n == 2 ? cases[i].of_two : cases[i].of_more;
            assert_int_equal(cecl_tuning_largest_small(&tuning), n == 2 ? 1 * MIB : 256 * KIB);
            assert_true(is_small(cases[i].op, n, most, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
            assert_false(is_small(cases[i].op, n, most + 1, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
        }
}

/* The caller's options, the number of ranks, the size or the kind of a call can keep the call from being small. */
TEST(other_calls_are_not_small)
{
    const ceclSmPolicy_t allow = CECL_SM_ALLOW;
    const ceclDirection_t any = CECL_DIRECTION_AUTO;
    assert_true(is_small(CECL_OP_ALL_REDUCE, 4, 4096, CECL_SM_REDUCE_ONLY, any));
    /* the caller was promised zero SMs */
    assert_false(is_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_REDUCE_ONLY, any));
    assert_false(is_small(CECL_OP_ALL_TO_ALL, 4, 4096, CECL_SM_NEVER, any));
    /* a caller that names a direction wants copies, or reads at peers, instead of a small call */
    assert_false(is_small(CECL_OP_ALL_REDUCE, 4, 4096, allow, CECL_DIRECTION_PUSH));
    assert_false(is_small(CECL_OP_ALL_GATHER, 4, 4096, allow, CECL_DIRECTION_PULL));
    assert_false(is_small(CECL_OP_ALL_REDUCE, 1, 4096, allow, any));
    assert_false(is_small(CECL_OP_ALL_REDUCE, 17, 4096, allow, any));
    assert_false(is_small(CECL_OP_REDUCE, 4, 4096, allow, any));
    assert_false(is_small(CECL_OP_BROADCAST, 4, 4096, allow, any));
    assert_false(is_small(CECL_OP_GATHER, 4, 4096, allow, any));
    assert_false(is_small(CECL_OP_SCATTER, 4, 4096, allow, any));
    assert_false(is_small(CECL_OP_ALL_TO_ALLV, 4, 4096, allow, any));
}

static uint32_t sms_of_a_small_call(enum cecl_op_index op, uint16_t max_sms)
{
    struct cecl_part part = call_of_size(op, 4, 4096);
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
