/* Calls over several nodes: every collective, alone and in sequences, over layouts of 1 to 8 nodes of 1 to
 * 8 ranks, with equal or different node sizes, and ranks numbered node by node or mixed. */
#include "nodes_drawn.h"

#define CALLS 3

static const enum cecl_op_index ops[] = {CECL_OP_ALL_GATHER,
                                         CECL_OP_ALL_GATHERV,
                                         CECL_OP_BROADCAST,
                                         CECL_OP_ALL_TO_ALL,
                                         CECL_OP_ALL_TO_ALLV,
                                         CECL_OP_GATHER,
                                         CECL_OP_SCATTER,
                                         CECL_OP_REDUCE_SCATTER,
                                         CECL_OP_ALL_REDUCE,
                                         CECL_OP_REDUCE,
                                         CECL_OP_BARRIER,
                                         CECL_OP_ALL_GATHER_STRIDED,
                                         CECL_OP_ALL_TO_ALL_STRIDED,
                                         CECL_OP_REDUCE_SCATTER_TILES};
#define OPS (sizeof(ops) / sizeof(ops[0]))

/* A start of a request does not look at the peers' memory if its plan does not meet them. */
static void expect_no_peer_without_a_meeting(const struct cecl_plan *plan)
{
    for (uint32_t i = 0; i < plan->ncopies && !cecl_plan_meets(plan); i++)
        assert_true(cecl_copy_is_local(&plan->copies[i]));
    assert_true(plan->nreductions == 0 || cecl_plan_meets(plan) ||
                cecl_part_peers(&plan->part) == 1);
}

static void verify_some(uint64_t *x, const struct cecl_nodes *nodes,
                        const enum cecl_op_index *kinds, int ncalls, uint64_t most)
{
    const uint64_t before = *x;
    struct nodes_call calls[CALLS];
    char words[CECL_NODES_WORDS];
    for (int c = 0; c < ncalls; c++)
        calls[c] = draw_nodes_call(x, kinds[c], nodes, most);
    if (verifies_this_time()) {
        struct cecl_plan *plans = lower_over_nodes(calls, ncalls);
        assert_non_null(plans);
        if (cecl_verify(plans, ncalls, nodes->nranks) != ceclSuccess)
            fail_msg("state %llu, %s, first call %s: %s", (unsigned long long)before,
                     cecl_nodes_words(nodes, words), cecl_ops[kinds[0]].name, cecl_message());
        for (int p = 0; p < ncalls * nodes->nranks; p++)
            expect_no_peer_without_a_meeting(&plans[p]);
        free_plans(plans, ncalls * nodes->nranks);
    }
    for (int c = 0; c < ncalls; c++)
        free_nodes_call(&calls[c]);
}

/* Verifies a call of one kind, twice in a row, over each layout. */
static void verify_everywhere(enum cecl_op_index op)
{
    static struct cecl_nodes nodes;
    const enum cecl_op_index kinds[CALLS] = {op, op};
    uint64_t x = 20261125 + (uint64_t)op;
    for (int count = 1; count <= 8; count++)
        for (int most = 1; most <= 8; most++) {
            const bool large = count * most > 24;
            for (int round = 0; round < (large ? 2 : 6); round++) {
                draw_nodes(&x, &nodes, count, most, round % 2 == 0, round % 3 == 1);
                verify_some(&x, &nodes, kinds, large ? 1 : 2, large ? 5 : 24);
            }
        }
}

#define EVERYWHERE(name, op)                                                                       \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        verify_everywhere(op);                                                                     \
    }
