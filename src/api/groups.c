/* ceclGroupStart and ceclGroupEnd. Joins come first, then allocations, then calls. */
#include "api/waiting.h"
#include "device/nvtx.h"
#include "launch/group.h"
#include "launch/make.h"

CECL_API ceclResult_t ceclGroupStart(void)
{
    CECL_PUBLIC;
    struct cecl_group *group = cecl_group_current();
    if (!group)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group");
    if (group->depth++ == 0)
        cecl_group_open(group);
    return ceclSuccess;
}

/* After a failure nothing more is carried out, but peers of joins and calls are notified. */
static ceclResult_t end(struct cecl_group *group)
{
    struct cecl_waiting *others = group->others;
    if (others) {
        (void)!cecl_group_refuse(
            cecl_joins_carry_out(&others->joins, group->all.failed, group->all.words));
        if (group->all.failed == ceclSuccess)
            (void)!cecl_group_refuse(cecl_wishes_carry_out(&others->wishes, group));
        others->wishes.count = 0;
    }
    return cecl_launches_make(&group->all);
}

CECL_API ceclResult_t ceclGroupEnd(void)
{
    CECL_PUBLIC;
    if (!cecl_group_is_open())
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart was called in this thread");
    struct cecl_group *group = cecl_group_current();
    if (--group->depth > 0)
        return ceclSuccess;
    cecl_group_close();
    cecl_group_enter(group, cecl_ops[CECL_OP_GROUP_END].name);
    const bool range = cecl_nvtx_begin(group->has_ranges, cecl_ops[CECL_OP_GROUP_END].name);
    const ceclResult_t result = end(group);
    cecl_nvtx_end(range);
    cecl_group_leave(group);
    return result;
}

/* ---- explaining */

/* Requires that the group has only calls, all on this communicator. */
static ceclResult_t check_explained(const struct cecl_group *group, ceclComm_t comm,
                                    const ceclExplanation_t *explanation)
{
    const struct cecl_waiting *others = group->others;
    CECL_TRY(cecl_comm_check(comm));
    if (!explanation)
        return cecl_fail(ceclInvalidArgument, "explanation: NULL");
    if (group->all.failed != ceclSuccess)
        return cecl_fail_with(group->all.failed, group->all.words);
    for (const struct cecl_launch *launch = group->all.first; launch; launch = launch->next)
        if (launch->comm != comm)
            return cecl_fail(ceclInvalidUsage,
                             "a call of the group is on another communicator, not on comm");
    if (others && (others->wishes.count > 0 || others->joins.count > 0))
        return cecl_fail(ceclInvalidUsage,
                         "a %s is in the group: ceclGroupExplain takes only collective calls and "
                         "messages",
                         others->joins.count > 0 ? "ceclCommInitRank" : "ceclMemAlloc");
    return ceclSuccess;
}

static ceclResult_t explain(struct cecl_group *group, ceclExplanation_t *explanation)
{
    cecl_group_enter(group, "ceclGroupExplain");
    const ceclResult_t result = group->all.failed == ceclSuccess
                                    ? cecl_launches_explain(group->all.first, explanation)
                                    : cecl_fail_with(group->all.failed, group->all.words);
    cecl_group_leave(group);
    return result;
}

CECL_API ceclResult_t ceclGroupExplain(ceclComm_t comm, ceclExplanation_t *explanation)
{
    CECL_PUBLIC;
    if (!cecl_group_is_open())
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart was called in this thread");
    struct cecl_group *group = cecl_group_current();
    if (--group->depth > 0) /* the outermost ceclGroupEnd would carry these calls out */
        return cecl_group_refuse(
            cecl_fail(ceclInvalidUsage, "this group is inside another one; only an outermost group "
                                        "can be explained"));
    cecl_group_close();
    ceclResult_t result = check_explained(group, comm, explanation);
    struct cecl_waiting *others = group->others;
    if (others)
        others->joins.count = others->wishes.count = 0;
    if (result == ceclSuccess)
        result = explain(group, explanation);
    cecl_group_empty(group);
    return result;
}
