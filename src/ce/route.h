/* Who moves which bytes, where a rank came late to a call: see route.c. */
#ifndef CECL_CE_ROUTE_H
#define CECL_CE_ROUTE_H

#include "plan/plan.h"

/* Rewrites the plan that `parts` were lowered to. `parts` are as they were before that, and late.
 * Pure. ceclOutOfMemory; the plan then stays the caller's to free. */
ceclResult_t cecl_route(const struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

#endif
