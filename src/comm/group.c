/* Groups: a thread's calls between ceclGroupStart and ceclGroupEnd. They are kept until the end,
 * and then carried out as one for each communicator. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/check.h"
#include "comm/collective.h"
#include "comm/joins.h"
#include "comm/memory.h"
#include "comm/pairs.h"
#include "comm/trace.h"
#include "comm/wishes.h"

/* A call that waits for the end of the group. */
struct entry {
    ceclComm_t comm;
    ceclStream_t stream;
    struct cecl_call call; /* its layout lies in the group's layouts, which may move, */
    size_t layout;         /* at this word */
    uint64_t changes;      /* the registry's `changes` when the buffers' windows were found */
};

/* A thread's group. Its memory is kept for the next group, until the thread ends. */
struct group {
    int depth;
    bool traced; /* at least one call is on a communicator with a trace */
    uint32_t count, room;
    struct entry *entries;
    /* [room] the calls of one communicator; while they are compared, those of all */
    struct cecl_call *calls;
    struct cecl_check_part *parts; /* [room] the communicators where ranks compare their calls */
    /* [room] the plan of each communicator, at the index of its first entry */
    struct cecl_bound **bound;
    uint64_t *layouts;             /* [layouts_room] words: layouts of calls whose blocks differ */
    size_t nlayouts, layouts_room; /* in words */
    struct cecl_joins joins;
    struct cecl_wishes wishes; /* allocations */
    ceclResult_t failed;       /* the result of the first call that was refused */
    char words[CECL_MESSAGE_BYTES];
};

static pthread_key_t key;

/* The group has ended, or its thread. */
static void clear(struct group *group)
{
    while (group->count > 0)
        cecl_call_let_go(&group->entries[--group->count].call);
}

static void drop(void *argument)
{
    struct group *group = argument;
    clear(group);
    free(group->entries);
    free(group->calls);
    free(group->parts);
    free(group->bound);
    free(group->layouts);
    free(group->joins.list);
    free(group->wishes.list);
    free(group);
}

/* Once in a process, unless it fails: then the next group tries again. */
static bool make_key(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool made;
    pthread_mutex_lock(&lock);
    made = made || pthread_key_create(&key, drop) == 0;
    const bool is_made = made;
    pthread_mutex_unlock(&lock);
    return is_made;
}

static struct group *current(void)
{
    /* a thread-local read is cheaper than pthread_getspecific, which is a function call */
    static _Thread_local struct group *mine;
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

static _Thread_local bool is_open;

bool cecl_group_is_open(void)
{
    return is_open;
}

/* Doubles the room of all four tables, or of none. */
static bool grow(struct group *group)
{
    const uint32_t room = group->room ? group->room * 2 : 64;
    struct entry *entries = realloc(group->entries, room * sizeof(*entries));
    if (entries)
        group->entries = entries;
    struct cecl_call *calls = realloc(group->calls, room * sizeof(*calls));
    if (calls)
        group->calls = calls;
    struct cecl_check_part *parts = realloc(group->parts, room * sizeof(*parts));
    if (parts)
        group->parts = parts;
    struct cecl_bound **bound = realloc(group->bound, room * sizeof(*bound));
    if (bound)
        group->bound = bound;
    if (!entries || !calls || !parts || !bound)
        return false;
    group->room = room;
    return true;
}

/* Requires one stream for each communicator, because its calls become one. */
static ceclResult_t check_stream(const struct group *group, ceclComm_t comm, ceclStream_t stream)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (group->entries[i].comm == comm)
            return group->entries[i].stream == stream
                       ? ceclSuccess
                       : cecl_fail(ceclInvalidUsage,
                                   "stream %p: calls of one group and communicator go to one "
                                   "stream; the first of them went to %p",
                                   (void *)stream, (void *)group->entries[i].stream);
    return ceclSuccess;
}

