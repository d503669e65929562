/* Chooses how a call is carried out, by thresholds: one function for each family of calls. A choice depends
 * on the call, on the number of ranks, and on the communicator's means. It uses only facts that are equal on
 * all ranks. */
#ifndef CECL_PLAN_CHOOSE_H
#define CECL_PLAN_CHOOSE_H

#include "plan/call.h"
#include "plan/way.h"

/* Decides whether the call is small, by a rule for all families, and then calls the function of the call's
 * family. */
void cecl_choose(const struct cecl_call *call, const struct cecl_means *means,
                 struct cecl_way *way);

/* Whether the call is small, goes through memory of the host, or has its splits on the device. No copy of
 * such a call touches a peer's buffer, so hosts need not know where these buffers lie. Runs at every call. */
bool cecl_chooses_own_buffers(const struct cecl_call *call, const struct cecl_means *means);

/* cecl_lowerings names these. */
typedef void cecl_choose_fn(const struct cecl_call *call, const struct cecl_means *means,
                            struct cecl_way *way);
cecl_choose_fn cecl_choose_gathered;
cecl_choose_fn cecl_choose_exchanged;
cecl_choose_fn cecl_choose_per_rank;
cecl_choose_fn cecl_choose_reduction;
cecl_choose_fn cecl_choose_carry;
cecl_choose_fn cecl_choose_splits;

#endif
