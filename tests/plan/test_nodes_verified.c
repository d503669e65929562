/* Calls over several nodes: every collective, alone and in sequences, over layouts of 1 to 8 nodes of 1 to 8
 * ranks, even and uneven, with ranks node by node or mixed. */
#include "nodes_drawn.h"

#define CALLS 3

static const enum cecl_op_index ops[] = {
    CECL_OP_ALL_GATHER,  CECL_OP_ALL_GATHERV, CECL_OP_BROADCAST, CECL_OP_ALL_TO_ALL,
    CECL_OP_ALL_TO_ALLV, CECL_OP_GATHER,      CECL_OP_SCATTER,   CECL_OP_REDUCE_SCATTER,
    CECL_OP_ALL_REDUCE,  CECL_OP_REDUCE,      CECL_OP_BARRIER};
#define OPS (sizeof(ops) / sizeof(ops[0]))

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
        free_plans(plans, ncalls * nodes->nranks);
    }
    for (int c = 0; c < ncalls; c++)
        free_nodes_call(&calls[c]);
}

/* A call of one kind, twice in a row, over each layout. */
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
EVERYWHERE(barrier_is_right_over_any_nodes, CECL_OP_BARRIER)

/* Calls of different kinds on the same buffers: they use words, exchanges and staging again. */
static void mixed_sequences_over_nodes_are_right(void **state)
{
    (void)state;
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
        cmocka_unit_test(barrier_is_right_over_any_nodes),
        cmocka_unit_test(mixed_sequences_over_nodes_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