/* Makes room for so many more words of layouts. */
static bool layout_room(struct group *group, size_t words)
{
    if (group->nlayouts + words <= group->layouts_room)
        return true;
    const size_t room = 2 * (group->nlayouts + words);
    uint64_t *grown = realloc(group->layouts, room * sizeof(*grown));
    if (!grown)
        return false;
    group->layouts = grown;
    group->layouts_room = room;
    return true;
}

static ceclResult_t keep(struct group *group, ceclComm_t comm, const struct cecl_call *call,
                         ceclStream_t stream)
{
    if (group->count == CECL_GROUP_MAX)
        return cecl_fail(ceclInvalidUsage, "a group has %d calls at most; this is one more",
                         CECL_GROUP_MAX);
    if ((group->count == group->room && !grow(group)) || !layout_room(group, call->layout_words))
        return cecl_fail(ceclOutOfMemory, "no host memory for a group of %u calls",
                         group->count + 1);
    struct entry *entry = &group->entries[group->count++];
    *entry = (struct entry){.comm = comm,
                            .stream = stream,
                            .layout = group->nlayouts,
                            .changes = comm->registry.changes};
    /* where no call has a layout there is no array: nothing may be added to NULL, not even 0 */
    cecl_call_keep(&entry->call, call,
                   call->layout_words > 0 ? group->layouts + group->nlayouts : NULL);
    group->nlayouts += call->layout_words;
    return ceclSuccess;
}

/* Refuses the group with the result of the first call that was refused. */
static ceclResult_t remember(struct group *group, ceclResult_t result)
{
    if (result != ceclSuccess && group->failed == ceclSuccess) {
        group->failed = result;
        cecl_keep_message(group->words);
    }
    return result;
}

ceclResult_t cecl_group_add(ceclComm_t comm, const struct cecl_call *call, ceclStream_t stream,
                            ceclResult_t result)
{
    struct group *group = current();
    group->traced = group->traced || cecl_trace_of(comm);
    if (result == ceclSuccess)
        result = check_stream(group, comm, stream);
    if (result == ceclSuccess)
        result = keep(group, comm, call, stream);
    (void)!remember(group, result);
    if (result != ceclSuccess && !call->op->pair && cecl_comm_is_checked(comm)) {
        /* its peers will compare */
        char words[CECL_MESSAGE_BYTES];
        cecl_keep_message(words);
        (void)!keep(group, comm, call, stream);
        (void)!cecl_fail_with(result, words);
    }
    return result;
}

ceclResult_t cecl_group_allocate(ceclComm_t comm, void **ptr, size_t bytes)
{
    struct group *group = current();
    return remember(group, cecl_wishes_add(&group->wishes, comm, ptr, bytes));
}

ceclResult_t cecl_group_refuse(ceclResult_t result)
{
    return remember(current(), result);
}

ceclResult_t cecl_group_join(const struct cecl_join *join)
{
    struct group *group = current();
    ceclResult_t result = cecl_joins_add(&group->joins, join);
    if (result == ceclSuccess && join->local != ceclSuccess)
        result = cecl_fail_with(join->local, join->words);
    return remember(group, result);
}

/* The last call is looked at first: most groups have one communicator. */
bool cecl_group_has_calls(ceclComm_t comm)
{
    const struct group *group = is_open ? current() : NULL;
    for (uint32_t i = group ? group->count : 0; i > 0; i--)
        if (group->entries[i - 1].comm == comm)
            return true;
    return false;
}

uint32_t cecl_group_waiting(ceclComm_t comm)
{
    uint32_t waiting = 0;
    if (!is_open)
        return 0;
    const struct group *group = current();
    for (uint32_t i = 0; i < group->count; i++)
        waiting += group->entries[i].comm == comm;
    for (uint32_t i = 0; i < group->wishes.count; i++)
        waiting += group->wishes.list[i].comm == comm;
    return waiting;
}

static void forget_calls(struct group *group, ceclComm_t comm)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < group->count; i++)
        if (group->entries[i].comm != comm) /* their peers may learn that the group is refused */
            group->entries[kept++] = group->entries[i];
        else
            cecl_call_let_go(&group->entries[i].call);
    group->count = kept;
}

