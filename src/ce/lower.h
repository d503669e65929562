/* Lowering: pure functions from a call to a plan, one for each collective. No device, no addresses,
 * no state. */
#ifndef CECL_CE_LOWER_H
#define CECL_CE_LOWER_H

#include "plan/plan.h"

/* Fills `plan` for call->rank; the caller frees it. ceclOutOfMemory; ceclInvalidUsage when staging
 * is too small (named). */
ceclResult_t cecl_lower(const struct cecl_call *call, struct cecl_plan *plan);

/* The tuning table: who moves the blocks of this call, by (op, in place, ranks, bytes a block).
 * `forced` comes from CECL_DIRECTION
 * (0 auto, 1 push, 2 pull). Depends on nothing in which ranks may differ. */
enum cecl_direction cecl_tune_direction(ceclOp_t op, bool in_place, int nranks, uint64_t bytes,
                                        int forced);

#endif
