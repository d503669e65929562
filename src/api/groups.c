/* ceclGroupStart, ceclGroupEnd and ceclGroupExplain. The end carries out joins first, then allocations, then calls. */
#include "api/life.h"
#include "comm/together.h"
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

/* Makes the group's allocations on one communicator, in the order of the calls: all of them or none. An allocation
 * fails on all ranks or on none, so all ranks undo the same allocations. Each communicator has a thread for this: a
 * pool that grows waits for all ranks, and several ranks may belong to the calling thread. */
static ceclResult_t allocate(void *argument)
{
    const struct cecl_launch *launch = argument;
    ceclResult_t result = ceclSuccess;
    uint32_t made = 0;
    while (made < launch->nwishes && result == ceclSuccess) {
        struct cecl_wish *wish = &launch->wishes[made];
        result = cecl_memory_allocate(launch->comm, &wish->got, wish->bytes);
        made += result == ceclSuccess;
    }
    if (result == ceclSuccess) {
        for (uint32_t i = 0; i < made; i++)
            *launch->wishes[i].ptr = launch->wishes[i].got;
        return ceclSuccess;
    }
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    for (uint32_t i = 0; i < made; i++)
        if (launch->wishes[i].got)
            (void)!cecl_memory_free(launch->comm, launch->wishes[i].got);
    return cecl_fail_with(result, words);
}

static struct cecl_launch *find_allocations(struct cecl_launch *launch)
{
    while (launch && launch->kind != CECL_LAUNCH_ALLOCATIONS)
        launch = launch->next;
    return launch;
}

static void *next_allocations(void *launch)
{
    return find_allocations(((struct cecl_launch *)launch)->next);
}

/* Carries out the group. If it was refused, only informs the peers that wait for this rank in joins and calls. */
static ceclResult_t end(struct cecl_group *group)
{
    struct cecl_launches *all = &group->all;
    (void)!cecl_group_refuse(cecl_joins_carry_out(group->joins, all->failed, all->words));
    cecl_group_drop_joins(group);
    if (all->failed == ceclSuccess)
        (void)!cecl_group_refuse(
            cecl_together(allocate, find_allocations(all->first), next_allocations));
    return cecl_launches_make(all);
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
    CECL_NVTX_RANGE(group->has_ranges, cecl_ops[CECL_OP_GROUP_END].name);
    const ceclResult_t result = end(group);
    cecl_group_leave(group);
    return result;
}

/* ---- explaining */

#define ONLY_CALLS " is in the group: ceclGroupExplain takes only collective calls and messages"

/* Requires that the group has only collectives and messages, all on this communicator. */
static ceclResult_t check_explained(const struct cecl_group *group, ceclComm_t comm,
                                    const ceclExplanation_t *explanation)
{
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("explanation", explanation));
    if (group->all.failed != ceclSuccess)
        return cecl_fail_with(group->all.failed, group->all.words);
    for (const struct cecl_launch *launch = group->all.first; launch; launch = launch->next)
        if (launch->comm != comm)
            return cecl_fail(ceclInvalidUsage,
                             "a call of the group is on another communicator, not on comm");
        else if (launch->kind == CECL_LAUNCH_ALLOCATIONS)
            return cecl_fail(ceclInvalidUsage, "a ceclMemAlloc" ONLY_CALLS);
    if (group->joins)
        return cecl_fail(ceclInvalidUsage, "a ceclCommInitRank" ONLY_CALLS);
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
    if (--group->depth > 0) /* the outermost group's end returns this error */
        return cecl_group_refuse(
            cecl_fail(ceclInvalidUsage, "this group is inside another one; only an outermost group "
                                        "can be explained"));
    cecl_group_close();
    ceclResult_t result = check_explained(group, comm, explanation);
    cecl_group_drop_joins(group);
    if (result == ceclSuccess)
        result = explain(group, explanation);
    cecl_group_take_out(group, NULL);
    return result;
}
