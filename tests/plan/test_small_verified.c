/* The protocol of small collectives (sm/small.h), as plans: what their kernel does, a line for a whole
 * block. One exchange a call, none before it, and slots that take turns by the call's number: enough
 * for sequences of any calls, where a single set of slots is not. */
#include "plans.h"

#define SLOT 64
#define CALLS 5

static struct cecl_place at(enum cecl_window window, int rank, uint64_t offset)
{
    return (struct cecl_place){
        .window = (uint16_t)window, .rank = (uint16_t)rank, .offset = offset};
}

/* As slot_of in small.cu. */
static struct cecl_place slot(const struct cecl_call *call, int number, int halves, int holder,
                              int sender)
{
    return at(CECL_WINDOW_STAGING, holder,
              (uint64_t)(number % halves * call->nranks + sender) * SLOT);
}

static uint64_t send_offset(const struct cecl_call *call, int peer)
{
    if (call->op == ceclOpAlltoAll)
        return (uint64_t)peer * call->bytes;
    return call->op == ceclOpAllGather && call->in_place ? (uint64_t)call->rank * call->bytes : 0;
}

static void kernel(const struct cecl_call *call, int number, int halves, struct cecl_plan *plan)
{
    const bool reduces = call->op == ceclOpAllReduce;
    const uint64_t bytes = reduces ? call->total : call->bytes;
    const enum cecl_window input = call->in_place ? CECL_WINDOW_RECV : CECL_WINDOW_SEND;
    const int me = call->rank;
    struct cecl_place sources[16];

    cecl_plan_init(plan, call);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = (me + i) % call->nranks;
        cecl_plan_copy(plan, slot(call, number, halves, peer, me),
                       at(input, me, send_offset(call, peer)), bytes);
    }
    cecl_plan_barrier(plan);
    for (int r = 0; r < call->nranks; r++) {
        sources[r] =
            r == me ? at(input, me, send_offset(call, me)) : slot(call, number, halves, me, r);
        if (!reduces && !(r == me && call->in_place))
            cecl_plan_copy(plan, at(CECL_WINDOW_RECV, me, (uint64_t)r * bytes), sources[r], bytes);
    }
    if (reduces)
        cecl_plan_reduce(plan, at(CECL_WINDOW_RECV, me, 0), sources, (uint32_t)call->nranks, bytes);
    assert_int_equal(cecl_plan_finish(plan), ceclSuccess);
}

/* Ranks' plans for CALLS calls, drawn by `seed`. */
static struct cecl_plan *kernels(unsigned seed, int nranks, int halves)
{
    static const ceclOp_t ops[] = {ceclOpAllReduce, ceclOpAllGather, ceclOpAlltoAll};
    struct cecl_plan *plans = calloc((size_t)(CALLS * nranks), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < CALLS; c++) {
        seed = seed * 1103515245u + 12345u;
        const uint64_t bytes = 1 + (seed >> 16) % SLOT;
        struct cecl_call call = call_of(ops[(seed >> 8) % 3], seed >> 24 & 1, CECL_PUSH, bytes);
        call.nranks = nranks;
        if (call.op == ceclOpAllReduce) {
            call.total = bytes;
            call.element = 1;
        }
        for (call.rank = 0; call.rank < nranks; call.rank++)
            kernel(&call, c, halves, &plans[c * nranks + call.rank]);
    }
    return plans;
}

static void two_sets_of_slots_are_enough(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        const int nranks = 2 + (int)(seed % 7);
        struct cecl_plan *plans = kernels(seed, nranks, 2);
        if (cecl_verify(plans, CALLS, nranks) != ceclSuccess)
            fail_msg("seed %u, %d ranks: %s", seed, nranks, cecl_message());
        free_plans(plans, CALLS * nranks);
    }
}

static void one_set_of_slots_is_a_race(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 50; seed++) {
        const int nranks = 2 + (int)(seed % 7);
        struct cecl_plan *plans = kernels(seed, nranks, 1);
        assert_int_equal(cecl_verify(plans, CALLS, nranks), ceclInternalError);
        assert_non_null(strstr(cecl_message(), "race"));
        free_plans(plans, CALLS * nranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sets_of_slots_are_enough),
        cmocka_unit_test(one_set_of_slots_is_a_race),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
