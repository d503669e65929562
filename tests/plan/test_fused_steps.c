/* Steps that one kernel does (ce/fuse.c): what it is given is a reduction, with whole exchanges of flags
 * around it and copies of all of its result, and nothing else. */
#include "plans.h"

#include "ce/bound.h"

#define RANKS_MAX 18 /* beyond what a kernel sends to */

static struct cecl_call reduction(ceclOp_t op, int nranks, uint64_t bytes)
{
    struct cecl_call call = call_of(op, false, CECL_PUSH, bytes);
    call.nranks = nranks;
    call.element = 4;
    call.total = op == ceclOpReduceScatter ? (uint64_t)nranks * bytes : bytes;
    if (op != ceclOpReduceScatter)
        call.bytes = (bytes / 4 + (uint64_t)nranks - 1) / (uint64_t)nranks * 4;
    return call;
}

/* The steps at `at` tell, or wait for, each peer once: the end of them. */
static uint32_t all_peers(const struct cecl_plan *plan, uint32_t at, int kind, uint32_t phase,
                          uint8_t lane)
{
    bool seen[RANKS_MAX] = {false};
    for (int i = 1; i < plan->call.nranks; i++, at++) {
        const struct cecl_step *step = &plan->steps[at];
        assert_true(at < plan->nsteps);
        assert_int_equal(step->kind, kind);
        assert_int_equal(step->phase, phase);
        assert_int_equal(step->lane, lane);
        if (kind == CECL_STEP_WAIT)
            assert_int_equal(step->first, lane);
        assert_int_not_equal(step->peer, plan->call.rank);
        assert_false(seen[step->peer]);
        seen[step->peer] = true;
    }
    return at;
}

/* What the kernel would do is what the steps say, in their order. */
static void check_fused(const struct cecl_plan *plan, uint32_t at, const struct cecl_fused *fused)
{
    const uint32_t begin = at;
    const uint8_t lane = plan->steps[at].lane;
    if (fused->does & CECL_MEET_SIGNAL_FIRST)
        at = all_peers(plan, at, CECL_STEP_SIGNAL, fused->first, lane);
    if (fused->does & CECL_MEET_WAIT_FIRST)
        at = all_peers(plan, at, CECL_STEP_WAIT, fused->first, lane);
    assert_int_equal(at, begin + fused->at);
    assert_int_equal(plan->steps[at].kind, CECL_STEP_REDUCE);
    assert_int_equal(plan->steps[at].count, 1);
    const struct cecl_reduce *reduce = &plan->reductions[plan->steps[at++].first];
    if (fused->sends) {
        assert_int_equal(plan->steps[at].kind, CECL_STEP_COPY);
        assert_in_range(plan->steps[at].count, 1, CECL_REDUCE_ALSO_MAX);
        for (uint32_t i = 0; i < plan->steps[at].count; i++) {
            const struct cecl_copy *copy = &plan->copies[plan->steps[at].first + i];
            assert_int_equal(copy->src.offset, reduce->dst.offset);
            assert_int_equal(copy->bytes, reduce->bytes);
            assert_int_not_equal(copy->dst.rank, plan->call.rank);
        }
        at++;
    }
    if (fused->does & CECL_MEET_SIGNAL_LAST)
        at = all_peers(plan, at, CECL_STEP_SIGNAL, fused->last, lane);
    if (fused->does & CECL_MEET_WAIT_LAST)
        at = all_peers(plan, at, CECL_STEP_WAIT, fused->last, lane);
    assert_int_equal(at, begin + fused->count);
}

/* Pieces that the plan comes to where kernels take what they can. */
static uint32_t walk(const struct cecl_plan *plan)
{
    struct cecl_fused fused;
    uint32_t pieces = 0;
    for (uint32_t at = 0; at < plan->nsteps; pieces++)
        if (cecl_fuse(plan, at, &fused)) {
            check_fused(plan, at, &fused);
            at += fused.count;
        } else {
            at++;
        }
    return pieces;
}

static uint32_t walk_call(struct cecl_call call, int rank)
{
    struct cecl_plan plan;
    call.rank = rank;
    assert_int_equal(cecl_lower(&call, &plan), ceclSuccess);
    const uint32_t pieces = walk(&plan);
    cecl_plan_free(&plan);
    return pieces;
}

static void fused_steps_are_a_reduction_and_what_is_around_it(void **state)
{
    (void)state;
    static const ceclOp_t ops[] = {ceclOpReduceScatter, ceclOpAllReduce, ceclOpReduce};
    for (int n = 2; n <= RANKS_MAX; n++)
        for (unsigned way = 0; way < 24; way++) {
            struct cecl_call call = reduction(ops[way % 3], n, 4096);
            call.peers_read = call.op != ceclOpReduce && way / 3 % 2;
            call.sms_send = call.peers_read && call.op == ceclOpAllReduce;
            call.one_shot = way / 6 % 2 ? 4096 : 0;
            call.chunk = way / 12 ? 64 : call.bytes;
            call.staging_bytes = 1 << 20;
            for (int r = 0; r < n; r++)
                walk_call(call, r);
        }
}

static void what_reads_at_peers_is_one_kernel(void **state)
{
    (void)state;
    struct cecl_call call = reduction(ceclOpReduceScatter, 4, 4096);
    call.peers_read = true;
    assert_int_equal(walk_call(call, 1), 1);
    call = reduction(ceclOpAllReduce, CECL_REDUCE_ALSO_MAX + 1, 4096);
    call.peers_read = call.sms_send = true;
    assert_int_equal(walk_call(call, 3), 1);
    call = reduction(ceclOpAllReduce, CECL_REDUCE_ALSO_MAX + 2, 4096);
    call.peers_read = call.sms_send = true;
    assert_true(walk_call(call, 3) > 1);
}

static void reductions_of_a_group_are_fused_each(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n++)
        for (int r = 0; r < n; r++) {
            struct cecl_call calls[3];
            struct cecl_plan plan;
            calls[0] = reduction(ceclOpAllReduce, n, 1024); /* ends without an exchange */
            calls[0].one_shot = 1024;
            calls[1] = reduction(ceclOpAllReduce, n, 4096);
            calls[1].peers_read = calls[1].sms_send = true;
            calls[2] = call_of(ceclOpAllGather, true, CECL_PUSH, 64);
            for (int c = 0; c < 3; c++) {
                calls[c].nranks = n;
                calls[c].rank = r;
                calls[c].staging_bytes = 1 << 20;
            }
            assert_int_equal(cecl_lower_group(calls, 3, &plan), ceclSuccess);
            walk(&plan);
            cecl_plan_free(&plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_steps_are_a_reduction_and_what_is_around_it),
        cmocka_unit_test(what_reads_at_peers_is_one_kernel),
        cmocka_unit_test(reductions_of_a_group_are_fused_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
