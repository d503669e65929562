/* Small calls: each has one exchange, and no barrier before it. Calls alternate between two halves of the
 * slots. Two halves are enough for sequences of small and other calls on one buffer; one half is not. Also:
 * the shape of these plans, and which calls are small. */
#include "plans.h"

#define SLOT 512
#define CALLS 6

static const enum cecl_op_index ops[] = {CECL_OP_ALL_REDUCE, CECL_OP_REDUCE_SCATTER,
                                         CECL_OP_ALL_GATHER, CECL_OP_ALL_TO_ALL,
                                         CECL_OP_REDUCE_SCATTER_AS};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* A small call of `bytes` to each peer, through this half of the slots. */
static struct cecl_part small_of(enum cecl_op_index op, uint64_t n, bool in_place, uint64_t bytes,
                                 uint8_t half)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.in_place = in_place && !cecl_ops[op].widens;
    part.way.small = true;
    part.means = (struct cecl_means){
        .staging_bytes = 8192, .slots_offset = 8192, .slot_bytes = SLOT, .half = half};
    return part;
}

/* Draws a small call or another one. */
static struct cecl_part draw(uint64_t *x, uint64_t n, bool small, uint8_t half)
{
    const enum cecl_op_index op = ops[next(x) % OPS];
    const bool in_place = next(x) % 2;
    const uint64_t bytes = 1 + next(x) % (SLOT / 8);
    struct cecl_part part = small_of(op, n, in_place, bytes, half);
    part.way.small = small;
    if (!small) {
        part.way.move.no_sm = next(x) % 2;
        part.way.reduce.read_at_peers = cecl_ops[op].family == CECL_FAMILY_REDUCTION && next(x) % 2;
        part.way.reduce.one_shot = next(x) % 2 ? SLOT : 0;
    }
    return part;
}

/* Draws the calls of a sequence. Small calls alternate between both halves, or always use one half. */
static void draw_all(uint64_t seed, uint64_t n, unsigned others, bool both,
                     struct cecl_part parts[CALLS])
{
    uint8_t half = 0;
    for (int c = 0; c < CALLS; c++) {
        const bool small = others == 0 || next(&seed) % others != 0;
        parts[c] = draw(&seed, n, small, half);
        if (small && both)
            half ^= 1;
    }
}

TEST(small_calls_and_others_follow_each_other)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        const int n = 2 + (int)(seed % 6);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, 2, true, parts);
        verify_calls(parts, CALLS, n);
    }
}

TEST(slots_of_one_half_alone_are_a_race)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        const int n = 2 + (int)(seed % 7);
        struct cecl_part parts[CALLS];
        draw_all(seed, (uint64_t)n, 0, false, parts);
        struct cecl_plan *plans = lower_all(parts, CALLS, n);
        assert_int_equal(cecl_verify(plans, CALLS, n), ceclInternalError);
        assert_non_null(strstr(cecl_message(), "race: staging"));
        free_plans(plans, CALLS * n);
    }
}

/* ---- the shape of a plan */

/* Signals, posts and waits, one of each for each peer, from the right neighbour on; then one step takes the data out of
 * the slots: one batch, or a reduction in rank order. */
static void prints(enum cecl_op_index op, uint8_t half, const char *expected)
{
    const struct cecl_part part = small_of(op, 3, true, 40, half);
    struct cecl_plan *plans = lower_all(&part, 1, 3);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    cecl_plan_print(&plans[1], out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
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

/* Two calls of any kinds suffice for a fault; with alternating halves, both are right. */
TEST(one_half_twice_in_a_row_is_a_race)
{
    for (int n = 2; n <= 5; n++)
        for (unsigned i = 0; i < OPS * OPS; i++)
            for (uint8_t half = 0; half < 2; half++) {
                const struct cecl_part first = small_of(ops[i % OPS], (uint64_t)n, half, 9, 0);
                const struct cecl_part parts[2] = {
                    first, small_of(ops[i / OPS], (uint64_t)n, !half, 9, half)};
                struct cecl_plan *plans = lower_all(parts, 2, n);
                const ceclResult_t result = cecl_verify(plans, 2, n);
                assert_int_equal(result, half ? ceclSuccess : ceclInternalError);
                if (!half)
                    assert_non_null(strstr(cecl_message(), "race: staging"));
                free_plans(plans, 2 * n);
            }
}

/* ---- which calls are small */

static uint64_t small_most(int n)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, n);
    return cecl_tuning_largest_small(&tuning);
}

/* Only the call, the ranks and the caller's options decide whether a call is small. */
static bool goes_small(enum cecl_op_index op, int n, uint64_t bytes, ceclSmPolicy_t policy,
                       ceclDirection_t direction)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, (uint64_t)n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.nranks = n;
    part.call.options.sm_policy = (uint8_t)policy;
    part.call.options.direction = (uint8_t)direction;
    part.means.slot_bytes = small_most(n);
    choose(&part);
    return part.way.small;
}

TEST(tuning_knows_what_is_small)
{
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_REDUCE_SCATTER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_TO_ALL, 16, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    /* the caller was promised zero SMs */
    assert_false(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_REDUCE_ONLY, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_TO_ALL, 4, 4096, CECL_SM_NEVER, CECL_DIRECTION_AUTO));
    /* a caller that names a direction wants copies or reads */
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PUSH));
    assert_false(goes_small(CECL_OP_ALL_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_PULL));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 1, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 17, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 4, 256 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 4, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 3, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_true(goes_small(CECL_OP_ALL_REDUCE, 2, 512 << 10, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_REDUCE, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_int_equal(small_most(2), 1 << 20);
    assert_int_equal(small_most(3), 256 << 10);
    assert_true(goes_small(CECL_OP_ALL_TO_ALL, 2, 1 << 20, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(
        goes_small(CECL_OP_ALL_GATHER, 2, (1 << 20) + 4, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_REDUCE, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_BROADCAST, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_GATHER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_SCATTER, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
    assert_false(goes_small(CECL_OP_ALL_TO_ALLV, 4, 4096, CECL_SM_ALLOW, CECL_DIRECTION_AUTO));
}

/* A slot holds contiguous data only, up to the communicator's slot size. */
TEST(what_does_not_fit_a_slot_is_not_small)
{
    const uint64_t layout[2 * 4] = {9};
    struct cecl_part part = small_of(CECL_OP_ALL_GATHER, 4, false, 9, 0);
    part.call.nranks = 4;
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
