/* Joins and allocations that wait for ceclGroupEnd; see waiting.h. */
#include "api/waiting.h"

#include <stdlib.h>

#include "launch/group.h"
#include "util/grow.h"

static void free_waiting(void *argument)
{
    struct cecl_waiting *others = argument;
    free(others->joins.list);
    free(others->wishes.list);
    free(others);
}

/* The joins and allocations of this thread's group, or NULL. */
static struct cecl_waiting *waiting_now(void)
{
    const struct cecl_group *group = cecl_group_is_open() ? cecl_group_current() : NULL;
    return group ? group->others : NULL;
}

/* Like waiting_now, but makes the lists if there are none. NULL: no host memory. */
static struct cecl_waiting *waiting_made(void)
{
    struct cecl_group *group = cecl_group_current();
    if (!group->others) {
        group->others = calloc(1, sizeof(struct cecl_waiting));
        group->free_others = free_waiting;
    }
    if (!group->others)
        cecl_record("no host memory for a group");
    return group->others;
}

static ceclResult_t add_join(struct cecl_joins *joins, const struct cecl_join *join)
{
    if (!CECL_HAS_ROOM(joins->list, joins->count, joins->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u joins",
                         joins->count + 1);
    joins->list[joins->count++] = *join;
    return ceclSuccess;
}

ceclResult_t cecl_waiting_join(const struct cecl_join *join)
{
    struct cecl_waiting *others = waiting_made();
    ceclResult_t result = others ? add_join(&others->joins, join) : ceclOutOfMemory;
    if (result == ceclSuccess && join->local != ceclSuccess)
        result = cecl_fail_with(join->local, join->words);
    return cecl_group_refuse_call(NULL, result);
}

static ceclResult_t add_wish(struct cecl_wishes *wishes, ceclComm_t comm, void **ptr, size_t bytes)
{
    CECL_TRY(cecl_comm_check(comm));
    if (!ptr)
        return cecl_fail(ceclInvalidArgument, "ptr: NULL");
    if (!CECL_HAS_ROOM(wishes->list, wishes->count, wishes->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u allocations",
                         wishes->count + 1);
    wishes->list[wishes->count++] = (struct cecl_wish){.comm = comm, .ptr = ptr, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t cecl_waiting_allocate(ceclComm_t comm, void **ptr, size_t bytes)
{
    struct cecl_waiting *others = waiting_made();
    cecl_group_count();
    return cecl_group_refuse_call(comm, others ? add_wish(&others->wishes, comm, ptr, bytes)
                                               : ceclOutOfMemory);
}

static uint32_t waiting_on(ceclComm_t comm)
{
    const struct cecl_waiting *others = waiting_now();
    uint32_t waiting = cecl_group_waiting(comm);
    for (uint32_t i = 0; others && i < others->wishes.count; i++)
        waiting += others->wishes.list[i].comm == comm;
    return waiting;
}

ceclResult_t cecl_waiting_check(ceclComm_t comm, const char *words)
{
    const uint32_t waiting = waiting_on(comm);
    return waiting == 0 ? ceclSuccess
                        : cecl_fail(ceclInvalidUsage,
                                    "%u calls on this communicator wait for ceclGroupEnd, which "
                                    "this thread has not called: %s",
                                    waiting, words);
}

static void forget_wishes(struct cecl_wishes *wishes, ceclComm_t comm)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < wishes->count; i++)
        if (wishes->list[i].comm != comm)
            wishes->list[kept++] = wishes->list[i];
    wishes->count = kept;
}

void cecl_waiting_forget(ceclComm_t comm)
{
    struct cecl_waiting *others = waiting_now();
    if (waiting_on(comm) > 0)
        (void)!cecl_group_refuse(
            cecl_fail(ceclInvalidUsage, "a communicator ended while calls of the group waited for "
                                        "ceclGroupEnd: no call of the group is carried out"));
    cecl_group_forget(comm); /* refused calls leave an empty launch */
    if (others)
        forget_wishes(&others->wishes, comm);
}