void cecl_group_forget(ceclComm_t comm)
{
    if (cecl_group_waiting(comm) == 0)
        return;
    struct group *group = current();
    cecl_fail(ceclInvalidUsage, "a communicator ended while calls of the group waited for "
                                "ceclGroupEnd: none of the group is carried out");
    (void)!remember(group, ceclInvalidUsage);
    forget_calls(group, comm);
    cecl_wishes_forget(&group->wishes, comm);
}

CECL_API ceclResult_t ceclGroupStart(void)
{
    struct group *group = current();
    if (!group)
        return cecl_fail(ceclOutOfMemory, "no host memory for a group");
    if (group->depth++ == 0) {
        group->nlayouts = 0;
        group->joins.count = 0;
        group->wishes.count = 0;
        group->traced = false;
        group->failed = ceclSuccess;
        is_open = true;
    }
    return ceclSuccess;
}

static bool is_first(const struct group *group, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (group->entries[i].comm == group->entries[index].comm)
            return false;
    return true;
}

/* A call of the group, with its layout where the layout lies now. */
static struct cecl_call call_at(const struct group *group, uint32_t index)
{
    struct cecl_call call = group->entries[index].call;
    if (call.layout_words > 0)
        call.view.layout = group->layouts + group->entries[index].layout;
    return call;
}

/* The calls of a communicator that all of its ranks make, or its messages. */
enum kind { COLLECTIVES, MESSAGES };

static bool is_of(const struct entry *entry, ceclComm_t comm, enum kind kind)
{
    return entry->comm == comm && (entry->call.op->pair != CECL_NO_PAIR) == (kind == MESSAGES);
}

/* Collects the calls of entry `first`'s communicator that are of a kind; calls without effect come
 * last. */
static uint32_t collect(const struct group *group, uint32_t first, enum kind kind,
                        struct cecl_call *calls)
{
    uint32_t count = 0;
    for (int empty = 0; empty < 2; empty++)
        for (uint32_t i = first; i < group->count; i++)
            if (is_of(&group->entries[i], group->entries[first].comm, kind) &&
                cecl_call_is_empty(&group->entries[i].call) == empty)
                calls[count++] = call_at(group, i);
    return count;
}

static bool has_any(const struct group *group, ceclComm_t comm, enum kind kind)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (is_of(&group->entries[i], comm, kind))
            return true;
    return false;
}

/* Where the call makes no use of recvbuff, its memory may be gone, which is no error. */
static bool peers_write(ceclComm_t comm, const struct cecl_call *call)
{
    return comm->nranks > 1 && !call->op->recv_anywhere && cecl_call_recv_needed(call) > 0;
}

/* Finds the windows of a call's buffers again, until a look at their memory changes nothing. */
static ceclResult_t find_again(struct group *group, uint32_t index)
{
    struct entry *entry = &group->entries[index];
    const struct cecl_windows *windows = &entry->comm->windows;
    const void *send = cecl_buffer_address(entry->call.send),
               *recv = cecl_buffer_address(entry->call.recv);
    const bool was_private = cecl_buffer_is_private(entry->call.recv);
    struct cecl_call call = call_at(group, index);
    bool changed = true;
    while (changed) {
        call.send = cecl_window_find(windows, send);
        call.recv = cecl_window_find(windows, recv);
        entry->changes = entry->comm->registry.changes;
        CECL_TRY(cecl_tell_settle(entry->comm, &call, &changed));
    }
    if (!was_private && cecl_buffer_is_private(call.recv) && /* it has no bounce buffer */
        peers_write(entry->comm, &call))
        return cecl_fail(ceclInvalidUsage,
                         "recvbuff %p: its memory was replaced within the group by memory that "
                         "peers cannot reach",
                         recv);
    cecl_call_hold(&call);
    cecl_call_let_go(&entry->call);
    entry->call.send = call.send;
    entry->call.recv = call.recv;
    return ceclSuccess;
}

/* If memory changes at every try, another thread of the program frees it. The check that follows
 * refuses such a call. */
