/* Urgent calls go through host memory: one exchange, and no barrier before it. Calls alternate between two
 * halves of that memory. Two halves are enough for sequences of urgent, small and other calls; one half is
 * not. Also: which calls go through host memory, and the shape of their plans. */
#include "plans.h"

#define HALF 4096
#define SLOT 512
#define CALLS 6

static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL, CECL_OP_BROADCAST,
                                         CECL_OP_GATHER, CECL_OP_SCATTER};
#define OPS (sizeof(ops) / sizeof(ops[0]))

static struct cecl_part urgent_of(enum cecl_op_index op, bool in_place, uint64_t bytes,
                                  bool by_host, uint8_t half)
{
    struct cecl_part part = part_of(op, in_place, CECL_PUSH, bytes);
    part.way.by_host = by_host;
    part.means = (struct cecl_means){.staging_bytes = 8192,
                                     .slots_offset = 8192,
                                     .slot_bytes = SLOT,
                                     .host_bytes = HALF,
                                     .half = half};
    return part;
}

enum kind { URGENT, SMALL, OTHER, KINDS };

/* A call of `n` ranks that goes through host memory, through slots, or by copies between devices. */
static struct cecl_part draw(uint64_t *x, uint64_t n, enum kind kind, uint8_t half)
{
    const uint64_t bytes = 1 + next(x) % (SLOT / 8);
    const enum cecl_op_index op = ops[next(x) % (kind == SMALL ? 2 : OPS)];
    struct cecl_part part = urgent_of(op, next(x) % 2, bytes, kind == URGENT, half);
    part.way.small = kind == SMALL;
    part.way.move.no_sm = next(x) % 2;
    if (cecl_ops[op].rooted)
        part.call.root = (int32_t)(next(x) % n);
    return part;
}

/* Urgent and small calls alternate between both halves, or always use one half. */
static void draw_all(uint64_t seed, uint64_t n, unsigned kinds, bool both,
                     struct cecl_part parts[CALLS])
{
    uint8_t half = 0;
    for (int c = 0; c < CALLS; c++) {
        const enum kind kind = (enum kind)(next(&seed) % kinds);
        parts[c] = draw(&seed, n, kind, half);
        if (kind != OTHER && both)
            half ^= 1;
    }
}

TEST(urgent_small_and_other_calls_follow_each_other)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, KINDS, true, parts);
        verify_calls(parts, CALLS, n);
    }
}

TEST(one_half_is_not_enough)
{
    int wrong = 0;
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct cecl_part parts[CALLS];
        draw_all(seed, 3, URGENT + 1, false, parts);
        struct cecl_plan *plans = lower_all(parts, CALLS, 3);
        wrong += cecl_verify(plans, CALLS, 3) != ceclSuccess;
        free_plans(plans, CALLS * 3);
    }
    assert_int_not_equal(wrong, 0);
}

TEST(no_copy_goes_between_devices)
{
    for (size_t i = 0; i < OPS; i++) {
        const struct cecl_part part = urgent_of(ops[i], false, 100, true, 1);
        struct cecl_plan *plans = lower_all(&part, 1, 4);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(cecl_plan_local_copies(&plans[r]), 0);
            for (uint32_t c = 0; c < plans[r].ncopies; c++) {
                const struct cecl_copy *copy = &plans[r].copies[c];
                assert_true((copy->dst.area == CECL_AREA_HOST) !=
                            (copy->src.area == CECL_AREA_HOST));
                /* a rank writes only its own part and its own recvbuff */
                assert_int_equal(copy->dst.rank, r);
            }
        }
        free_plans(plans, 4);
    }
}

TEST(a_block_for_all_ranks_is_sent_once)
{
    const struct cecl_part part = urgent_of(CECL_OP_ALL_GATHER, true, 100, true, 0);
    struct cecl_plan *plans = lower_all(&part, 1, 4);
    uint64_t sent = 0;
    for (uint32_t c = 0; c < plans[0].ncopies; c++)
        sent += plans[0].copies[c].dst.area == CECL_AREA_HOST ? plans[0].copies[c].bytes : 0;
    assert_int_equal(sent, 100);
    free_plans(plans, 4);
}

/* ---- which calls go through host memory */

static bool goes_by_host(struct cecl_part part, int nranks)
{
    part.call.nranks = nranks;
    part.way = (struct cecl_way){0};
    part.means.host_bytes = 1 << 20;
    choose(&part);
    return part.way.by_host;
}

TEST(only_small_calls_that_move_data_go_through_host_memory)
{
    struct cecl_part part = urgent_of(CECL_OP_ALL_GATHER, true, 1 << 20, false, 0);
    assert_true(goes_by_host(part, 4));
    part.call.bytes++;
    assert_false(goes_by_host(part, 4));
    part = urgent_of(CECL_OP_ALL_TO_ALL, false, 1 << 18, false, 0);
    assert_true(goes_by_host(part, 4));
    assert_false(goes_by_host(part, 5)); /* each rank sends a different block to each rank */
    /* the root of a scatter sends a block to each rank; each rank of a gather sends one */
    assert_true(goes_by_host(urgent_of(CECL_OP_GATHER, false, 1 << 20, false, 0), 4));
    assert_true(goes_by_host(urgent_of(CECL_OP_SCATTER, false, 1 << 18, false, 0), 4));
    assert_false(goes_by_host(urgent_of(CECL_OP_SCATTER, false, 1 << 18, false, 0), 5));
    part = urgent_of(CECL_OP_ALL_GATHER, true, 4096, false, 0);
    part.call.options.direction = CECL_DIRECTION_PULL;
    assert_false(goes_by_host(part, 4));
    assert_false(goes_by_host(urgent_of(CECL_OP_ALL_REDUCE, true, 4096, false, 0), 4));
    assert_false(goes_by_host(urgent_of(CECL_OP_BARRIER, false, 0, false, 0), 4));
}