EVERYWHERE(all_gather_is_right_over_any_nodes, CECL_OP_ALL_GATHER)
EVERYWHERE(variable_all_gather_is_right_over_any_nodes, CECL_OP_ALL_GATHERV)
EVERYWHERE(broadcast_is_right_over_any_nodes, CECL_OP_BROADCAST)
EVERYWHERE(all_to_all_is_right_over_any_nodes, CECL_OP_ALL_TO_ALL)
EVERYWHERE(variable_all_to_all_is_right_over_any_nodes, CECL_OP_ALL_TO_ALLV)
EVERYWHERE(gather_is_right_over_any_nodes, CECL_OP_GATHER)
EVERYWHERE(scatter_is_right_over_any_nodes, CECL_OP_SCATTER)
EVERYWHERE(reduce_scatter_is_right_over_any_nodes, CECL_OP_REDUCE_SCATTER)
EVERYWHERE(all_reduce_is_right_over_any_nodes, CECL_OP_ALL_REDUCE)
EVERYWHERE(reduce_is_right_over_any_nodes, CECL_OP_REDUCE)
EVERYWHERE(strided_all_gather_is_right_over_any_nodes, CECL_OP_ALL_GATHER_STRIDED)
EVERYWHERE(strided_all_to_all_is_right_over_any_nodes, CECL_OP_ALL_TO_ALL_STRIDED)
EVERYWHERE(reduce_scatter_of_tiles_is_right_over_any_nodes, CECL_OP_REDUCE_SCATTER_TILES)
EVERYWHERE(barrier_is_right_over_any_nodes, CECL_OP_BARRIER)

/* Calls of different kinds on the same buffers, which reuse words, exchanges and staging. */
static void mixed_sequences_over_nodes_are_right(void **state)
{
    static struct cecl_nodes nodes;
    uint64_t x = 20261126;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 250; round++) {
        enum cecl_op_index kinds[CALLS];
        for (int c = 0; c < CALLS; c++)
            kinds[c] = ops[next(&x) % OPS];
        draw_nodes(&x, &nodes, 2 + (int)(next(&x) % 4), 1 + (int)(next(&x) % 4), next(&x) % 2,
                   next(&x) % 3 == 0);
        verify_some(&x, &nodes, kinds, CALLS, 12);
    }
}

/* Groups: their calls follow each other in one plan. */
static void groups_over_nodes_are_right(void **state)
{
    static struct cecl_nodes nodes;
    uint64_t x = 20261127;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int round = 0; round < 150; round++) {
        struct nodes_call calls[CALLS];
        const uint64_t before = x;
        draw_nodes(&x, &nodes, 2 + (int)(next(&x) % 3), 1 + (int)(next(&x) % 3), next(&x) % 2,
                   next(&x) % 3 == 0);
        const int n = nodes.nranks;
        struct cecl_plan *plans = calloc((size_t)n, sizeof(*plans));
        for (int c = 0; c < CALLS; c++) {
            calls[c] = draw_nodes_call(&x, ops[next(&x) % OPS], &nodes, 9);
            calls[c].part.means.staging_bytes = 8192;
        }
        for (int r = 0; r < n; r++) {
            struct cecl_part parts[CALLS];
            uint64_t words[CALLS][CECL_MAX_RANKS / 64], *sends[CALLS];
            for (int c = 0; c < CALLS; c++)
                parts[c] = nodes_part(&calls[c], r, words[c], &sends[c]);
            assert_int_equal(cecl_lower_group(parts, CALLS, &plans[r]), ceclSuccess);
            for (int c = 0; c < CALLS; c++)
                free(sends[c]);
        }
        if (cecl_verify(plans, 1, n) != ceclSuccess)
            fail_msg("state %llu: %s", (unsigned long long)before, cecl_message());
        free_plans(plans, n);
        for (int c = 0; c < CALLS; c++)
            free_nodes_call(&calls[c]);
    }
}

/* ---- refused layouts and calls */

static void expect_words(ceclResult_t result, ceclResult_t expected, const char *words)
{
    assert_int_equal(result, expected);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' expected in '%s'", words, cecl_message());
}