#define TRIES 4

/* A window holds many pieces of memory, and a call looks only at those that it touches. So a later
 * call of the group may find a piece replaced and drop the window that an earlier call uses, too. The
 * earlier call's own pieces still exist: another window holds them now. */
static ceclResult_t settle_again(struct group *group, ceclComm_t comm)
{
    uint64_t changes = comm->registry.changes + 1;
    for (int i = 0; i < TRIES && comm->registry.changes != changes; i++) {
        changes = comm->registry.changes;
        for (uint32_t j = 0; j < group->count; j++)
            if (group->entries[j].comm == comm && group->entries[j].changes != changes)
                CECL_TRY(find_again(group, j));
    }
    return ceclSuccess;
}

/* Buffers of messages may overlap: NCCL takes groups that repeat a message, and cannot refuse them on
 * the sender, which does not know. */
static ceclResult_t check_messages(struct group *group, uint32_t first)
{
    const struct entry *entry = &group->entries[first];
    const uint32_t count = collect(group, first, MESSAGES, group->calls);
    return count > 0 ? cecl_pairs_check(entry->comm, group->calls, count, entry->stream)
                     : ceclSuccess;
}

/* What this rank can find out by itself. */
static ceclResult_t check(struct group *group, uint32_t first)
{
    const struct entry *entry = &group->entries[first];
    CECL_TRY(cecl_comm_check(entry->comm));
    CECL_TRY(settle_again(group, entry->comm));
    CECL_TRY(check_messages(group, first));
    const uint32_t count = collect(group, first, COLLECTIVES, group->calls);
    return count > 0 ? cecl_calls_check(entry->comm, group->calls, count, entry->stream)
                     : ceclSuccess;
}

/* Compares the group with the peers', on all communicators where ranks compare their calls. They also
 * hear that the group is refused here: they wait for this rank. */
static ceclResult_t compare(struct group *group)
{
    static const struct cecl_call refused = {.op = &cecl_ops[CECL_OP_GROUP_END]};
    struct cecl_call *calls = group->calls;
    uint32_t nparts = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        ceclComm_t comm = group->entries[i].comm;
        if (!cecl_comm_is_checked(comm) || !is_first(group, i) ||
            !has_any(group, comm, COLLECTIVES))
            continue;
        struct cecl_check_part *part = &group->parts[nparts++];
        *part = (struct cecl_check_part){.comm = comm, .calls = &refused, .count = 1};
        if (group->failed != ceclSuccess) /* what was refused may be described in part */
            continue;
        part->calls = calls;
        part->count = collect(group, i, COLLECTIVES, calls);
        calls += part->count;
    }
    const ceclResult_t local =
        group->failed == ceclSuccess ? ceclSuccess : cecl_fail_with(group->failed, group->words);
    return cecl_check_parts(group->parts, nparts, local);
}

/* The collectives' peers learn first: all ranks make them, and wait for each other. */
static ceclResult_t tell(struct group *group, uint32_t first)
{
    ceclComm_t comm = group->entries[first].comm;
    uint32_t count = collect(group, first, COLLECTIVES, group->calls);
    if (count > 0)
        CECL_TRY(cecl_calls_tell(comm, group->calls, count));
    count = collect(group, first, MESSAGES, group->calls);
    const bool is_all = count == group->count;
    return count > 0 ? cecl_pairs_post(comm, group->calls, count, is_all) : ceclSuccess;
}

static ceclResult_t plan(struct group *group, uint32_t first)
{
    const uint32_t count = collect(group, first, COLLECTIVES, group->calls);
    return count > 0 ? cecl_calls_plan(group->entries[first].comm, group->calls, count,
                                       &group->bound[first])
                     : ceclSuccess;
}

/* Enqueues the calls of entry `first`'s communicator: collectives first. Ranks need not have the same
 * messages in the group, but all of them have the same collectives. A rank that received a message in
 * a later group, behind the collectives, would otherwise wait for a sender that waits for it. */
