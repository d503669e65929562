/* Lowering: pure functions from a call to a plan, one for each collective. No device, no addresses,
 * no state. */
#ifndef CECL_CE_LOWER_H
#define CECL_CE_LOWER_H

#include "plan/plan.h"
#include "tune/table.h"

/* Fills `plan` for call->rank; the caller frees it. ceclOutOfMemory; ceclInvalidUsage when staging
 * is too small (named). */
ceclResult_t cecl_lower(const struct cecl_call *call, struct cecl_plan *plan);

/* Several calls of one rank, to be carried out as one: their barriers are shared. Gives each
 * all-to-all its share of the staging (calls[i].staging_...). Errors as cecl_lower. */
ceclResult_t cecl_lower_group(struct cecl_call *calls, uint32_t ncalls, struct cecl_plan *plan);

/* Of a reduction by staging: one arrives, one is reduced. More, and smaller ones, were slower. */
#define CECL_CHUNKS_UNDER_WAY 2u

/* Fills in how this call is carried out (direction, no_sm, piece_worth, spread), by what it is, what the
 * caller chose and `tuning`, the thresholds of this device and number of ranks.
 * Depends on nothing in which ranks may differ. */
void cecl_tune(struct cecl_call *call, struct cecl_choice choice, const struct cecl_tuning *tuning);

#endif
