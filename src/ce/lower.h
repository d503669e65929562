/* Lowering: pure functions from a call and its way to a plan, one for each family of calls. No device,
 * no addresses, no state. */
#ifndef CECL_CE_LOWER_H
#define CECL_CE_LOWER_H

#include "plan/plan.h"

/* Fills `plan` for the part's rank; the caller frees it. ceclOutOfMemory; ceclInvalidUsage when staging
 * is too small (named). */
ceclResult_t cecl_lower(const struct cecl_part *part, struct cecl_plan *plan);

/* Several calls of one rank, to be carried out as one: their barriers are shared. Gives each call that
 * goes by staging its share of it (parts[i].means). Errors as cecl_lower. */
ceclResult_t cecl_lower_group(struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

/* Rows of cecl_ops name these. */
typedef ceclResult_t cecl_lower_fn(const struct cecl_part *part, struct cecl_plan *plan);
cecl_lower_fn cecl_lower_gathered;  /* one block to all, by copies */
cecl_lower_fn cecl_lower_exchanged; /* a block for each, by copies */
cecl_lower_fn cecl_lower_per_rank;  /* blocks that each rank knows its own of */
cecl_lower_fn cecl_lower_reduction;
cecl_lower_fn cecl_lower_barrier;

#endif
