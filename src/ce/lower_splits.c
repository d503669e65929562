/* Calls by splits on the device, where the host does not know how many rows move: two kernels on each rank, and a
 * barrier after each kernel.
 *
 *     main | write my line to all tables | barrier | move my rows to the recvbuffs | barrier |
 *
 * (sm/splits.h says what the kernels do.) The tables lie in a part of staging that no other kind of call uses. A rank
 * may write to its peers' tables without a barrier first: the last barrier of the previous call by splits said that all
 * ranks had read their tables. (The rest of a peer's staging may still be in use: after a reduce-scatter, the peer may
 * still reduce what lies there.) The first barrier says that all lines are there, and that the peers' recvbuffs may be
 * written. At barriers streams wait, not kernels. */
#include "ce/lowering.h"
#include "sm/splits.h"

ceclResult_t cecl_lower_splits(const struct cecl_part *part, struct cecl_plan *plan)
{
    (void)part;
    cecl_plan_splits(plan, CECL_SPLITS_TELL);
    cecl_plan_barrier(plan);
    cecl_plan_splits(plan, CECL_SPLITS_MOVE);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "splits sent to all ranks, then rows pushed by a kernel");
    return ceclSuccess;
}
