/* All ranks meet, and nothing moves:
 *
 *     | signal all | wait for all |
 *
 * A rank's stream goes on when every rank's stream has reached the call. This is zero SM, because
 * flags are stream operations. */
#include "ce/lowering.h"

ceclResult_t cecl_lower_barrier(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->call.nranks > 1)
        cecl_plan_barrier(plan);
    cecl_plan_say(plan, "barrier");
    return ceclSuccess;
}
