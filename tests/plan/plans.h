/* Shared by the plan tests: calls, random numbers, and the plans of all ranks for a sequence of calls. */
#ifndef CECL_TEST_PLANS_H
#define CECL_TEST_PLANS_H

#include "../share.h"
#include "../with_cmocka.h"

#include "../learn_outside.h"
#include "ce/lower.h"
#include "plan/tuning.h"
#include "plan/way.h"
#include "verify/verify.h"

/* A call that moves blocks of `bytes`. lower_all sets its rank and nranks. */
static inline struct cecl_part part_of(enum cecl_op_index op, bool in_place,
                                       enum cecl_direction direction, uint64_t bytes)
{
    return (struct cecl_part){
        .call = {.op = &cecl_ops[op], .in_place = in_place, .bytes = bytes, .element = 1},
        .way.move = {.direction = direction, .piece_worth = 1 << 16},
        .means.staging_bytes = 1 << 20};
}

/* A reduction among `n` ranks. `elements`: of each block in a reduce-scatter, of all blocks together otherwise. Shares
 * are as equal as possible. */
static inline struct cecl_part reduction_of(enum cecl_op_index op, uint64_t n, uint64_t elements,
                                            uint32_t element)
{
    const bool scatters = cecl_ops[op].to == CECL_TO_EACH;
    struct cecl_part part = part_of(op, false, CECL_PUSH, elements * element);
    part.call.element = (uint8_t)element;
    part.way.reduce.share = (scatters ? elements : (elements + n - 1) / n) * element;
    part.way.reduce.chunk = part.way.reduce.share;
    return part;
}

/* A call of any kind among `n` ranks. `bytes`: of a block, or of all blocks of a reduction together. */
static inline struct cecl_part call_of_size(enum cecl_op_index op, int n, uint64_t bytes)
{
    struct cecl_part part = cecl_ops[op].family == CECL_FAMILY_REDUCTION
                                ? reduction_of(op, (uint64_t)n, bytes, 1)
                                : part_of(op, false, CECL_PUSH, bytes);
    part.call.nranks = n;
    return part;
}

/* Chooses the way of the part, by the built-in table for GPUs. */
static inline void choose(struct cecl_part *part)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, part->call.nranks);
    part->means.tuning = &tuning;
    cecl_choose(&part->call, &part->means, &part->way);
    part->means.tuning = NULL;
}

/* Gives a call a layout, which the caller keeps. */
static inline void set_layout(struct cecl_part *part, const uint64_t *layout, int nranks)
{
    part->call.view.layout = layout;
    part->call.layout_words = cecl_layout_words(part->call.op, nranks);
}

/* The next 31 random bits of the sequence whose state is *x. */
static inline uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* Returns plans[c * nranks + r], to be freed with free_plans. Call c is in place on the ranks of in_place[c] (see
 * learn_outside) or, if `in_place` is NULL, on all ranks or none, as parts[c] says. */
static inline struct cecl_plan *lower_differing(const struct cecl_part *parts,
                                                const uint64_t *in_place, int ncalls, int nranks)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * nranks), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < nranks; r++) {
            const uint64_t alike = parts[c].call.in_place ? UINT64_MAX : 0;
            uint64_t words[CECL_MAX_RANKS / 64];
            struct cecl_part part = parts[c];
            part.call.nranks = nranks;
            part.call.rank = r;
            learn_outside(&part, in_place ? in_place[c] : alike, words);
            if (cecl_lower(&part, &plans[c * nranks + r]) != ceclSuccess)
                fail_msg("%s", cecl_message());
        }
    return plans;
}
static inline struct cecl_plan *lower_all(const struct cecl_part *parts, int ncalls, int nranks)
{
    return lower_differing(parts, NULL, ncalls, nranks);
}

static inline void free_plans(struct cecl_plan *plans, int count)
{
    for (int i = 0; i < count; i++)
        cecl_plan_free(&plans[i]);
    free(plans);
}

/* The plan of one rank of a call that moves blocks. */
static inline struct cecl_plan lower_at(struct cecl_part part, int nranks, int rank)
{
    struct cecl_plan plan;
    part.call.nranks = nranks;
    part.call.rank = rank;
    assert_int_equal(cecl_lower(&part, &plan), ceclSuccess);
    return plan;
}

static inline uint32_t count_steps(const struct cecl_plan *plan, enum cecl_step_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->nsteps; i++)
        count += plan->steps[i].kind == kind;
    return count;
}

/* The index of a lane's step of this kind, after `skip` others. */
static inline uint32_t find_step(const struct cecl_plan *plan, enum cecl_step_kind kind, int lane,
                                 uint32_t skip)
{
    for (uint32_t s = 0; s < plan->nsteps; s++)
        if (plan->steps[s].kind == kind && plan->steps[s].lane == lane && skip-- == 0)
            return s;
    fail_msg("no such step");
    return 0;
}

static inline void expect_print(const struct cecl_plan *plan, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    cecl_plan_print(plan, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static inline void drop_step(struct cecl_plan *plan, uint32_t at)
{
    memmove(&plan->steps[at], &plan->steps[at + 1],
            (plan->nsteps - at - 1) * sizeof(plan->steps[0]));
    plan->nsteps--;
}

/* Whether the verifier refuses the program if one of its plans lacks this step. Puts the step back. */
static inline bool is_missed(const struct cecl_verify_program *program, struct cecl_plan *plan,
                             uint32_t at)
{
    const struct cecl_step step = plan->steps[at];
    drop_step(plan, at);
    const bool missed = cecl_verify_program(program) == ceclInternalError;
    memmove(&plan->steps[at + 1], &plan->steps[at], (plan->nsteps - at) * sizeof(step));
    plan->steps[at] = step;
    plan->nsteps++;
    return missed;
}

/* Whether to verify now. A sanitizer slows the verifier down and looks for other faults, so with it only one call in four
 * is verified, chosen so that no loop of a test always skips the same calls. */
static inline bool verifies_this_time(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static uint32_t times;
    return times++ * UINT32_C(2654435769) >> 30 == 0;
#else
    return true;
#endif
}

/* The verifier must refuse these calls, with a message that has these words. */
static inline void expect_fault(const struct cecl_plan *plans, int ncalls, int nranks,
                                const char *words)
{
    assert_int_equal(cecl_verify(plans, ncalls, nranks), ceclInternalError);
    if (!strstr(cecl_message(), words))
        fail_msg("'%s' expected in '%s'", words, cecl_message());
}

#endif
