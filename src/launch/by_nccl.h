/* Launches of communicators over several hosts: NCCL carries their calls (src/net), all of a group in one group of
 * NCCL. Such a launch is never told, bound or kept. */
#ifndef CECL_LAUNCH_BY_NCCL_H
#define CECL_LAUNCH_BY_NCCL_H

#include "launch/launch.h"

/* Refuses a call that NCCL cannot carry, when it is described. */
ceclResult_t cecl_by_nccl_check_call(const struct cecl_launch *launch,
                                     const struct cecl_call *call);
/* Checks what shows only when all calls of the launch are known. */
ceclResult_t cecl_by_nccl_check(const struct cecl_launch *launch);
/* Makes the calls of those launches of a list that NCCL carries. On an error peers rely on them. */
ceclResult_t cecl_by_nccl_run(struct cecl_launch *list);
void cecl_by_nccl_explain(const struct cecl_launch *launch, ceclExplanation_t *explanation);

#endif
