/* Random changes to right plans over nodes, each of which is a fault at any place. The verifier must find
 * every one. (Faults of copies and flags within a node: test_verifier_mutations.c.) */
#include "nodes_drawn.h"

enum harm {
    DROP_TRANSFER,
    DOUBLE_TRANSFER,
    SHORTEN_TRANSFER,
    SHIFT_TRANSFER,
    WRONG_PEER,
    PEER_OF_THE_NODE,
    TURN_TRANSFER,
    SWAP_TRANSFERS,
    SWAP_EXCHANGES,
    DROP_WAIT,
    WAIT_FOR_LESS,
    WAIT_FOR_MORE,
    DROP_FOLLOW,
    COPY_LEAVES_NODE,
    SIGNAL_LEAVES_NODE,
    NOT_PARTIAL,
    HARMS
};

static uint64_t state_of_chance;

static uint32_t chance(uint32_t below)
{
    return (uint32_t)(next(&state_of_chance) % below);
}

/* A random step for which `is_it` is true, or NULL. */
static struct cecl_step *any_step(struct cecl_plan *plan, enum cecl_step_kind kind,
                                  bool (*is_it)(const struct cecl_plan *, const struct cecl_step *))
{
    uint32_t found = 0;
    struct cecl_step *step = NULL;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && (!is_it || is_it(plan, &plan->steps[i])) &&
            chance(++found) == 0)
            step = &plan->steps[i];
    return step;
}

static void drop_step(struct cecl_plan *plan, const struct cecl_step *step)
{
    const uint32_t at = (uint32_t)(step - plan->steps);
    memmove(&plan->steps[at], &plan->steps[at + 1],
            (plan->nsteps - at - 1) * sizeof(plan->steps[0]));
    plan->nsteps--;
}

/* Whether the step waits for data that the batch directly after it needs. */
static bool is_needed(const struct cecl_plan *plan, const struct cecl_step *step)
{
    return step->counter == CECL_COUNTER_NET && step + 1 < plan->steps + plan->nsteps &&
           step[1].kind == CECL_STEP_COPY;
}

static bool has_two(const struct cecl_plan *plan, const struct cecl_step *step)
{
    (void)plan;
    return step->count > 1;
}

static bool awaits_net(const struct cecl_plan *plan, const struct cecl_step *step)
{
    (void)plan;
    return step->counter == CECL_COUNTER_NET;
}

static bool is_partial(const struct cecl_plan *plan, const struct cecl_step *step)
{
    return plan->reductions[step->first].partial;
}

/* Swaps two transfers of equal size in the same direction with the same peer. */
static bool swap_transfers(struct cecl_plan *plan)
{
    for (uint32_t tries = 0; tries < 20 && plan->ntransfers > 1; tries++) {
        struct cecl_transfer *one = &plan->transfers[chance(plan->ntransfers)],
                             *other = &plan->transfers[chance(plan->ntransfers)];
        if (one == other || one->peer != other->peer || one->sends != other->sends ||
            one->bytes != other->bytes ||
            (one->at.offset == other->at.offset && one->at.area == other->at.area))
            continue;
        const struct cecl_place held = one->at;
        one->at = other->at;
        other->at = held;
        return true;
    }
    return false;
}

/* Moves the first exchange to the place of the next one that shares a peer with it. */
static bool swap_exchanges(struct cecl_plan *plan)
{
    struct cecl_step *first = NULL;
    for (struct cecl_step *s = plan->steps; s < plan->steps + plan->nsteps; s++) {
        if (s->kind != CECL_STEP_EXCHANGE)
            continue;
        if (first && plan->transfers[first->first].peer == plan->transfers[s->first].peer &&
            plan->transfers[first->first].sends == plan->transfers[s->first].sends) {
            const struct cecl_step held = *first;
            first->first = s->first;
            first->count = s->count;
            s->first = held.first;
            s->count = held.count;
            return true;
        }
        first = s;
    }
    return false;
}

