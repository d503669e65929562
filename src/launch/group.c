/* A thread's open group; see group.h. */
#include "launch/group.h"

#include <stdio.h>
#include <stdlib.h>

#include "launch/make.h"
#include "launch/steps.h"
#include "util/grow.h"
#include "util/thread.h"

/* ---- the thread's group */

static _Thread_local struct cecl_group *mine;
static _Thread_local bool is_open;

bool cecl_group_is_open(void)
{
    return is_open;
}

ceclResult_t cecl_group_check_outside(const char *name, const char *advice)
{
    return is_open ? cecl_fail(ceclInvalidUsage, "%s: call it outside a group%s", name, advice)
                   : ceclSuccess;
}

/* If the group is refused, launches on other communicators stay: cecl_launches_compare tells their peers of it. */
void cecl_group_take_out(struct cecl_group *group, const struct ceclComm *comm)
{
    struct cecl_launch **at = &group->all.first;
    while (*at) {
        struct cecl_launch *launch = *at;
        if (comm && launch->comm != comm) {
            at = &launch->next;
            continue;
        }
        *at = launch->next;
        cecl_launch_return(launch);
    }
}

void cecl_group_drop_joins(struct cecl_group *group)
{
    if (group->joins)
        group->free_joins(group->joins);
    group->joins = NULL;
}

static void free_group(void)
{
    cecl_group_take_out(mine, NULL);
    cecl_group_drop_joins(mine);
    free(mine);
    mine = NULL;
}

struct cecl_group *cecl_group_current(void)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (!mine && (mine = calloc(1, sizeof(*mine))) && !cecl_thread_at_end(&end, free_group)) {
        free(mine);
        mine = NULL;
    }
    return mine;
}

void cecl_group_open(struct cecl_group *group)
{
    group->has_ranges = false;
    cecl_launches_begin(&group->all, &cecl_ops[CECL_OP_GROUP_END]);
    group->failed_call = group->ncalls = 0;
    is_open = true;
}

void cecl_group_count(void)
{
    cecl_group_current()->ncalls++;
}

void cecl_group_close(void)
{
    struct cecl_group *group = cecl_group_current();
    is_open = false;
    for (struct cecl_launch *launch = group->all.first; launch; launch = launch->next)
        launch->group_calls = group->ncalls;
    if (group->all.failed == ceclSuccess || group->failed_call == 0)
        return;
    cecl_record("call %u of %u in the group, %s: %s", group->failed_call, group->ncalls,
                group->failed_name, group->all.words);
    cecl_keep_message(group->all.words);
}

/* ---- the group's calls */

ceclResult_t cecl_group_refuse(ceclResult_t result)
{
    return cecl_launches_note(&cecl_group_current()->all, NULL, result);
}

ceclResult_t cecl_group_refuse_call(ceclComm_t comm, ceclResult_t result)
{
    struct cecl_group *group = cecl_group_current();
    char words[CECL_MESSAGE_BYTES];
    if (result == ceclSuccess)
        return result;
    if (group->all.failed == ceclSuccess) {
        group->failed_call = group->ncalls;
        group->failed_name = cecl_function();
    }
    (void)!cecl_launches_note(&group->all, comm, result);
    snprintf(words, sizeof(words), "call %u in the group, %s: %.400s", group->ncalls,
             cecl_function(), cecl_message());
    return cecl_relay(result, words);
}

/* Where the communicator's launch of this kind is in the list, or is to be inserted: next to the communicator's other
 * launches, or at the end. So the list has communicators in the order of their first calls. */
static struct cecl_launch **place_of(struct cecl_group *group, ceclComm_t comm,
                                     enum cecl_launch_kind kind)
{
    struct cecl_launch **at = &group->all.first;
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    while (*at && (*at)->comm == comm && (*at)->kind < (int)kind)
        at = &(*at)->next;
    return at;
}

/* Requires that all calls of a communicator are on the same stream, because they are carried out as one. */
static ceclResult_t check_stream(const struct cecl_group *group, ceclComm_t comm,
                                 ceclStream_t stream)
{
    const struct cecl_launch *launch = cecl_launches_of(group->all.first, comm);
    return !launch || launch->kind == CECL_LAUNCH_ALLOCATIONS || launch->stream == stream
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "stream %p: all calls of a group on one communicator must use one "
                           "stream; the first of them uses %p",
                           (void *)stream, (void *)launch->stream);
}

/* Returns the group's launch of this kind on `comm`, and makes it if it is missing. NULL without host memory. */
static struct cecl_launch *launch_for(struct cecl_group *group, ceclComm_t comm,
                                      ceclStream_t stream, enum cecl_launch_kind kind)
{
    struct cecl_launch **at = place_of(group, comm, kind);
    if (*at && (*at)->comm == comm && (*at)->kind == kind)
        return *at;
    struct cecl_launch *launch = cecl_launch_take(comm, kind, stream);
    if (!launch)
        return NULL;
    launch->is_grouped = true;
    launch->next = *at;
    *at = launch;
    return launch;
}

