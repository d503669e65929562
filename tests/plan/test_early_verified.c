/* Calls whose ranks announce before the start that they are ready: both halves of the plan, between plans
 * that are not halved, for many numbers of ranks. Also: the library finds the plans that cannot be halved,
 * and the verifier finds broken halves. */
#include "plans.h"

#define BYTES 24
#define CALLS_MOST 8
#define RANKS_MOST 8

/* A sequence of calls. Bit c of `early`: call c is made ready first. */
struct sequence {
    int nranks, ncalls;
    uint64_t early;
    struct cecl_plan *plans, ready[CALLS_MOST][RANKS_MOST];
    struct cecl_verify_launch launches[RANKS_MOST][2 * CALLS_MOST];
    int nlaunches;
};

static bool is_early(const struct sequence *s, int call)
{
    return s->early >> call & 1;
}

/* Call `call` is the `number`-th that is made ready. */
static void make_ready(struct sequence *s, int call, uint32_t number)
{
    uint32_t k[RANKS_MOST];
    for (int r = 0; r < s->nranks; r++)
        k[r] = number;
    for (int r = 0; r < s->nranks; r++) {
        struct cecl_plan *plan = &s->plans[call * s->nranks + r];
        assert_true(cecl_plan_may_be_early(plan));
        assert_int_equal(cecl_plan_ready(&plan->part, CECL_COUNTER_EARLY, k, &s->ready[call][r]),
                         ceclSuccess);
        cecl_plan_make_early(plan, CECL_COUNTER_EARLY, number);
    }
}

static void list_launches(struct sequence *s)
{
    uint32_t number = 0;
    s->nlaunches = 0;
    for (int c = 0; c < s->ncalls; c++) {
        if (is_early(s, c)) {
            make_ready(s, c, ++number);
            for (int r = 0; r < s->nranks; r++)
                s->launches[r][s->nlaunches] = (struct cecl_verify_launch){
                    .call = -1, .plan = &s->ready[c][r], .ready = c + 1};
            s->nlaunches++;
        }
        for (int r = 0; r < s->nranks; r++)
            s->launches[r][s->nlaunches] = (struct cecl_verify_launch){.call = c};
        s->nlaunches++;
    }
}

static ceclResult_t verify_sequence(const struct sequence *s, uint64_t order)
{
    struct cecl_verify_program program = {
        .nranks = s->nranks, .plans = s->plans, .ncalls = s->ncalls, .order = order};
    for (int r = 0; r < s->nranks; r++) {
        program.launches[r] = s->launches[r];
        program.nlaunches[r] = s->nlaunches;
    }
    return cecl_verify_program(&program);
}

static void open_sequence(struct sequence *s, const struct cecl_part *parts,
                          const uint64_t *in_place, int ncalls, int nranks, uint64_t early)
{
    *s = (struct sequence){.nranks = nranks, .ncalls = ncalls, .early = early};
    s->plans = lower_differing(parts, in_place, ncalls, nranks);
    list_launches(s);
}

static void close_sequence(struct sequence *s)
{
    free_plans(s->plans, s->ncalls * s->nranks);
    for (int c = 0; c < s->ncalls; c++)
        for (int r = 0; r < s->nranks; r++)
            cecl_plan_free(&s->ready[c][r]);
}

static void expect_right(const struct cecl_part *parts, const uint64_t *in_place, int ncalls,
                         int nranks, uint64_t early)
{
    static struct sequence s;
    if (!verifies_this_time())
        return;
    open_sequence(&s, parts, in_place, ncalls, nranks, early);
    for (uint64_t order = 0; order < 3; order++)
        if (verify_sequence(&s, order) != ceclSuccess)
            fail_msg("%d ranks, early %llx: %s", nranks, (unsigned long long)early, cecl_message());
    close_sequence(&s);
}

/* ---- plans that are right */

static struct cecl_part gather(bool in_place, bool no_sm)
{
    struct cecl_part part = part_of(CECL_OP_ALL_GATHER, in_place, CECL_PUSH, BYTES);
    part.way.move.no_sm = no_sm;
    part.way.move.piece_worth = 4;
    return part;
}

static void gathers_are_right_ready_or_not(void **state)
{
    for (int n = 2; n <= 6; n++)
        for (int form = 0; form < 8; form++) {
            struct cecl_part part = gather(form & 1, form & 2);
            part.way.move.beside = (form & 4) != 0;
            const struct cecl_part parts[4] = {part, part, part, part};
            for (uint64_t early = 0; early < 16; early++)
                expect_right(parts, NULL, 4, n, early);
        }
}