static void a_layout_with_an_empty_node_is_refused_with_the_layout(void **state)
{
    static struct cecl_nodes nodes;
    const uint16_t gap[] = {0, 0, 2, 2, 2}, far[] = {0, 5};
    expect_words(cecl_nodes_make(&nodes, gap, 5), ceclInvalidArgument,
                 "node 1 has no rank: 3 nodes of 2 + 0 + 3 ranks");
    expect_words(cecl_nodes_make(&nodes, far, 2), ceclInvalidArgument, "rank 1 is on node 5");
    expect_words(cecl_nodes_make(&nodes, gap, 0), ceclInvalidArgument, "0 ranks over nodes");
}

/* The rail partner of a rank in a smaller node is that node's rank with the same index, modulo the node's
 * size. */
static void a_smaller_node_carries_for_ranks_without_a_partner(void **state)
{
    static struct cecl_nodes nodes;
    const uint16_t mixed[] = {1, 0, 0, 1, 0}; /* node 0: ranks 1, 2, 4; node 1: ranks 0, 3 */
    assert_int_equal(cecl_nodes_make(&nodes, mixed, 5), ceclSuccess);
    assert_int_equal(cecl_node_carrier(&nodes, 1, nodes.local[4]), 0);
    assert_int_equal(cecl_node_carrier(&nodes, 1, nodes.local[2]), 3);
    assert_int_equal(cecl_node_carrier(&nodes, 0, nodes.local[3]), 2);
}

static void calls_that_a_layout_cannot_take_are_refused_with_the_layout(void **state)
{
    static struct cecl_nodes nodes;
    static const enum cecl_op_index staged[] = {CECL_OP_ALL_TO_ALL,
                                                CECL_OP_GATHER,
                                                CECL_OP_REDUCE,
                                                CECL_OP_ALL_REDUCE,
                                                CECL_OP_BARRIER,
                                                CECL_OP_ALL_GATHER_STRIDED,
                                                CECL_OP_ALL_TO_ALL_STRIDED,
                                                CECL_OP_REDUCE_SCATTER_TILES};
    const uint16_t uneven[] = {0, 0, 0, 1, 1, 1, 1, 1};
    uint64_t x = 7;
    assert_int_equal(cecl_nodes_make(&nodes, uneven, 8), ceclSuccess);
    for (size_t i = 0; i < sizeof(staged) / sizeof(staged[0]); i++) {
        struct nodes_call c = draw_nodes_call(&x, staged[i], &nodes, 20);
        uint64_t words[CECL_MAX_RANKS / 64], *sends;
        struct cecl_plan plan;
        c.part.means.staging_bytes = 3;
        const struct cecl_part part = nodes_part(&c, 0, words, &sends);
        expect_words(cecl_lower(&part, &plan), ceclInvalidUsage, "2 nodes of 3 + 5 ranks");
        free(sends);
        free_nodes_call(&c);
    }
}

/* ---- the shape of plans */

/* Each rank sends one message to each rank of its rail, for any number of ranks in its node. */
static void expect_one_message_each(enum cecl_op_index op)
{
    static struct cecl_nodes nodes;
    uint64_t x = 1;
    draw_nodes(&x, &nodes, 3, 4, true, false);
    struct nodes_call c = {.part = part_of(op, false, CECL_PUSH, 8), .in_place_at = -2};
    c.part.means.nodes = &nodes;
    if (op == CECL_OP_ALL_TO_ALL_STRIDED)
        c.part.call.view.shape = (struct cecl_shape){.width = 4,
                                                     .rows = 2,
                                                     .send_pitch = 48,
                                                     .send_stride = 4,
                                                     .recv_pitch = 4,
                                                     .recv_stride = 8};
    struct cecl_plan *plans = lower_over_nodes(&c, 1);
    assert_non_null(plans);
    for (int r = 0; r < 12; r++) {
        uint64_t sent[12] = {0};
        uint32_t sends = 0;
        for (uint32_t i = 0; i < plans[r].ntransfers; i++)
            if (plans[r].transfers[i].sends) {
                sent[plans[r].transfers[i].peer] += plans[r].transfers[i].bytes;
                sends++;
            }
        for (int p = 0; p < 12; p++)
            assert_int_equal(sent[p], p / 4 != r / 4 && p % 4 == r % 4 ? 4 * 8 : 0);
        assert_int_equal(plans[r].nexchanges, 1);
        if (op == CECL_OP_ALL_TO_ALL_STRIDED) {
            assert_int_equal(sends, 2);
            /* staging is free; one round; two within the node */
            assert_int_equal(plans[r].phases[CECL_LANE_MAIN], 4);
        }
    }
    free_plans(plans, 12);
}

