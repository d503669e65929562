/* What the plan tests share: calls, chance, and the plans of all ranks for a sequence of calls. */
#ifndef CECL_TEST_PLANS_H
#define CECL_TEST_PLANS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ce/lower.h"
#include "plan/verify.h"

static inline struct cecl_call call_of(ceclOp_t op, bool in_place, enum cecl_direction direction,
                                       uint64_t bytes)
{
    return (struct cecl_call){.op = op,
                              .in_place = in_place,
                              .direction = direction,
                              .bytes = bytes,
                              .piece_worth = 1 << 16,
                              .staging_bytes = 1 << 20};
}

/* Of `n` ranks: `elements` of all blocks together, of a reduce-scatter of each. */
static inline struct cecl_call reduction_of(ceclOp_t op, uint64_t n, uint64_t elements,
                                            uint32_t element)
{
    const bool scatters = op == ceclOpReduceScatter;
    struct cecl_call call =
        call_of(op, false, CECL_PUSH, (scatters ? elements : (elements + n - 1) / n) * element);
    call.element = element;
    call.total = (scatters ? n : 1) * elements * element;
    call.chunk = call.bytes;
    return call;
}

/* By the built-in table, as on GPUs. */
static inline void tune(struct cecl_call *call, struct cecl_choice choice)
{
    const struct cecl_tuning tuning = cecl_tuning_default(CECL_TUNING_CUDA, call->nranks);
    cecl_tune(call, choice, &tuning);
}

/* 31 bits that a seed determines, which goes on. */
static inline uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* plans[c * nranks + r]; the caller frees with free_plans. */
static inline struct cecl_plan *lower_all(const struct cecl_call *calls, int ncalls, int nranks)
{
    struct cecl_plan *plans = calloc((size_t)(ncalls * nranks), sizeof(*plans));
    assert_non_null(plans);
    for (int c = 0; c < ncalls; c++)
        for (int r = 0; r < nranks; r++) {
            struct cecl_call call = calls[c];
            call.nranks = nranks;
            call.rank = r;
            assert_int_equal(cecl_lower(&call, &plans[c * nranks + r]), ceclSuccess);
        }
    return plans;
}

static inline void free_plans(struct cecl_plan *plans, int count)
{
    for (int i = 0; i < count; i++)
        cecl_plan_free(&plans[i]);
    free(plans);
}

static inline void verify_calls(const struct cecl_call *calls, int ncalls, int nranks)
{
    struct cecl_plan *plans = lower_all(calls, ncalls, nranks);
    if (cecl_verify(plans, ncalls, nranks) != ceclSuccess)
        fail_msg("%d ranks, op %d, in place %d, direction %d, %llu bytes: %s", nranks,
                 (int)calls[0].op, calls[0].in_place, (int)calls[0].direction,
                 (unsigned long long)calls[0].bytes, cecl_message());
    free_plans(plans, ncalls * nranks);
}

#endif
