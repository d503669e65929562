/* Small calls, and urgent ones that go through host memory: each has one exchange, and no barrier before it. Calls
 * alternate between two halves of the slots, or of that memory; one half is not enough. Also: the shape of these plans,
 * and which calls are urgent. tests/fuzz/fuzz_plan.c draws random ones among other calls. */
#include "plans.h"

#define SLOT 512
#define HALF 4096

static const enum cecl_op_index ops[] = {CECL_OP_ALL_REDUCE, CECL_OP_REDUCE_SCATTER,
                                         CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                         CECL_OP_REDUCE_SCATTER_AS};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* A small call of `bytes` to each peer, through this half of the slots. */
static struct cecl_part small_of(enum cecl_op_index op, uint64_t n, bool in_place, uint64_t bytes,
                                 uint8_t half)
{
    struct cecl_part part = call_of_size(op, (int)n, bytes);
    part.call.in_place = in_place && !cecl_ops[op].widens;
    part.way.small = true;
    part.means = (struct cecl_means){
        .staging_bytes = 8192, .slots_offset = 8192, .slot_bytes = SLOT, .half = half};
    return part;
}

/* The plan must have a signal, a post and a wait for each peer, from the next rank on. Then one step takes the data
 * out of the slots: a batch, or a reduction in rank order. */
static void prints(enum cecl_op_index op, uint8_t half, const char *expected)
{
    const struct cecl_part part = small_of(op, 3, true, 40, half);
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    expect_print(&plans[1], expected);
    free_plans(plans, 3);
}

TEST(a_small_plan_is_one_exchange_of_posts)
{
    prints(CECL_OP_ALL_TO_ALL, 0,
           "cecl: rank 1: plan, 3 ranks: all-to-all in place, 40 bytes a block: small, "
           "one exchange through slots\n"
           "cecl: rank 1:     CECL_SM_ALLOW: one kernel sends, waits and takes what came, "
           "which needs SMs and is faster\n"
           "cecl: rank 1:      0  signal rank 2: phase 1\n"
           "cecl: rank 1:      1  signal rank 0: phase 1\n"
           "cecl: rank 1:      2  post 40 bytes to rank 2, each line with its flag: "
           "recv[1]+80 -> staging[2]+9216\n"
           "cecl: rank 1:      3  post 40 bytes to rank 0, each line with its flag: "
           "recv[1]+0 -> staging[0]+9216\n"
           "cecl: rank 1:      4  wait for rank 2: lines, phase 1\n"
           "cecl: rank 1:      5  wait for rank 0: lines, phase 1\n"
           "cecl: rank 1:      6  copy 2 in one batch\n"
           "cecl: rank 1:         staging[1]+8192 -> recv[1]+0  40 bytes (local: needs an SM)\n"
           "cecl: rank 1:         staging[1]+10240 -> recv[1]+80  40 bytes (local: needs an SM)\n");
    prints(CECL_OP_ALL_REDUCE, 1,
           "cecl: rank 1: plan, 3 ranks: all-reduce in place, 40 bytes a block: small, "
           "one exchange through slots\n"
           "cecl: rank 1:     arithmetic needs SMs: one kernel sends, waits and reduces\n"
           "cecl: rank 1:      0  signal rank 2: phase 1\n"
           "cecl: rank 1:      1  signal rank 0: phase 1\n"
           "cecl: rank 1:      2  post 40 bytes to rank 2, each line with its flag: "
           "recv[1]+0 -> staging[2]+12288\n"
           "cecl: rank 1:      3  post 40 bytes to rank 0, each line with its flag: "
           "recv[1]+0 -> staging[0]+12288\n"
           "cecl: rank 1:      4  wait for rank 2: lines, phase 1\n"
           "cecl: rank 1:      5  wait for rank 0: lines, phase 1\n"
           "cecl: rank 1:      6  reduce 3 sources of 40 bytes, on SMs\n"
           "cecl: rank 1:         staging[1]+11264\n"
           "cecl: rank 1:         recv[1]+0\n"
           "cecl: rank 1:         staging[1]+13312\n"
           "cecl: rank 1:         -> recv[1]+0\n");
}