static void an_all_to_all_sends_one_message_for_each_pair_of_nodes_and_rail(void **state)
{
    expect_one_message_each(CECL_OP_ALL_TO_ALL);
    expect_one_message_each(CECL_OP_ALL_TO_ALL_STRIDED);
}

static void a_plan_over_nodes_is_printed_in_words(void **state)
{
    static const char expected[] =
        "cecl: rank 0: plan, 2 ranks: all-gather in place, 8 bytes a block: 2 nodes, 1 exchange\n"
        "cecl: rank 0:     zero SM: every copy crosses between GPUs and flags are stream "
        "operations\n"
        "cecl: rank 0:      0  lane 2: wait for lane 0\n"
        "cecl: rank 0:      1  net: exchange 1: 2 in one group\n"
        "cecl: rank 0:         send recv[0]+0 to rank 1  8 bytes\n"
        "cecl: rank 0:         receive recv[0]+8 from rank 1  8 bytes\n"
        "cecl: rank 0:      2  wait for rank 0: exchange 1\n";
    static struct cecl_nodes nodes;
    uint64_t x = 1;
    draw_nodes(&x, &nodes, 2, 1, true, false);
    struct nodes_call c = {
        .part = part_of(CECL_OP_ALL_GATHER, true, CECL_PUSH, 8), .in_place = 3, .in_place_at = -2};
    c.part.means.nodes = &nodes;
    struct cecl_plan *plans = lower_over_nodes(&c, 1);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(plans);
    assert_non_null(out);
    cecl_plan_print(&plans[0], out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
    free_plans(plans, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gather_is_right_over_any_nodes),
        cmocka_unit_test(variable_all_gather_is_right_over_any_nodes),
        cmocka_unit_test(broadcast_is_right_over_any_nodes),
        cmocka_unit_test(all_to_all_is_right_over_any_nodes),
        cmocka_unit_test(variable_all_to_all_is_right_over_any_nodes),
        cmocka_unit_test(gather_is_right_over_any_nodes),
        cmocka_unit_test(scatter_is_right_over_any_nodes),
        cmocka_unit_test(reduce_scatter_is_right_over_any_nodes),
        cmocka_unit_test(all_reduce_is_right_over_any_nodes),
        cmocka_unit_test(reduce_is_right_over_any_nodes),
        cmocka_unit_test(strided_all_gather_is_right_over_any_nodes),
        cmocka_unit_test(strided_all_to_all_is_right_over_any_nodes),
        cmocka_unit_test(reduce_scatter_of_tiles_is_right_over_any_nodes),
        cmocka_unit_test(barrier_is_right_over_any_nodes),
        cmocka_unit_test(mixed_sequences_over_nodes_are_right),
        cmocka_unit_test(groups_over_nodes_are_right),
        cmocka_unit_test(a_layout_with_an_empty_node_is_refused_with_the_layout),
        cmocka_unit_test(a_smaller_node_carries_for_ranks_without_a_partner),
        cmocka_unit_test(calls_that_a_layout_cannot_take_are_refused_with_the_layout),
        cmocka_unit_test(an_all_to_all_sends_one_message_for_each_pair_of_nodes_and_rail),
        cmocka_unit_test(a_plan_over_nodes_is_printed_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
