/* ceclGroupStart and ceclGroupEnd. Joins come first, then allocations, then calls. */
#include "api/waiting.h"
#include "comm/trace.h"
#include "launch/group.h"
#include "launch/make.h"
#include "launch/plan.h"
#include "launch/request.h"

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
        (void)!cecl_group_refuse(cecl_joins_carry_out(&others->joins, group->failed, group->words));
        if (group->failed == ceclSuccess)
            (void)!cecl_group_refuse(cecl_wishes_carry_out(&others->wishes, group));
        others->wishes.count = 0;
    }
    return cecl_group_carry_out(group);
}

/* Ends the trace of all calls on the communicator of launch `first`, as one event. The descriptions of a
 * refused group may be incomplete, so they are not read. */
static void trace_end(const struct cecl_launch *first, const struct cecl_traced *traced,
                      ceclResult_t result)
{
    uint64_t send_bytes = 0, recv_bytes = 0;
    for (const struct cecl_launch *launch = first; launch && result == ceclSuccess;
         launch = launch->next)
        for (uint32_t i = 0; launch->comm == first->comm && i < launch->ncalls; i++) {
            uint64_t sent, received;
            cecl_call_sizes(&launch->calls[i], &sent, &received);
            send_bytes += sent;
            recv_bytes += received;
        }
    cecl_trace_end(traced, send_bytes, recv_bytes,
                   result == ceclSuccess ? cecl_launch_path(first) : "refused", result);
}

/* Writes one event for each communicator, with the time of all its calls. */
static ceclResult_t end_traced(struct cecl_group *group)
{
    struct cecl_traced traced = {0};
    for (const struct cecl_launch *launch = group->first; launch; launch = launch->next) {
        const struct cecl_traced begun =
            cecl_group_first(group, launch->comm) == launch
                ? cecl_trace_begin(launch->comm, cecl_ops[CECL_OP_GROUP_END].name)
                : (struct cecl_traced){0};
        if (begun.trace)
            traced = begun;
    }
    const ceclResult_t result = end(group);
    for (const struct cecl_launch *launch = group->first; launch; launch = launch->next)
        if (cecl_group_first(group, launch->comm) == launch) {
            traced.trace = cecl_trace_of(launch->comm);
            trace_end(launch, &traced, result);
        }
    return result;
}

CECL_API ceclResult_t ceclGroupEnd(void)
{
    CECL_UNCANCELLED;
    CECL_PUBLIC;
    if (!cecl_group_is_open())
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart was called in this thread");
    struct cecl_group *group = cecl_group_current();
    if (--group->depth > 0)
        return ceclSuccess;
    cecl_group_close();
    cecl_group_enter(group, cecl_ops[CECL_OP_GROUP_END].name);
    const ceclResult_t result = group->is_traced ? end_traced(group) : end(group);
    cecl_group_leave(group);
    return result;
}

/* ---- explaining, and making requests */

/* Requires that the group has only calls, all on this communicator. */
static ceclResult_t check_taken(const struct cecl_group *group, ceclComm_t comm, const char *name,
                                const char *argument, const void *out)
{
    const struct cecl_waiting *others = group->others;
    CECL_TRY(cecl_comm_check(comm));
    if (!out)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", argument);
    if (group->failed != ceclSuccess)
        return cecl_fail_with(group->failed, group->words);
    for (const struct cecl_launch *launch = group->first; launch; launch = launch->next)
        if (launch->comm != comm)
            return cecl_fail(ceclInvalidUsage,
                             "a call of the group is on another communicator, not on comm");
    if (others && (others->wishes.count > 0 || others->joins.count > 0))
        return cecl_fail(ceclInvalidUsage,
                         "a %s is in the group: %s takes only collective calls and messages",
                         others->joins.count > 0 ? "ceclCommInitRank" : "ceclMemAlloc", name);
    return ceclSuccess;
}

