/* A thread's open group; see group.h. */
#include "launch/group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch/by_nccl.h"
#include "launch/describe.h"
#include "launch/launcher.h"
#include "launch/make.h"
#include "launch/settle.h"
#include "util/grow.h"

/* ---- the thread's group */

static pthread_key_t key;
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

void cecl_group_empty(struct cecl_group *group)
{
    while (group->first) {
        struct cecl_launch *launch = group->first;
        group->first = launch->next;
        cecl_launch_return(launch);
    }
    group->nlaunches = 0;
}

static void free_group(void *argument)
{
    struct cecl_group *group = argument;
    cecl_group_empty(group);
    if (group->others)
        group->free_others(group->others);
    free(group->parts);
    free(group);
}

/* Makes the thread key, once in a process. If that fails, the next group tries again. */
static bool make_key(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool made;
    pthread_mutex_lock(&lock);
    made = made || pthread_key_create(&key, free_group) == 0;
    const bool is_made = made;
    pthread_mutex_unlock(&lock);
    return is_made;
}

struct cecl_group *cecl_group_current(void)
{
    /* reading this variable is cheaper than calling pthread_getspecific */
    static _Thread_local struct cecl_group *mine;
    if (mine)
        return mine;
    if (!make_key())
        return NULL;
    mine = calloc(1, sizeof(*mine));
    if (mine && pthread_setspecific(key, mine) != 0) {
        free(mine);
        mine = NULL;
    }
    return mine;
}

void cecl_group_open(struct cecl_group *group)
{
    group->has_ranges = false;
    group->failed = ceclSuccess;
    group->failed_on = NULL;
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
    for (struct cecl_launch *launch = group->first; launch; launch = launch->next)
        launch->group_calls = group->ncalls;
    if (group->failed == ceclSuccess || group->failed_call == 0)
        return;
    cecl_record("call %u of %u in the group, %s: %s", group->failed_call, group->ncalls,
                group->failed_name, group->words);
    cecl_keep_message(group->words);
}

/* ---- the group's calls */

static ceclResult_t remember(struct cecl_group *group, ceclComm_t comm, ceclResult_t result)
{
    if (result != ceclSuccess && group->failed == ceclSuccess) {
        group->failed = result;
        group->failed_on = comm;
        cecl_keep_message(group->words);
    }
    return result;
}

ceclResult_t cecl_group_refuse(ceclResult_t result)
{
    return remember(cecl_group_current(), NULL, result);
}

ceclResult_t cecl_group_refuse_call(ceclComm_t comm, ceclResult_t result)
{
    struct cecl_group *group = cecl_group_current();
    char words[CECL_MESSAGE_BYTES];
    if (result == ceclSuccess)
        return result;
    if (group->failed == ceclSuccess) {
        group->failed_call = group->ncalls;
        group->failed_name = cecl_function();
    }
    (void)!remember(group, comm, result);
    snprintf(words, sizeof(words), "call %u in the group, %s: %.400s", group->ncalls,
             cecl_function(), cecl_message());
    return cecl_relay(result, words);
}

/* Where the list has the communicator's launch of this kind, or where to insert that launch: next to the
 * communicator's other launch, or else at the end. So the list has communicators in the order of their
 * first calls. */
static struct cecl_launch **place_of(struct cecl_group *group, ceclComm_t comm,
                                     enum cecl_launch_kind kind)
{
    struct cecl_launch **at = &group->first;
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    while (*at && (*at)->comm == comm && (*at)->kind < (int)kind)
        at = &(*at)->next;
    return at;
}

const struct cecl_launch *cecl_group_first(const struct cecl_group *group, ceclComm_t comm)
{
    const struct cecl_launch *launch = group->first;
    while (launch && launch->comm != comm)
        launch = launch->next;
    return launch;
}