/* Two calls of any kinds race if they use the same half; in alternating halves, both are right. */
static void half_twice_is_a_race(const struct cecl_part *first, struct cecl_part second, int n,
                                 const char *words)
{
    for (uint8_t half = 0; half < 2; half++) {
        second.means.half = half;
        const struct cecl_part parts[2] = {*first, second};
        struct cecl_plan *plans = lower_all(parts, 2, n);
        assert_int_equal(cecl_verify(plans, 2, n), half ? ceclSuccess : ceclInternalError);
        if (!half)
            assert_non_null(strstr(cecl_message(), words));
        free_plans(plans, 2 * n);
    }
}

TEST(one_half_of_the_slots_twice_in_a_row_is_a_race)
{
    for (int n = 2; n <= 5; n++)
        for (unsigned i = 0; i < 2 * OPS * OPS; i++) {
            const struct cecl_part first = small_of(ops[i / 2 % OPS], (uint64_t)n, i % 2, 9, 0);
            half_twice_is_a_race(&first, small_of(ops[i / 2 / OPS], (uint64_t)n, i % 2 == 0, 9, 0),
                                 n, "race: staging");
        }
}

/* A slot holds contiguous data only, up to the communicator's slot size. */
TEST(what_does_not_fit_a_slot_is_not_small)
{
    const uint64_t layout[2 * 4] = {9};
    struct cecl_part part = small_of(CECL_OP_ALL_GATHER, 4, false, 9, 0);
    part.call.options.sm_policy = CECL_SM_ALLOW;
    for (int fault = 0; fault < 4; fault++) {
        struct cecl_part drawn = part;
        drawn.call.bytes = fault == 1 ? SLOT + 1 : 9;
        drawn.call.view.shape.width = fault == 2 ? 3 : 0;
        if (fault == 3)
            set_layout(&drawn, layout, 4);
        choose(&drawn);
        assert_int_equal(drawn.way.small, fault == 0);
    }
}

static const enum cecl_op_index urgent[] = {CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                            CECL_OP_BROADCAST, CECL_OP_GATHER, CECL_OP_SCATTER};
#define URGENT (sizeof(urgent) / sizeof(urgent[0]))

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

/* Calls with a root are left out: two of them need not race, because the second may use nothing that the first needs. */
TEST(one_half_of_host_memory_twice_in_a_row_is_a_race)
{
    for (int i = 0; i < 2 * 2 * 2; i++) {
        const struct cecl_part first = urgent_of(urgent[i / 2 % 2], i % 2, 9, true, 0);
        half_twice_is_a_race(&first, urgent_of(urgent[i / 4], i % 2 == 0, 9, true, 0), 4,
                             "race: host memory");
    }
}

/* A block for all ranks is sent once. */
TEST(no_copy_goes_between_devices)
{
    for (size_t i = 0; i < 2 * URGENT; i++) {
        const struct cecl_part part = urgent_of(urgent[i / 2], i % 2, 100, true, 1);
        struct cecl_plan *plans = lower_all(&part, 1, 4);
        for (int r = 0; r < 4; r++) {
            uint64_t sent = 0;
            assert_int_equal(cecl_plan_local_copies(&plans[r]), 0);
            for (uint32_t c = 0; c < plans[r].ncopies; c++) {
                const struct cecl_copy *copy = &plans[r].copies[c];
                assert_true((copy->dst.area == CECL_AREA_HOST) !=
                            (copy->src.area == CECL_AREA_HOST));
                /* a rank writes only its own part of host memory and its own recvbuff */
                assert_int_equal(copy->dst.rank, r);
                sent += copy->dst.area == CECL_AREA_HOST ? copy->bytes : 0;
            }
            if (urgent[i / 2] == CECL_OP_ALL_GATHER)
                assert_int_equal(sent, 100);
        }
        free_plans(plans, 4);
    }
}

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