static bool harm_transfer(enum harm harm, struct cecl_plan *plan, int nranks)
{
    struct cecl_step *step =
        any_step(plan, CECL_STEP_EXCHANGE, harm == DOUBLE_TRANSFER ? has_two : NULL);
    if (!step)
        return false;
    const struct cecl_nodes *nodes = plan->part.means.nodes;
    const uint32_t at = step->first + chance(step->count);
    struct cecl_transfer *t = &plan->transfers[at];
    const int other = (int)chance((uint32_t)nranks);
    switch (harm) {
    case DROP_TRANSFER:
        *t = plan->transfers[step->first + step->count - 1];
        if (--step->count == 0)
            drop_step(plan, step);
        return true;
    case DOUBLE_TRANSFER:
        plan->transfers[step->first + (at - step->first + 1) % step->count] = *t;
        return true;
    case SHORTEN_TRANSFER: t->bytes--; return true;
    case SHIFT_TRANSFER:
        t->at.offset = t->at.offset > 0 && chance(2) ? t->at.offset - 1 : t->at.offset + 1;
        return true;
    case WRONG_PEER:
        if (other == t->peer || nodes->node[other] == nodes->node[plan->part.call.rank])
            return false;
        t->peer = (uint16_t)other;
        return true;
    case PEER_OF_THE_NODE: t->peer = (uint16_t)cecl_part_peer(&plan->part, 1); return true;
    default: t->sends = !t->sends; return true; /* TURN_TRANSFER */
    }
}

static bool harm_wait(enum harm harm, struct cecl_plan *plan)
{
    struct cecl_step *step =
        any_step(plan, CECL_STEP_WAIT, harm == WAIT_FOR_MORE ? awaits_net : is_needed);
    if (!step)
        return false;
    if (harm == DROP_WAIT)
        drop_step(plan, step);
    else
        step->phase = harm == WAIT_FOR_MORE ? plan->nexchanges + 1 : step->phase - 1;
    return true;
}

/* Drops the first step at which the network's lane waits for another lane. */
static bool drop_follow(struct cecl_plan *plan)
{
    for (uint32_t i = 0; i < plan->nsteps && plan->nexchanges > 0; i++)
        if (plan->steps[i].kind == CECL_STEP_AFTER && plan->steps[i].lane == CECL_LANE_NET) {
            drop_step(plan, &plan->steps[i]);
            return true;
        }
    return false;
}

/* Returns a rank of the next node. */
static uint16_t elsewhere(const struct cecl_plan *plan)
{
    const struct cecl_nodes *nodes = plan->part.means.nodes;
    return (uint16_t)cecl_node_rank(nodes, (nodes->node[plan->part.call.rank] + 1) % nodes->count,
                                    0);
}

/* Applies a harm. Returns false if this plan has nothing for it to change. */
static bool do_harm(enum harm harm, struct cecl_plan *plan, int nranks)
{
    struct cecl_step *step;
    switch (harm) {
    case SWAP_TRANSFERS: return swap_transfers(plan);
    case SWAP_EXCHANGES: return swap_exchanges(plan);
    case DROP_WAIT:
    case WAIT_FOR_LESS:
    case WAIT_FOR_MORE: return harm_wait(harm, plan);
    case DROP_FOLLOW: return drop_follow(plan);
    case COPY_LEAVES_NODE:
        step = any_step(plan, CECL_STEP_COPY, NULL);
        if (step)
            plan->copies[step->first].dst.rank = elsewhere(plan);
        return step;
    case SIGNAL_LEAVES_NODE:
        step = any_step(plan, CECL_STEP_SIGNAL, NULL);
        if (step)
            step->peer = elsewhere(plan);
        return step;
    case NOT_PARTIAL:
        step = any_step(plan, CECL_STEP_REDUCE, is_partial);
        if (step)
            plan->reductions[step->first].partial = false;
        return step;
    default: return harm_transfer(harm, plan, nranks);
    }
}

/* Returns a call in which the harm is certainly a fault. A rank of a broadcast may get the right bytes from
 * elsewhere, and a barrier has no bytes. Waits are harmed only if the next step is known to need them. */
static enum cecl_op_index draw_op(enum harm harm)
{
    static const enum cecl_op_index ops[] = {
        CECL_OP_ALL_GATHER, CECL_OP_ALL_GATHERV,         CECL_OP_GATHER,         CECL_OP_ALL_TO_ALL,
        CECL_OP_SCATTER,    CECL_OP_ALL_TO_ALLV,         CECL_OP_REDUCE_SCATTER, CECL_OP_ALL_REDUCE,
        CECL_OP_REDUCE,     CECL_OP_REDUCE_SCATTER_TILES};
    if (harm == NOT_PARTIAL)
        return ops[6 + chance(4)];
    if (harm == DROP_FOLLOW)
        return ops[chance(2)]; /* their first exchange uses the caller's buffers */
    return ops[chance(harm == DROP_WAIT || harm == WAIT_FOR_LESS ? 3 : 10)];
}

