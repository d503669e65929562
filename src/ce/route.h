/* Which rank moves which bytes in a late call: see route.c. */
#ifndef CECL_CE_ROUTE_H
#define CECL_CE_ROUTE_H

#include "plan/plan.h"

/* Rewrites a plan that was made from `parts`, the parts of a late call. Pass `parts` as they were before
 * lowering. Pure. On ceclOutOfMemory the caller still has to free the plan. */
ceclResult_t cecl_route(const struct cecl_part *parts, uint32_t nparts, struct cecl_plan *plan);

#endif