/* Requires that a communicator's calls are all on one stream, because they are carried out as one. */
static ceclResult_t check_stream(const struct cecl_group *group, ceclComm_t comm,
                                 ceclStream_t stream)
{
    const struct cecl_launch *launch = cecl_group_first(group, comm);
    return !launch || launch->stream == stream
               ? ceclSuccess
               : cecl_fail(ceclInvalidUsage,
                           "stream %p: all calls of a group on one communicator must use one "
                           "stream; the first of them uses %p",
                           (void *)stream, (void *)launch->stream);
}

/* Returns the group's launch of this kind on `comm`. Makes the launch if it is missing. NULL without host
 * memory. */
static struct cecl_launch *launch_for(struct cecl_group *group, ceclComm_t comm,
                                      ceclStream_t stream, enum cecl_launch_kind kind)
{
    struct cecl_launch **at = place_of(group, comm, kind);
    if (*at && (*at)->comm == comm && (*at)->kind == kind)
        return *at;
    struct cecl_launch *launch = CECL_HAS_ROOM(group->parts, group->nlaunches, group->parts_room)
                                     ? cecl_launch_take(comm, kind, stream)
                                     : NULL;
    if (!launch) {
        cecl_record("no host memory for a group of %u launches", group->nlaunches + 1);
        return NULL;
    }
    launch->is_grouped = true;
    launch->next = *at;
    *at = launch;
    group->nlaunches++;
    return launch;
}

static ceclResult_t refuse_in_group(const struct cecl_op *op)
{
    return op->asks_places
               ? cecl_fail(
                     ceclInvalidUsage,
                     "it waits for the peers' hosts, which is not possible in a group; use %s",
                     op->in_group)
               : ceclSuccess;
}

static ceclResult_t add(struct cecl_group *group, ceclComm_t comm, const struct cecl_args *args,
                        ceclStream_t stream, struct cecl_call *call)
{
    const enum cecl_launch_kind kind = cecl_launch_kind_of(call->op);
    const ceclResult_t streams = check_stream(group, comm, stream);
    char words[CECL_MESSAGE_BYTES];
    words[0] = '\0';
    if (streams != ceclSuccess) /* the error of the call itself says more */
        cecl_keep_message(words);
    struct cecl_launch *launch = launch_for(group, comm, stream, kind);
    if (!launch)
        return ceclOutOfMemory;
    launch->number = group->ncalls;
    if (launch->ncalls == CECL_GROUP_MAX)
        return cecl_fail(
            ceclInvalidUsage,
            "at most %d calls on one communicator expected in a group; end the group earlier",
            CECL_GROUP_MAX);
    CECL_TRY(cecl_launch_describe(launch, args, call));
    CECL_TRY(refuse_in_group(call->op));
    return streams == ceclSuccess ? ceclSuccess : cecl_fail_with(streams, words);
}

ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_args *args, ceclStream_t stream,
                            struct cecl_call *call)
{
    struct cecl_group *group = cecl_group_current();
    group->has_ranges = group->has_ranges || comm->has_ranges;
    const ceclResult_t result = cecl_group_refuse_call(comm, add(group, comm, args, stream, call));
    if (result == ceclSuccess || call->op->family == CECL_FAMILY_MESSAGE)
        return result;
    char words[CECL_MESSAGE_BYTES];
    cecl_keep_message(words);
    (void)launch_for(group, comm, stream,
                     CECL_LAUNCH_COLLECTIVES); /* so that peers that compare calls are notified */
    return cecl_relay(result, words);
}

uint32_t cecl_group_waiting(ceclComm_t comm)
{
    uint32_t waiting = 0;
    const struct cecl_group *group = is_open ? cecl_group_current() : NULL;
    for (const struct cecl_launch *launch = group ? group->first : NULL; launch;
         launch = launch->next)
        waiting += launch->comm == comm ? launch->ncalls : 0;
    return waiting;
}

