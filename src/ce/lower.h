/* Lowering: pure functions that make a plan from a call and its way, one for each family of calls.
 * They know no device and no addresses, and keep no state. */
#ifndef CECL_CE_LOWER_H
#define CECL_CE_LOWER_H

#include "plan/plan.h"

/* Fills `plan` for the part's rank; the caller frees it. Returns ceclOutOfMemory, or
 * ceclInvalidUsage when staging is too small (the message says so). */
ceclResult_t cecl_lower(const struct cecl_part *part, struct cecl_plan *plan);

/* Lowers several calls of one rank to one plan, in which they share barriers. Narrows parts[i].means to the part of
 * staging that call i may use. If a rank came late, the later one of any two ranks makes the copies between
 * their buffers (route.c). Errors as cecl_lower. */
ceclResult_t cecl_lower_group(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

/* As cecl_lower_group, but as if no rank had come late, so each rank pushes. route.c also calls it. */
ceclResult_t cecl_lower_alike(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

/* The table cecl_lowerings lists these functions. */
typedef ceclResult_t cecl_lower_fn(const struct cecl_part *part, struct cecl_plan *plan);
cecl_lower_fn cecl_lower_gathered;  /* one block to all, by copies */
cecl_lower_fn cecl_lower_exchanged; /* a block for each, by copies */
cecl_lower_fn cecl_lower_per_rank;  /* blocks of different sizes */
cecl_lower_fn cecl_lower_reduction;
cecl_lower_fn cecl_lower_barrier;
cecl_lower_fn cecl_lower_splits; /* rows that are counted only on the device */
cecl_lower_fn cecl_lower_carry;  /* a copy between two buffers of one rank */

#endif