static ceclResult_t issue(struct group *group, uint32_t first)
{
    const struct entry *entry = &group->entries[first];
    if (group->bound[first] || entry->comm->pairs.owes)
        cecl_comm_called(entry->comm, cecl_ops[CECL_OP_GROUP_END].name);
    if (group->bound[first])
        CECL_TRY(cecl_calls_issue(entry->comm, group->bound[first], entry->stream));
    return entry->comm->pairs.owes ? cecl_pairs_issue(entry->comm, entry->stream) : ceclSuccess;
}

/* Peers were told of a part of the group, or of nothing. */
static ceclResult_t refuse(const struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (cecl_comm_check_handle(group->entries[i].comm) == ceclSuccess) {
            (void)!cecl_tell_break(group->entries[i].comm,
                                   cecl_fail_with(group->failed, group->words));
            (void)!cecl_pairs_break(group->entries[i].comm,
                                    cecl_fail_with(group->failed, group->words));
            cecl_carry_reset(group->entries[i].comm);
        }
    return cecl_fail_with(group->failed, group->words);
}

/* Does something for the calls of each communicator, one after the other, until the group fails. */
static void for_each_comm(struct group *group, ceclResult_t (*step)(struct group *, uint32_t first))
{
    for (uint32_t i = 0; i < group->count && group->failed == ceclSuccess; i++)
        if (is_first(group, i))
            (void)!remember(group, step(group, i));
}

/* All that can be refused comes before peers are told, and before anything is enqueued. All
 * communicators tell before one of them waits for its peers, because they may be ranks of one
 * communicator. A group that has failed before only lets its peers know. */
static ceclResult_t carry_out(struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        group->bound[i] = NULL;
    for_each_comm(group, check);
    (void)!remember(group, compare(group));
    for_each_comm(group, tell);
    for_each_comm(group, plan);
    for_each_comm(group, issue);
    return group->failed == ceclSuccess ? ceclSuccess : refuse(group);
}

/* Joins come first, then allocations, then calls. A failure ends the group, but peers of the joins
 * and of the calls learn of it. */
static ceclResult_t end(struct group *group)
{
    (void)!remember(group, cecl_joins_carry_out(&group->joins, group->failed, group->words));
    if (group->failed == ceclSuccess)
        (void)!remember(group, cecl_wishes_carry_out(&group->wishes));
    return carry_out(group);
}

/* Ends the trace of all calls of entry `first`'s communicator, as one event. */
static void trace_end(const struct group *group, uint32_t first, const struct cecl_traced *call,
                      ceclResult_t result)
{
    const struct entry *entry = &group->entries[first];
    const bool has_messages = result == ceclSuccess && has_any(group, entry->comm, MESSAGES);
    uint64_t send_bytes = 0, recv_bytes = 0;
    /* A call of a refused group may be described in part. */
    for (uint32_t i = first; i < group->count && result == ceclSuccess; i++)
        if (group->entries[i].comm == entry->comm) {
            const struct cecl_call each = call_at(group, i);
            uint64_t sent, received;
            cecl_call_sizes(&each, &sent, &received);
            send_bytes += sent;
            recv_bytes += received;
        }
    cecl_trace_end(call, send_bytes, recv_bytes,
                   result != ceclSuccess                  ? "refused"
                   : has_messages && !group->bound[first] ? entry->comm->pairs.path
                                                          : cecl_bound_path(group->bound[first]),
                   result);
}

/* Writes one event for each communicator, with the time of all its calls. */
static ceclResult_t end_traced(struct group *group)
{
    struct cecl_traced call = {0};
    for (uint32_t i = 0; i < group->count; i++) {
        const struct cecl_traced begun =
            is_first(group, i)
                ? cecl_trace_begin(group->entries[i].comm, cecl_ops[CECL_OP_GROUP_END].name)
                : (struct cecl_traced){0};
        if (begun.trace)
            call = begun;
    }
    const ceclResult_t result = end(group);
    for (uint32_t i = 0; i < group->count; i++)
        if (is_first(group, i)) {
            call.trace = cecl_trace_of(group->entries[i].comm);
            trace_end(group, i, &call, result);
        }
    return result;
}