static void take_out(struct cecl_group *group, ceclComm_t comm)
{
    struct cecl_launch **at = &group->first;
    while (*at) {
        struct cecl_launch *launch = *at;
        /* launches of other communicators stay, because the peers there must learn that the group is
         * refused */
        if (launch->comm != comm) {
            at = &launch->next;
            continue;
        }
        *at = launch->next;
        group->nlaunches--;
        cecl_launch_return(launch);
    }
}

void cecl_group_forget(ceclComm_t comm)
{
    if (is_open)
        take_out(cecl_group_current(), comm);
}

/* ---- carrying the group out */

void cecl_group_enter(struct cecl_group *group, const char *name)
{
    struct cecl_launch *launch = group->first;
    while (launch) {
        struct cecl_launch *next = launch->next;
        ceclComm_t comm = launch->comm;
        if (cecl_group_first(group, launch->comm) == launch &&
            remember(group, comm, cecl_comm_enter(comm, name)) != ceclSuccess) {
            while (next && next->comm == comm)
                next = next->next;
            take_out(group, comm);
        }
        launch = next;
    }
}

/* Leaves a communicator once its last launch is dropped. */
void cecl_group_leave(struct cecl_group *group)
{
    while (group->first) {
        struct cecl_launch *launch = group->first;
        ceclComm_t comm = launch->comm;
        group->first = launch->next;
        cecl_launch_drop(launch);
        if (!group->first || group->first->comm != comm)
            cecl_comm_leave(comm);
    }
    group->nlaunches = 0;
}

/* Checks everything that this rank can check by itself. */
static ceclResult_t check(struct cecl_group *group, struct cecl_launch *launch)
{
    CECL_TRY(cecl_comm_check(launch->comm));
    if (!launch->comm->net && cecl_group_first(group, launch->comm) == launch)
        CECL_TRY(cecl_settle_again(launch, launch->comm));
    return cecl_launch_check(launch);
}

/* Publishes the places of a launch. The group's collectives come before its messages, because all ranks
 * make the collectives, and wait for each other. */
static ceclResult_t tell(struct cecl_group *group, struct cecl_launch *launch)
{
    return launch->comm->net ? ceclSuccess : cecl_launch_tell(launch, group->nlaunches == 1);
}

static ceclResult_t prepare(struct cecl_group *group, struct cecl_launch *launch)
{
    return launch->comm->net ? ceclSuccess : cecl_launch_prepare(launch, &group->pending_ns);
}

/* Issues collectives before messages. All ranks have the same collectives in the group, but the sender and
 * the receiver of a message may have it in different groups. If messages came first, rank A could wait in a
 * message for rank B, while B waits in a collective for A. */
static ceclResult_t issue(struct cecl_group *group, struct cecl_launch *launch)
{
    (void)group;
    return launch->comm->net ? ceclSuccess
                             : cecl_launch_issue(launch, cecl_ops[CECL_OP_GROUP_END].name);
}

/* The group's failure, with a message for the ranks of `comm`. A message may have rank numbers, which are
 * valid only on the communicator of the failed call. So other communicators get a message which says that
 * the group failed elsewhere. */
static ceclResult_t failure_for(const struct cecl_group *group, ceclComm_t comm)
{
    if (group->failed == ceclSuccess || !group->failed_on || group->failed_on == comm)
        return cecl_fail_with(group->failed, group->words);
    return cecl_fail(group->failed, "its group failed on another communicator: %.440s",
                     group->words);
}

/* Compares this group with the peers' groups, on every communicator whose ranks compare calls. If this rank
 * refuses the group, the peers on those communicators are notified, because they wait for this rank. */
