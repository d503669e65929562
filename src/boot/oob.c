/* Two ways in which ranks find each other: the caller's callbacks, and boxes for threads of one
 * process. */
#include "boot/oob.h"

#include <stdlib.h>

#include "boot/boxes.h"
#include "util/clock.h"

/* ---- callbacks */

static ceclResult_t callbacks_allgather(struct cecl_oob *oob, const void *send, void *recv,
                                        size_t bytes)
{
    const ceclOob_t *callbacks = oob->context;
    const int failed = callbacks->allGather(callbacks->context, send, recv, bytes);
    return failed ? cecl_fail(ceclSystemError, "the caller's allGather of %zu bytes returned %d",
                              bytes, failed)
                  : ceclSuccess;
}

void cecl_oob_from_callbacks(struct cecl_oob *oob, const ceclOob_t *callbacks, int nranks, int rank,
                             int64_t timeout_ms)
{
    *oob = (struct cecl_oob){.nranks = nranks,
                             .rank = rank,
                             .timeout_ms = timeout_ms,
                             .context = (void *)(uintptr_t)callbacks,
                             .allgather = callbacks_allgather};
}

/* ---- threads */

/* The boxes follow the plans. Used for one join. */
struct cecl_oob_group {
    int nranks;
    int64_t timeout_ms;
    struct cecl_boxes_plan plans[]; /* [nranks] one of each member */
};

ceclResult_t cecl_oob_group_create(int nranks, int64_t timeout_ms, struct cecl_oob_group **out)
{
    struct cecl_oob_group *group = calloc(
        1, sizeof(*group) + (size_t)nranks * sizeof(group->plans[0]) + cecl_boxes_bytes(nranks));
    if (!group)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of ranks");
    group->nranks = nranks;
    group->timeout_ms = timeout_ms;
    *out = group;
    return ceclSuccess;
}

void cecl_oob_group_destroy(struct cecl_oob_group *group)
{
    free(group);
}

void cecl_oob_from_group(struct cecl_oob *oob, struct cecl_oob_group *group, int rank)
{
    group->plans[rank] = (struct cecl_boxes_plan){.memory = &group->plans[group->nranks],
                                                  .old_nranks = group->nranks,
                                                  .nranks = group->nranks,
                                                  .rank = rank,
                                                  .token = 1,
                                                  .timeout_ms = group->timeout_ms,
                                                  .deadline = cecl_deadline(group->timeout_ms)};
    cecl_oob_from_boxes(oob, &group->plans[rank]);
}