/* Enters the communicators of the group's calls. If another thread is inside one of them, the group
 * is refused, and that communicator's calls are dropped from it. */
static void enter_all(struct group *group)
{
    for (uint32_t i = 0; i < group->count;) {
        ceclComm_t comm = group->entries[i].comm;
        if (is_first(group, i) &&
            remember(group, cecl_comm_enter(comm, cecl_ops[CECL_OP_GROUP_END].name)) != ceclSuccess)
            forget_calls(group, comm);
        else
            i++;
    }
}

static void leave_all(const struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++)
        if (is_first(group, i))
            cecl_comm_leave(group->entries[i].comm);
}

CECL_API ceclResult_t ceclGroupEnd(void)
{
    if (!is_open)
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart came before in this thread");
    struct group *group = current();
    if (--group->depth > 0)
        return ceclSuccess;
    is_open = false;
    enter_all(group);
    const ceclResult_t result = group->traced ? end_traced(group) : end(group);
    leave_all(group);
    clear(group);
    return result;
}

/* Requires that the group has calls alone, and all of them on this communicator. */
static ceclResult_t check_explained(const struct group *group, ceclComm_t comm,
                                    const ceclExplanation_t *explanation)
{
    CECL_TRY(cecl_comm_check(comm));
    if (!explanation)
        return cecl_fail(ceclInvalidArgument, "explanation: NULL");
    if (group->failed != ceclSuccess)
        return cecl_fail_with(group->failed, group->words);
    for (uint32_t i = 0; i < group->count; i++)
        if (group->entries[i].comm != comm)
            return cecl_fail(ceclInvalidUsage,
                             "call %u of the group is on another communicator than the one that is "
                             "asked",
                             i);
    if (group->wishes.count > 0 || group->joins.count > 0)
        return cecl_fail(ceclInvalidUsage,
                         "a %s is in the group: ceclGroupExplain explains collective calls alone",
                         group->joins.count > 0 ? "ceclCommInitRank" : "ceclMemAlloc");
    return ceclSuccess;
}

static ceclResult_t explain_calls(struct group *group, ceclComm_t comm,
                                  ceclExplanation_t *explanation)
{
    CECL_TRY(settle_again(group, comm));
    uint32_t count = group->count > 0 ? collect(group, 0, COLLECTIVES, group->calls) : 0;
    const bool has_messages = has_any(group, comm, MESSAGES);
    *explanation = (ceclExplanation_t){.zeroSm = 1};
    if (count > 0 || !has_messages)
        CECL_TRY(cecl_calls_explain(comm, group->calls, count, explanation));
    if (!has_messages)
        return ceclSuccess;
    count = collect(group, 0, MESSAGES, group->calls);
    return cecl_pairs_explain(comm, group->calls, count, explanation);
}

static ceclResult_t explain(struct group *group, ceclComm_t comm, ceclExplanation_t *explanation)
{
    CECL_TRY(check_explained(group, comm, explanation));
    CECL_TRY(cecl_comm_enter(comm, "ceclGroupExplain"));
    const ceclResult_t result = explain_calls(group, comm, explanation);
    cecl_comm_leave(comm);
    return result;
}

CECL_API ceclResult_t ceclGroupExplain(ceclComm_t comm, ceclExplanation_t *explanation)
{
    if (!is_open)
        return cecl_fail(ceclInvalidUsage, "no ceclGroupStart came before in this thread");
    struct group *group = current();
    if (--group->depth > 0) {
        const ceclResult_t result =
            cecl_fail(ceclInvalidUsage, "a group inside another is not carried out by itself");
        if (group->failed == ceclSuccess) { /* calls that were only explained must not be made */
            group->failed = result;
            cecl_keep_message(group->words);
        }
        return result;
    }
    is_open = false;
    const ceclResult_t result = explain(group, comm, explanation);
    clear(group);
    return result;
}