static void ranks_may_differ_in_being_in_place(void **state)
{
    for (int n = 2; n <= 5; n++) {
        const struct cecl_part part = gather(false, true);
        const struct cecl_part parts[3] = {part, part, part};
        for (uint64_t mask = 0; mask < 1u << n; mask++) {
            const uint64_t in_place[3] = {mask, ~mask, mask};
            expect_right(parts, in_place, 3, n, 7);
            expect_right(parts, in_place, 3, n, 2);
        }
    }
}

/* Before and after calls that use staging, read at peers, or reduce. */
static void they_are_right_between_other_calls(void **state)
{
    for (int n = 2; n <= 5; n++) {
        struct cecl_part others[] = {part_of(CECL_OP_ALL_TO_ALL, false, CECL_PUSH, BYTES),
                                     part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, BYTES),
                                     part_of(CECL_OP_ALL_GATHER, true, CECL_PULL, BYTES),
                                     reduction_of(CECL_OP_ALL_REDUCE, (uint64_t)n, 12, 2)};
        others[0].way.move.no_sm = true;
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            const struct cecl_part part = gather(true, true);
            const struct cecl_part parts[5] = {others[i], part, others[i], part, others[i]};
            expect_right(parts, NULL, 5, n, 2 + 8);
        }
    }
}

/* ---- plans that are wrong or refused */

static bool may(struct cecl_part part, int nranks)
{
    struct cecl_plan *plans = lower_all(&part, 1, nranks);
    bool all = true, any = false;
    for (int r = 0; r < nranks; r++) {
        all = all && cecl_plan_may_be_early(&plans[r]);
        any = any || cecl_plan_may_be_early(&plans[r]);
    }
    assert_int_equal(all, any); /* ranks agree */
    free_plans(plans, nranks);
    return all;
}

static void plans_that_need_the_first_barrier_stay_whole(void **state)
{
    for (int n = 2; n <= 5; n++) {
        struct cecl_part staged = part_of(CECL_OP_ALL_TO_ALL, true, CECL_PUSH, BYTES);
        assert_true(may(gather(true, false), n));
        assert_true(may(gather(false, true), n));
        assert_false(may(part_of(CECL_OP_ALL_GATHER, true, CECL_PULL, BYTES), n));
        assert_false(may(part_of(CECL_OP_ALL_GATHER, false, CECL_PULL, BYTES), n));
        assert_false(may(staged, n));
        assert_false(may(reduction_of(CECL_OP_ALL_REDUCE, (uint64_t)n, 12, 2), n));
        assert_false(may(part_of(CECL_OP_BARRIER, false, CECL_PUSH, 0), n));
    }
    assert_false(may(gather(false, false), 1));
}

/* Drops the first step of a kind from rank 0's start half, or from its ready half. */
static void drop(struct cecl_plan *plan, enum cecl_step_kind kind, uint32_t counter)
{
    for (uint32_t i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind && plan->steps[i].counter == counter) {
            memmove(&plan->steps[i], &plan->steps[i + 1],
                    (--plan->nsteps - i) * sizeof(plan->steps[0]));
            return;
        }
    fail_msg("no such step");
}

static void halves_that_lack_a_step_are_found(void **state)
{
    static struct sequence s;
    for (int n = 2; n <= 4; n++)
        for (int which = 0; which < 2; which++) {
            const struct cecl_part part = gather(true, true);
            const struct cecl_part parts[2] = {part, part};
            open_sequence(&s, parts, NULL, 2, n, 3);
            if (which == 0)
                drop(&s.plans[0], CECL_STEP_WAIT, CECL_COUNTER_EARLY);
            else
                drop(&s.ready[0][0], CECL_STEP_SIGNAL, CECL_COUNTER_EARLY);
            assert_int_equal(verify_sequence(&s, 0), ceclInternalError);
            if (!strstr(cecl_message(), which == 0 ? "race" : "deadlock"))
                fail_msg("%s", cecl_message());
            close_sequence(&s);
        }
}

/* The user writes to recvbuff after the call was made ready. */
static void a_buffer_that_is_used_after_it_was_ready_is_found(void **state)
{
    static struct sequence s;
    const struct cecl_part part = gather(true, true);
    open_sequence(&s, &part, NULL, 1, 3, 1);
    for (int r = 0; r < 3; r++)
        s.launches[r][0].ready = 0;
    assert_int_equal(verify_sequence(&s, 0), ceclInternalError);
    assert_non_null(strstr(cecl_message(), "race"));
    close_sequence(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_are_right_ready_or_not),
        cmocka_unit_test(ranks_may_differ_in_being_in_place),
        cmocka_unit_test(they_are_right_between_other_calls),
        cmocka_unit_test(plans_that_need_the_first_barrier_stay_whole),
        cmocka_unit_test(halves_that_lack_a_step_are_found),
        cmocka_unit_test(a_buffer_that_is_used_after_it_was_ready_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
