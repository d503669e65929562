/* Which steps around a reduction its kernel takes over (ce/fuse.c): barriers, signals to all, and copies of exactly the
 * reduction's result. The kernel takes over no other step, and no step twice. */
#include "plans.h"

#include "ce/bound.h"
#include "ce/capture.h"

#define RANKS_MAX 9

/* A reduction of elements of one byte. */
static struct cecl_part reduction(enum cecl_op_index op, int n, uint64_t elements)
{
    struct cecl_part part = reduction_of(op, (uint64_t)n, elements, 1);
    part.call.nranks = n;
    return part;
}

struct taken {
    uint32_t kernels, signals, waits, copies;
    struct cecl_fused last;
};

/* The steps that `f` covers must be as it says, on one lane: a barrier, a reduction, copies of its result, flags. */
static void is_what_it_says(const struct cecl_plan *plan, uint32_t at, const struct cecl_fused *f)
{
    const uint32_t peers = (uint32_t)plan->part.call.nranks - 1, end = at + f->count;
    const bool first = f->does & CECL_MEET_SIGNAL_FIRST, last = f->does & CECL_MEET_SIGNAL_LAST,
               waits = f->does & CECL_MEET_WAIT_LAST;
    assert_true(end <= plan->nsteps);
    assert_true(first ==
                ((f->does & CECL_MEET_WAIT_FIRST) != 0)); /* a wait always comes with signals */
    assert_true(last || !waits);
    assert_int_equal(f->at, first ? 2 * peers : 0);
    assert_int_equal(f->count, f->at + 1 + f->sends + (last ? peers : 0) + (waits ? peers : 0));
    for (uint32_t i = at; i < end; i++) {
        const struct cecl_step *step = &plan->steps[i];
        const uint32_t k = i - at, behind = f->at + 1 + f->sends;
        assert_int_equal(step->lane, plan->steps[at].lane);
        if (k == f->at) {
            assert_int_equal(step->kind, CECL_STEP_REDUCE);
            assert_int_equal(step->count, 1);
        } else if (f->sends && k == f->at + 1) {
            assert_int_equal(step->kind, CECL_STEP_COPY);
        } else {
            const uint32_t in = k < f->at ? k : k - behind;
            assert_int_equal(step->kind, in < peers ? CECL_STEP_SIGNAL : CECL_STEP_WAIT);
            assert_int_equal(step->phase, k < f->at ? f->first : f->last);
            assert_int_equal(step->peer, (plan->part.call.rank + 1 + (int)(in % peers)) %
                                             plan->part.call.nranks);
            if (step->kind == CECL_STEP_WAIT)
                assert_int_equal(step->first, step->lane);
        }
    }
}

static void copies_are_of_the_result(const struct cecl_plan *plan, uint32_t reduce_at)
{
    const struct cecl_reduce *reduce = &plan->reductions[plan->steps[reduce_at].first];
    const struct cecl_step *step = &plan->steps[reduce_at + 1];
    assert_in_range(step->count, 1, CECL_REDUCE_ALSO_MAX);
    for (uint32_t i = 0; i < step->count; i++) {
        const struct cecl_copy *copy = &plan->copies[step->first + i];
        assert_int_equal(copy->src.area, reduce->dst.area);
        assert_int_equal(copy->src.rank, reduce->dst.rank);
        assert_int_equal(copy->src.offset, reduce->dst.offset);
        assert_int_equal(copy->bytes, reduce->bytes);
        assert_int_equal(copy->rows, 1);
        assert_int_not_equal(copy->dst.rank, plan->part.call.rank);
    }
}

/* *written: an earlier kernel has written to peers, and this lane has not signalled since. Then a kernel must not
 * signal, because it would signal for another kernel's writes. */
static void signals_for_its_own_writes(const struct cecl_fused *f, bool *written)
{
    if (f->does & (CECL_MEET_SIGNAL_FIRST | CECL_MEET_SIGNAL_LAST))
        assert_false(*written);
    *written = !(f->does & CECL_MEET_SIGNAL_LAST) && (*written || f->sends);
}

static void pass_step(const struct cecl_step *step, bool *written)
{
    if (step->kind == CECL_STEP_SIGNAL)
        written[step->lane] = false;
    if (step->kind != CECL_STEP_AFTER)
        return;
    written[step->lane] = written[step->lane] || written[step->first];
    written[step->first] = false;
}