static ceclResult_t explain(struct cecl_group *group, ceclExplanation_t *explanation)
{
    cecl_group_enter(group, "ceclGroupExplain");
    const ceclResult_t result = group->failed == ceclSuccess
                                    ? cecl_launches_explain(group->first, explanation)
                                    : cecl_fail_with(group->failed, group->words);
    cecl_group_leave(group);
    return result;
}

/* Ends the thread's group without carrying its calls out. *ended: the group, if no other group encloses it;
 * the caller then empties this group. Returns an error if the group cannot be explained, or cannot be made
 * into a request. */
static ceclResult_t end_uncarried(ceclComm_t comm, const char *name, const char *argument,
                                  const void *out, struct cecl_group **ended)
{
    if (!cecl_group_is_open())
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart was called in this thread");
    struct cecl_group *group = cecl_group_current();
    if (--group->depth > 0) /* the outermost ceclGroupEnd would carry these calls out */
        return cecl_group_refuse(cecl_fail(ceclInvalidUsage,
                                           "this group is inside another one; only an outermost "
                                           "group can be explained, or made into a request"));
    *ended = group;
    cecl_group_close();
    const ceclResult_t result = check_taken(group, comm, name, argument, out);
    struct cecl_waiting *others = group->others;
    if (others)
        others->joins.count = others->wishes.count = 0;
    return result;
}

CECL_API ceclResult_t ceclGroupExplain(ceclComm_t comm, ceclExplanation_t *explanation)
{
    CECL_UNCANCELLED;
    CECL_PUBLIC;
    struct cecl_group *group = NULL;
    ceclResult_t result =
        end_uncarried(comm, "ceclGroupExplain", "explanation", explanation, &group);
    if (result == ceclSuccess)
        result = explain(group, explanation);
    if (group)
        cecl_group_empty(group);
    return result;
}

/* Takes a communicator's launch of a kind out of the group's list; NULL: the group has none. */
static struct cecl_launch *take_launch(struct cecl_group *group, ceclComm_t comm,
                                       enum cecl_launch_kind kind)
{
    struct cecl_launch **at = &group->first;
    while (*at && ((*at)->comm != comm || (*at)->kind != kind))
        at = &(*at)->next;
    struct cecl_launch *launch = *at;
    if (launch) {
        *at = launch->next;
        launch->next = NULL;
        group->nlaunches--;
    }
    return launch;
}

/* Makes a request from the group's calls. Also runs for a refused group if ranks compare their calls, because
 * the peers must be notified. Such a group may have calls on other communicators, too. */
static ceclResult_t make_request(struct cecl_group *group, ceclComm_t comm, ceclRequest_t *request)
{
    if (!cecl_group_first(group, comm))
        return group->failed != ceclSuccess
                   ? cecl_fail_with(group->failed, group->words)
                   : cecl_fail(ceclInvalidUsage, "the group has no call to make a request from");
    CECL_TRY(cecl_comm_enter(comm, "ceclGroupInit"));
    struct cecl_launch *collectives = take_launch(group, comm, CECL_LAUNCH_COLLECTIVES),
                       *messages = take_launch(group, comm, CECL_LAUNCH_MESSAGES);
    const ceclResult_t result = cecl_request_make(
        comm, collectives, messages, NULL, cecl_fail_with(group->failed, group->words), request);
    cecl_comm_leave(comm);
    return result;
}

CECL_API ceclResult_t ceclGroupInit(ceclComm_t comm, ceclRequest_t *request)
{
    CECL_PUBLIC;
    struct cecl_group *group = NULL;
    ceclResult_t result = end_uncarried(comm, "ceclGroupInit", "request", request, &group);
    const bool goes_on = result == ceclSuccess || (group && group->failed == result && request &&
                                                   cecl_comm_is_checked(comm));
    if (goes_on)
        result = make_request(group, comm, request);
    if (group)
        cecl_group_empty(group);
    return result;
}