static ceclResult_t compare_parts(struct cecl_group *group, uint32_t *nparts)
{
    /* the description of a refused call may be incomplete */
    static const struct cecl_call refused = {.op = &cecl_ops[CECL_OP_GROUP_END]};
    char elsewhere[CECL_MESSAGE_BYTES];
    for (const struct cecl_launch *launch = group->first; launch; launch = launch->next) {
        if (launch->kind != CECL_LAUNCH_COLLECTIVES || !cecl_comm_is_checked(launch->comm))
            continue;
        struct cecl_check_part *part = &group->parts[(*nparts)++];
        *part = (struct cecl_check_part){.comm = launch->comm, .calls = &refused, .count = 1};
        if (group->failed == ceclSuccess) {
            part->calls = launch->calls;
            part->count = launch->ncalls;
        } else if (launch->comm != group->failed_on) {
            (void)!failure_for(group, launch->comm);
            cecl_keep_message(elsewhere);
            part->words = elsewhere;
        }
    }
    return cecl_check_parts(
        group->parts, *nparts,
        group->failed == ceclSuccess ? ceclSuccess : cecl_fail_with(group->failed, group->words));
}

/* If ranks agree on communicator A but not on communicator B, this rank does not make the calls on A
 * either. The peers on A rely on these calls, so A fails. There is one exception: if all ranks of A compare
 * calls on B, too, none of them makes the calls on A, so A does not fail. */
static void compare(struct cecl_group *group)
{
    uint32_t nparts = 0;
    const ceclResult_t result = compare_parts(group, &nparts);
    ceclComm_t refuses = NULL;
    for (uint32_t i = 0; i < nparts && !refuses; i++)
        refuses = group->parts[i].result != ceclSuccess ? group->parts[i].comm : NULL;
    (void)!remember(group, refuses, result);
    for (uint32_t i = 0; i < nparts && result != ceclSuccess; i++)
        for (struct cecl_launch *launch = group->first; launch; launch = launch->next)
            if (launch->comm == group->parts[i].comm && launch->kind == CECL_LAUNCH_COLLECTIVES)
                if (group->parts[i].result == ceclSuccess &&
                    !launch->comm->launcher->compares_alike)
                    cecl_launch_owe(launch);
}

/* Carries out a step for each launch, one after the other, until the group fails. */
static void for_each(struct cecl_group *group,
                     ceclResult_t (*step)(struct cecl_group *, struct cecl_launch *))
{
    for (struct cecl_launch *launch = group->first; launch && group->failed == ceclSuccess;
         launch = launch->next) {
        const ceclResult_t result = step(group, launch);
        if (result != ceclSuccess) /* decides what the failure means for the communicator */
            (void)!remember(group, launch->comm, cecl_launch_give_up(launch, result));
    }
}

/* Gives up all launches. Peers may know of all launches, of some launches, or of none. */
static ceclResult_t refuse(const struct cecl_group *group)
{
    for (struct cecl_launch *launch = group->first; launch; launch = launch->next)
        if (cecl_comm_check_handle(launch->comm) == ceclSuccess)
            (void)!cecl_launch_give_up(launch, failure_for(group, launch->comm));
    return cecl_fail_with(group->failed, group->words);
}

/* Makes the calls that NCCL carries, after all others. If those have failed meanwhile, so do the communicators of
 * these, because peers make their calls. */
static void run_by_nccl(struct cecl_group *group)
{
    if (group->failed == ceclSuccess) {
        (void)!remember(group, NULL, cecl_by_nccl_run(group->first));
        return;
    }
    for (struct cecl_launch *launch = group->first; launch; launch = launch->next)
        if (launch->comm->net)
            cecl_launch_owe(launch);
}

/* Everything that can be refused is checked before peers learn of a launch, and before anything is
 * enqueued. The places of all launches are published before any launch waits for its peers, because several
 * launches may belong to ranks of one communicator. */
ceclResult_t cecl_group_carry_out(struct cecl_group *group)
{
    for_each(group, check);
    compare(group);
    const bool is_refused = group->failed != ceclSuccess;
    for_each(group, tell);
    group->pending_ns = CECL_LAUNCH_PATIENCE;
    for_each(group, prepare);
    for_each(group, issue);
    if (!is_refused)
        run_by_nccl(group);
    return group->failed == ceclSuccess ? ceclSuccess : refuse(group);
}