/* Walks the plan as bind.c does. Every reduction must be found exactly once, taken over or not. */
static struct taken walk(const struct cecl_plan *plan)
{
    struct taken taken = {0};
    struct cecl_fused f;
    uint32_t reductions = 0;
    bool written[CECL_LANES] = {false};
    for (uint32_t i = 0; i < plan->nsteps;) {
        const struct cecl_step *step = &plan->steps[i];
        if (!cecl_fuse(plan, i, &f)) {
            reductions += step->kind == CECL_STEP_REDUCE ? step->count : 0;
            pass_step(step, written);
            i++;
            continue;
        }
        is_what_it_says(plan, i, &f);
        signals_for_its_own_writes(&f, &written[step->lane]);
        if (f.sends)
            copies_are_of_the_result(plan, i + f.at);
        for (uint32_t k = i; k < i + f.count; k++) {
            taken.signals += plan->steps[k].kind == CECL_STEP_SIGNAL;
            taken.waits += plan->steps[k].kind == CECL_STEP_WAIT;
            taken.copies += plan->steps[k].kind == CECL_STEP_COPY;
        }
        taken.kernels++;
        reductions++;
        taken.last = f;
        i += f.count;
    }
    assert_int_equal(reductions, plan->nreductions);
    return taken;
}

#define BEFORE (CECL_MEET_SIGNAL_FIRST | CECL_MEET_WAIT_FIRST)
#define BEHIND (CECL_MEET_SIGNAL_LAST | CECL_MEET_WAIT_LAST)

/* Checks, on all ranks of a call with one reduction each, what the kernel does, and which steps are left to the stream. */
static void kernel_does(struct cecl_part part, uint32_t does, bool sends, uint32_t barriers_left,
                        uint32_t copies_left)
{
    const int n = part.call.nranks;
    const uint32_t peers = (uint32_t)n - 1;
    struct cecl_plan *plans = lower_all(&part, 1, n);
    for (int r = 0; r < n; r++) {
        const struct cecl_plan *plan = &plans[r];
        const struct taken taken = walk(plan);
        assert_int_equal(plan->nreductions, 1);
        assert_int_equal(taken.kernels, does != 0 || sends);
        assert_int_equal(taken.last.does, does);
        assert_int_equal(taken.last.sends, sends);
        assert_int_equal(count_steps(plan, CECL_STEP_SIGNAL) - taken.signals,
                         barriers_left * peers);
        assert_int_equal(count_steps(plan, CECL_STEP_WAIT) - taken.waits, barriers_left * peers);
        assert_int_equal(count_steps(plan, CECL_STEP_COPY) - taken.copies, copies_left);
    }
    free_plans(plans, n);
}

TEST(a_kernel_that_reads_at_peers_meets_them_before_and_behind)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct cecl_part part = reduction(CECL_OP_REDUCE_SCATTER, n, 100);
        part.way.reduce.read_at_peers = true;
        kernel_does(part, BEFORE | BEHIND, false, 0, 0);
        part.call.in_place = true;
        kernel_does(part, BEFORE | BEHIND, false, 0, 0);
    }
}

TEST(a_kernel_writes_its_result_at_peers_where_it_may)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, n, 100u * (unsigned)n);
        part.way.reduce.read_at_peers = part.way.reduce.sms_send = true;
        kernel_does(part, BEFORE | BEHIND, true, 0, 0);
        part.call.in_place = true;
        kernel_does(part, BEFORE | BEHIND, true, 0, 0);
        part.way.reduce.sms_send = false; /* the copy engines' copies precede the barrier */
        kernel_does(part, BEFORE, false, 1, 1);
    }
}

/* How many ranks of a call have a plan that is a single kernel. */
static int kernels_of(struct cecl_part part)
{
    const int n = part.call.nranks;
    struct cecl_plan *plans = lower_all(&part, 1, n);
    int count = 0;
    for (int r = 0; r < n; r++)
        count += cecl_fuses_all(&plans[r]);
    free_plans(plans, n);
    return count;
}