static void harm_again_and_again(enum harm harm)
{
    static struct cecl_nodes nodes;
    state_of_chance = 20261125u + (uint64_t)harm;
    print_message("seed %llu\n", (unsigned long long)state_of_chance);
    for (int done = 0, tries = 0; done < 150; tries++) {
        assert_true(tries < 5000);
        const uint64_t before = state_of_chance;
        draw_nodes(&state_of_chance, &nodes, 2 + (int)chance(3), 1 + (int)chance(3), chance(2),
                   chance(3) == 0);
        struct nodes_call calls[2];
        for (int c = 0; c < 2; c++)
            calls[c] = draw_nodes_call(&state_of_chance, draw_op(harm), &nodes, 16);
        struct cecl_plan *plans = lower_over_nodes(calls, 2);
        assert_non_null(plans);
        assert_int_equal(cecl_verify(plans, 2, nodes.nranks), ceclSuccess);
        if (do_harm(harm, &plans[chance((uint32_t)(2 * nodes.nranks))], nodes.nranks)) {
            if (cecl_verify(plans, 2, nodes.nranks) != ceclInternalError)
                fail_msg("state %llu: harm %d to %s was not caught", (unsigned long long)before,
                         (int)harm, calls[0].part.call.op->name);
            done++;
        }
        free_plans(plans, 2 * nodes.nranks);
        free_nodes_call(&calls[0]);
        free_nodes_call(&calls[1]);
    }
}

#define HARM_TEST(name, harm)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        harm_again_and_again(harm);                                                                \
    }
HARM_TEST(a_dropped_transfer_is_always_caught, DROP_TRANSFER)
HARM_TEST(a_doubled_transfer_is_always_caught, DOUBLE_TRANSFER)
HARM_TEST(a_shorter_transfer_is_always_caught, SHORTEN_TRANSFER)
HARM_TEST(a_shifted_transfer_is_always_caught, SHIFT_TRANSFER)
HARM_TEST(a_transfer_with_a_wrong_rank_is_always_caught, WRONG_PEER)
HARM_TEST(a_transfer_within_the_node_is_always_caught, PEER_OF_THE_NODE)
HARM_TEST(a_send_that_receives_is_always_caught, TURN_TRANSFER)
HARM_TEST(two_transfers_in_each_others_place_are_always_caught, SWAP_TRANSFERS)
HARM_TEST(two_exchanges_in_each_others_place_are_always_caught, SWAP_EXCHANGES)
HARM_TEST(a_dropped_wait_for_an_exchange_is_always_caught, DROP_WAIT)
HARM_TEST(a_wait_for_an_earlier_exchange_is_always_caught, WAIT_FOR_LESS)
HARM_TEST(a_wait_for_an_exchange_that_is_none_is_always_caught, WAIT_FOR_MORE)
HARM_TEST(a_network_that_does_not_wait_for_its_rank_is_always_caught, DROP_FOLLOW)
HARM_TEST(a_copy_to_another_node_is_always_caught, COPY_LEAVES_NODE)
HARM_TEST(a_signal_to_another_node_is_always_caught, SIGNAL_LEAVES_NODE)
HARM_TEST(a_partial_result_that_is_divided_is_always_caught, NOT_PARTIAL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dropped_transfer_is_always_caught),
        cmocka_unit_test(a_doubled_transfer_is_always_caught),
        cmocka_unit_test(a_shorter_transfer_is_always_caught),
        cmocka_unit_test(a_shifted_transfer_is_always_caught),
        cmocka_unit_test(a_transfer_with_a_wrong_rank_is_always_caught),
        cmocka_unit_test(a_transfer_within_the_node_is_always_caught),
        cmocka_unit_test(a_send_that_receives_is_always_caught),
        cmocka_unit_test(two_transfers_in_each_others_place_are_always_caught),
        cmocka_unit_test(two_exchanges_in_each_others_place_are_always_caught),
        cmocka_unit_test(a_dropped_wait_for_an_exchange_is_always_caught),
        cmocka_unit_test(a_wait_for_an_earlier_exchange_is_always_caught),
        cmocka_unit_test(a_wait_for_an_exchange_that_is_none_is_always_caught),
        cmocka_unit_test(a_network_that_does_not_wait_for_its_rank_is_always_caught),
        cmocka_unit_test(a_copy_to_another_node_is_always_caught),
        cmocka_unit_test(a_signal_to_another_node_is_always_caught),
        cmocka_unit_test(a_partial_result_that_is_divided_is_always_caught),
    };
    _Static_assert(sizeof(tests) / sizeof(tests[0]) == HARMS, "each harm has its test");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