static ceclResult_t add_call(struct cecl_group *group, ceclComm_t comm,
                             const struct cecl_args *args, ceclStream_t stream,
                             struct cecl_call *call)
{
    const enum cecl_launch_kind kind = cecl_launch_kind_of(call->op);
    const ceclResult_t streams = check_stream(group, comm, stream);
    struct cecl_launch *launch = launch_for(group, comm, stream, kind);
    if (!launch) { /* tries again: peers that compare calls learn of a refusal only through a launch */
        (void)launch_for(group, comm, stream, kind);
        return ceclOutOfMemory;
    }
    CECL_TRY(streams);
    launch->number = group->ncalls;
    if (launch->ncalls == CECL_GROUP_MAX)
        return cecl_fail(
            ceclInvalidUsage,
            "at most %d calls on one communicator expected in a group; end the group earlier",
            CECL_GROUP_MAX);
    CECL_TRY(cecl_launch_describe(launch, args, call));
    return call->op->asks_places
               ? cecl_fail(
                     ceclInvalidUsage,
                     "it waits for the peers' hosts, which is not possible in a group; use %s",
                     call->op->in_group)
               : ceclSuccess;
}

ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_args *args, ceclStream_t stream,
                            struct cecl_call *call)
{
    struct cecl_group *group = cecl_group_current();
    group->has_ranges = group->has_ranges || comm->has_ranges;
    return cecl_group_refuse_call(comm, add_call(group, comm, args, stream, call));
}

static ceclResult_t add_wish(struct cecl_group *group, ceclComm_t comm, void **ptr, size_t bytes)
{
    struct cecl_launch *launch = launch_for(group, comm, NULL, CECL_LAUNCH_ALLOCATIONS);
    if (!launch)
        return ceclOutOfMemory;
    if (!CECL_HAS_ROOM(launch->wishes, launch->nwishes, launch->wishes_room))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u allocations",
                         launch->nwishes + 1);
    launch->wishes[launch->nwishes++] = (struct cecl_wish){.ptr = ptr, .bytes = bytes};
    return ceclSuccess;
}

ceclResult_t cecl_group_allocate(ceclComm_t comm, void **ptr, size_t bytes)
{
    cecl_group_count();
    ceclResult_t result = cecl_comm_check(comm);
    if (result == ceclSuccess)
        result = cecl_check_given("ptr", ptr);
    if (result == ceclSuccess)
        result = cecl_comm_enter(comm, cecl_ops[CECL_OP_MEM_ALLOC].name);
    if (result == ceclSuccess)
        result = cecl_comm_left(comm, add_wish(cecl_group_current(), comm, ptr, bytes));
    return cecl_group_refuse_call(comm, result);
}

uint32_t cecl_group_waiting(ceclComm_t comm)
{
    uint32_t waiting = 0;
    const struct cecl_group *group = is_open ? cecl_group_current() : NULL;
    for (const struct cecl_launch *launch = group ? group->all.first : NULL; launch;
         launch = launch->next)
        waiting += launch->comm == comm ? launch->ncalls + launch->nwishes : 0;
    return waiting;
}

ceclResult_t cecl_group_check_waiting(ceclComm_t comm, const char *words)
{
    const uint32_t waiting = cecl_group_waiting(comm);
    return waiting == 0 ? ceclSuccess
                        : cecl_fail(ceclInvalidUsage,
                                    "%u calls on this communicator wait for ceclGroupEnd, which "
                                    "this thread has not called: %s",
                                    waiting, words);
}

void cecl_group_forget(ceclComm_t comm)
{
    if (cecl_group_waiting(comm) > 0)
        (void)!cecl_group_refuse(
            cecl_fail(ceclInvalidUsage, "a communicator ended while calls of the group waited for "
                                        "ceclGroupEnd: no call of the group is carried out"));
    if (is_open)
        cecl_group_take_out(cecl_group_current(), comm); /* a refused call's launch may be empty */
}

/* ---- carrying the group out */

void cecl_group_enter(struct cecl_group *group, const char *name)
{
    struct cecl_launch *launch = group->all.first;
    while (launch) {
        struct cecl_launch *next = launch->next;
        ceclComm_t comm = launch->comm;
        if (cecl_launches_of(group->all.first, comm) == launch &&
            cecl_launches_note(&group->all, comm, cecl_comm_enter(comm, name)) != ceclSuccess) {
            while (next && next->comm == comm)
                next = next->next;
            cecl_group_take_out(group, comm);
        }
        launch = next;
    }
}

/* Leaves each communicator after its last launch was dropped. */
void cecl_group_leave(struct cecl_group *group)
{
    while (group->all.first) {
        struct cecl_launch *launch = group->all.first;
        ceclComm_t comm = launch->comm;
        group->all.first = launch->next;
        cecl_launch_drop(launch);
        if (!group->all.first || group->all.first->comm != comm)
            cecl_comm_leave(comm);
    }
}