/* A rank whose plan is one kernel, and a rank with another plan, would meet by different words, and wait for ever. */
TEST(all_ranks_or_none_have_a_plan_of_one_kernel)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint64_t elements = 1; elements < 60; elements++) {
            struct cecl_part all = reduction(CECL_OP_ALL_REDUCE, n, elements),
                             each = reduction(CECL_OP_REDUCE_SCATTER, n, elements),
                             root = reduction(CECL_OP_REDUCE, n, elements);
            all.call.type = each.call.type = root.call.type = ceclFloat32;
            all.way.reduce.read_at_peers = each.way.reduce.read_at_peers =
                root.way.reduce.read_at_peers = true;
            assert_int_equal(kernels_of(all), 0); /* copy engines push the result */
            all.way.reduce.sms_send = true;
            const int of_all = kernels_of(all);
            if (of_all != 0 && of_all != n)
                fail_msg("%d of %d ranks, %d elements", of_all, n, (int)elements);
            if (elements % (uint64_t)n == 0)
                assert_int_equal(of_all, n);
            assert_int_equal(kernels_of(each), n);
            assert_int_equal(kernels_of(root), 0);
            all.call.type = ceclInt32; /* no kernel handles this type */
            assert_int_equal(kernels_of(all), 0);
        }
}

/* This holds only on devices whose kernels meet by themselves (`meets`). */
TEST(a_plan_of_one_kernel_is_captured_as_it_is)
{
    for (int meets = 0; meets < 2; meets++) {
        struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, 3, 300);
        part.way.reduce.read_at_peers = part.way.reduce.sms_send = true;
        part.call.captured = 1;
        part.call.type = ceclFloat32;
        struct cecl_plan *plans = lower_all(&part, 1, 3);
        assert_int_equal(cecl_plan_capture(&plans[0], meets != 0, 1), ceclSuccess);
        assert_int_equal(cecl_fuses_all(&plans[0]), meets);
        free_plans(plans, 3);
    }
}

TEST(a_kernel_writes_the_end_of_a_block)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, n, 100u * (unsigned)n);
        part.way.reduce.read_at_peers = true;
        part.way.reduce.sms_end = 30;
        struct cecl_plan *plans = lower_all(&part, 1, n);
        for (int r = 0; r < n; r++) {
            const struct taken taken = walk(&plans[r]);
            assert_int_equal(taken.kernels, 2);
            assert_int_equal(taken.signals, n - 1); /* the first barrier's */
            assert_int_equal(taken.waits, n - 1);
            assert_int_equal(taken.copies, 1);
            assert_true(taken.last.sends);
            assert_int_equal(taken.last.does, 0);
            assert_int_equal(count_steps(&plans[r], CECL_STEP_COPY), 2);
        }
        free_plans(plans, n);
    }
}

TEST(a_kernel_that_reduces_staging_at_once_meets_peers_before)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        struct cecl_part part = reduction(CECL_OP_REDUCE_SCATTER, n, 100);
        kernel_does(part, BEFORE, false, 1, 1);
        part = reduction(CECL_OP_ALL_REDUCE, n, 100u * (unsigned)n);
        kernel_does(part, BEFORE, false, 2, 2);
        part.way.reduce.sms_send = true;
        kernel_does(part, BEFORE | BEHIND, true, 1, 1);
        part = reduction(CECL_OP_ALL_REDUCE, n, 100); /* every rank reduces */
        part.way.reduce.one_shot = 100;
        kernel_does(part, BEFORE, false, 1, 1);
    }
}

/* With chunks, the kernel's lane first waits for the main lane. That wait is no barrier, so the kernel does not take it
 * over. As long as a later chunk needs the slot, the kernel signals at its end. */
TEST(kernels_of_chunks_signal_that_their_slot_is_free)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (int op = CECL_OP_REDUCE_SCATTER; op <= CECL_OP_ALL_REDUCE; op++) {
            struct cecl_part part = reduction((enum cecl_op_index)op, n,
                                              op == CECL_OP_ALL_REDUCE ? 50u * (unsigned)n : 50);
            part.way.reduce.chunk = 10;
            struct cecl_plan *plans = lower_all(&part, 1, n);
            for (int r = 0; r < n; r++) {
                const struct taken taken = walk(&plans[r]);
                assert_int_equal(plans[r].nreductions, 5);
                assert_int_equal(taken.kernels, 3);
                assert_int_equal(taken.waits, 0);
                assert_int_equal(taken.copies, 0);
                assert_int_equal(taken.signals, 3 * (n - 1));
                assert_int_equal(taken.last.does, CECL_MEET_SIGNAL_LAST);
            }
            free_plans(plans, n);
        }
}

