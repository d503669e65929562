/* Joins that wait for ceclGroupEnd, and what waits for it on a communicator; see waiting.h. */
#include "api/waiting.h"

#include <stdlib.h>

#include "launch/group.h"
#include "util/grow.h"

static void free_joins(struct cecl_joins *joins)
{
    free(joins->list);
    free(joins);
}

static ceclResult_t add_join(const struct cecl_join *join)
{
    struct cecl_group *group = cecl_group_current();
    if (!group->joins)
        group->joins = calloc(1, sizeof(struct cecl_joins));
    group->free_joins = free_joins;
    struct cecl_joins *joins = group->joins;
    if (!joins || !CECL_HAS_ROOM(joins->list, joins->count, joins->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u joins",
                         joins ? joins->count + 1 : 1);
    joins->list[joins->count++] = *join;
    return join->local == ceclSuccess ? ceclSuccess : cecl_fail_with(join->local, join->words);
}

ceclResult_t cecl_waiting_join(const struct cecl_join *join)
{
    return cecl_group_refuse_call(NULL, add_join(join));
}

ceclResult_t cecl_waiting_check(ceclComm_t comm, const char *words)
{
    const uint32_t waiting = cecl_group_waiting(comm);
    return waiting == 0 ? ceclSuccess
                        : cecl_fail(ceclInvalidUsage,
                                    "%u calls on this communicator wait for ceclGroupEnd, which "
                                    "this thread has not called: %s",
                                    waiting, words);
}

void cecl_waiting_forget(ceclComm_t comm)
{
    if (cecl_group_waiting(comm) > 0)
        (void)!cecl_group_refuse(
            cecl_fail(ceclInvalidUsage, "a communicator ended while calls of the group waited for "
                                        "ceclGroupEnd: no call of the group is carried out"));
    cecl_group_forget(comm); /* refused calls leave an empty launch */
}