/* A rank without a block has no kernel, so its stream writes the flags. */
TEST(a_rank_that_has_nothing_to_reduce_has_nothing_taken_over)
{
    struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, 4, 3); /* blocks of 1, 1, 1, 0 */
    part.way.reduce.read_at_peers = part.way.reduce.sms_send = true;
    struct cecl_plan *plans = lower_all(&part, 1, 4);
    assert_int_equal(walk(&plans[2]).kernels, 1);
    assert_int_equal(walk(&plans[3]).kernels, 0);
    assert_int_equal(plans[3].nreductions, 0);
    assert_int_equal(count_steps(&plans[3], CECL_STEP_SIGNAL), 2 * 3);
    free_plans(plans, 4);
}

TEST(one_rank_alone_meets_nobody)
{
    const struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, 1, 10);
    struct cecl_plan *plans = lower_all(&part, 1, 1);
    assert_int_equal(plans->nreductions, 1);
    assert_int_equal(walk(plans).kernels, 0);
    free_plans(plans, 1);
}

TEST(calls_without_reductions_have_nothing_taken_over)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (int op = 0; op < 2; op++) {
            const struct cecl_part part =
                part_of(op ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL, false, CECL_PUSH, 1000);
            struct cecl_plan *plans = lower_all(&part, 1, n);
            for (int r = 0; r < n; r++)
                assert_int_equal(walk(&plans[r]).kernels, 0);
            free_plans(plans, n);
        }
}

/* Rank 1's plan of an all-reduce among 4 ranks, whose kernel takes over all steps. *all: the plans of all ranks. */
static struct cecl_plan *fused_all_reduce(struct cecl_plan **all)
{
    struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, 4, 400);
    struct cecl_fused f;
    part.way.reduce.read_at_peers = part.way.reduce.sms_send = true;
    *all = lower_all(&part, 1, 4);
    assert_true(cecl_fuse(&(*all)[1], 0, &f));
    assert_true(f.sends);
    assert_int_equal(f.count, (*all)[1].nsteps);
    return &(*all)[1];
}

static struct cecl_copy *first_copy(struct cecl_plan *plan, uint32_t reduce_at)
{
    return &plan->copies[plan->steps[reduce_at + 1].first];
}

/* If one copy has another place, size, area or shape, the kernel takes over no copy, and no later step. */
TEST(copies_of_anything_else_are_left)
{
    for (int fault = 0; fault < 6; fault++) {
        struct cecl_plan *all, *plan = fused_all_reduce(&all);
        struct cecl_fused f;
        const uint32_t reduce_at = 2 * 3;
        struct cecl_copy *copy = first_copy(plan, reduce_at) + fault % 3;
        switch (fault) {
        case 0: copy->src.offset++; break;
        case 1: copy->src.rank ^= 1; break;
        case 2: copy->src.area = CECL_AREA_STAGING; break;
        case 3: copy->bytes--; break;
        case 4: copy->rows = 2; break;
        default: copy->src.area = cecl_area_of(CECL_AREA_RECV, 1); break; /* the area of part 1 */
        }
        assert_true(cecl_fuse(plan, 0, &f));
        assert_false(f.sends);
        assert_int_equal(f.does, BEFORE);
        assert_int_equal(f.count, reduce_at + 1);
        free_plans(all, 4);
    }
}

TEST(more_copies_than_a_kernel_takes_are_left)
{
    for (int n = CECL_REDUCE_ALSO_MAX + 1; n <= CECL_REDUCE_ALSO_MAX + 2; n++) {
        struct cecl_part part = reduction(CECL_OP_ALL_REDUCE, n, 10u * (unsigned)n);
        struct cecl_fused f;
        part.way.reduce.read_at_peers = part.way.reduce.sms_send = true;
        struct cecl_plan *plans = lower_all(&part, 1, n);
        assert_true(cecl_fuse(&plans[0], 0, &f));
        assert_int_equal(f.sends, n == CECL_REDUCE_ALSO_MAX + 1);
        free_plans(plans, n);
    }
}

/* Flags that form no barrier: one is missing, or has another phase, lane or order. */
TEST(flags_that_are_no_barrier_are_left)
{
    for (int fault = 0; fault < 5; fault++)
        for (uint32_t behind = 0; behind < 2; behind++) {
            struct cecl_plan *all, *plan = fused_all_reduce(&all);
            struct cecl_fused f;
            const uint32_t reduce_at = 2 * 3;
            struct cecl_step *steps = &plan->steps[behind ? reduce_at + 2 : 0];
            switch (fault) {
            case 0: steps[1].phase++; break;
            case 1: steps[1].peer = plan->steps[0].peer; break;
            case 2: steps[0].lane = CECL_LANE_SIDE; break;
            case 3: steps[2].kind = CECL_STEP_WAIT; break;
            default: steps[0].kind = CECL_STEP_AFTER; break;
            }
            const bool taken = cecl_fuse(plan, behind ? 0 : reduce_at, &f);
            assert_true(taken);
            assert_int_equal(f.does, behind ? BEFORE : BEHIND);
            assert_true(f.sends);
            if (!behind)
                assert_false(cecl_fuse(plan, 0, &f));
            free_plans(all, 4);
        }
}

/* Waits that read another row, or wait for another phase than the signals had. */
TEST(waits_for_something_else_are_left)
{
    static const uint32_t rows[] = {0, CECL_LANE_SIDE, CECL_COUNTER_SLOTS};
    for (int fault = 0; fault < 3; fault++) {
        struct cecl_plan *all, *plan = fused_all_reduce(&all);
        struct cecl_fused f;
        struct cecl_step *waits = &plan->steps[2 * 3 + 2 + 3];
        for (int i = 0; i < 3; i++)
            if (fault)
                waits[i].first = rows[fault];
            else
                waits[i].phase--;
        assert_true(cecl_fuse(plan, 0, &f));
        assert_int_equal(f.does, BEFORE | CECL_MEET_SIGNAL_LAST);
        assert_int_equal(f.count, plan->nsteps - 3);
        free_plans(all, 4);
    }
}

TEST(several_reductions_in_a_step_are_left)
{
    struct cecl_plan *all, *plan = fused_all_reduce(&all);
    struct cecl_fused f;
    plan->steps[2 * 3].count = 2;
    assert_false(cecl_fuse(plan, 0, &f));
    assert_false(cecl_fuse(plan, 2 * 3, &f));
    free_plans(all, 4);
}

/* Checks what the kernels of three reductions that share barriers take over. */
static void kernels_of_a_bundle_take_over(struct cecl_way way, enum cecl_op_index op,
                                          const uint32_t does[3])
{
    struct cecl_part parts[3];
    struct cecl_plan plan;
    uint32_t seen = 0;
    for (int i = 0; i < 3; i++) {
        parts[i] = reduction(op, 4, 40);
        way.reduce.share = parts[i].way.reduce.share;
        parts[i].way = way;
        parts[i].call.rank = 1;
    }
    assert_int_equal(cecl_lower_group(parts, 3, &plan), ceclSuccess);
    for (uint32_t i = 0; i < plan.nsteps;) {
        struct cecl_fused f;
        const bool taken = cecl_fuse(&plan, i, &f);
        if (taken || plan.steps[i].kind == CECL_STEP_REDUCE)
            assert_int_equal(f.does, does[seen++]);
        i += taken ? f.count : 1;
    }
    assert_int_equal(seen, 3);
    cecl_plan_free(&plan);
}

/* The last kernel signals for all three, unless the earlier kernels have written to peers. */
TEST(the_first_and_the_last_kernel_of_a_bundle_meet_peers)
{
    const struct cecl_way reads = {.reduce = {.read_at_peers = true}},
                          writes = {.reduce = {.read_at_peers = true, .sms_send = true}};
    kernels_of_a_bundle_take_over(reads, CECL_OP_REDUCE_SCATTER,
                                  (const uint32_t[]){BEFORE, 0, BEHIND});
    kernels_of_a_bundle_take_over(writes, CECL_OP_ALL_REDUCE, (const uint32_t[]){BEFORE, 0, 0});
}
