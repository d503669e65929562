/* See group.h. A turn is a cecl group. Most NCCL groups are carried out in one turn. Calls that cecl
 * refuses to have in one group go into consecutive turns. Sends and receives have their own turns after
 * all others, because ranks need not have the same ones in their groups. Before these come the passed
 * collectives and the passed messages, each in an NCCL group. NCCL orders only the streams of its own group's
 * calls, so a turn also waits for the streams of the group's other calls, and they wait for the turn. */
#include "nccl/group.h"

#include <stdlib.h>

#include "nccl/agree.h"
#include "nccl/comms.h"
#include "nccl/depth.h"
#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/passed.h"
#include "nccl/serve.h"
#include "util/grow.h"
#include "util/log.h"
#include "util/thread.h"

#define FIRST_MESSAGE_TURN (1 << 24)
#define PASSED_MESSAGES (FIRST_MESSAGE_TURN - 1) /* the turn of the passed messages */
#define PASSED_COLLECTIVES (PASSED_MESSAGES - 1) /* the turn of the passed collectives */

struct kept {
    struct cecl_nccl_call call;
    int number; /* how many calls were kept before */
    int turn;   /* PASSED_..., or: collectives from 0 on, messages from FIRST_MESSAGE_TURN on */
    /* how many earlier calls of the turn are on the same communicator; for a message, how many are between
     * the same ranks in the same direction */
    int nth;
    /* -- while its turn is carried out -- */
    struct cecl_nccl_comm *comm; /* NULL: it was aborted, so the call is dropped */
};

static _Thread_local struct {
    struct kept *kept;
    int count, room;
    int last_turn; /* the last turn of the kept calls */
    int served;    /* how many kept calls are not passed */
    bool unsorted; /* a call was kept after a call of a later turn */
    /* communicator of the last call that went into NCCL's group; NULL: there was none */
    ncclComm_t passed;
    ncclResult_t refusal; /* the result of the first refused call */
} group;

/* Whether both calls are messages between the same ranks in the same direction. */
static bool is_of_one_pair(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->comm == b->comm && a->op == b->op && a->root == b->root;
}

static bool is_passed(const struct kept *kept)
{
    return kept->turn == PASSED_MESSAGES || kept->turn == PASSED_COLLECTIVES;
}

/* Whether the turn of a served call depends on this kept call. */
static bool is_counted(const struct kept *kept, const struct cecl_nccl_call *call)
{
    if (is_passed(kept))
        return false;
    if (cecl_nccl_is_message(call->op))
        return is_of_one_pair(&kept->call, call);
    return !cecl_nccl_is_message(kept->call.op) && kept->call.comm == call->comm;
}

/* The last kept call, searching backwards from `index`, on which the turn of `call` depends; -1: there is
 * none. */
static int last_of(const struct cecl_nccl_call *call, int index)
{
    while (index >= 0 && !is_counted(&group.kept[index], call))
        index--;
    return index;
}

static bool have_one_result(const struct cecl_nccl_call *a, const struct cecl_nccl_call *b)
{
    return a->recvbuff == b->recvbuff && cecl_nccl_has_result_on_all(a->op) &&
           cecl_nccl_has_result_on_all(b->op);
}

/* The most calls of this kind in a turn; an NCCL group may have any number. Ranks divide calls into turns
 * alike, because calls are counted separately for each communicator, and messages for each pair of ranks. */
static int most_at_once(const struct cecl_nccl_call *call)
{
    const struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    return !comm                            ? 1 /* it was aborted */
           : cecl_nccl_is_message(call->op) ? comm->limits.groupMessages
                                            : comm->limits.groupCalls;
}

/* Whether `call` does not fit into the turn of the kept call `last`. cecl refuses a group that writes
 * twice to the same memory. NCCL accepts such a group, and benchmarks repeat a call in one group. Ranks
 * must decide alike, so a call does not fit only if its recvbuff is equal to another's, and only if both
 * calls use recvbuff on all ranks. */
static bool is_full(int last, const struct cecl_nccl_call *call)
{
    if (group.kept[last].nth + 1 >= most_at_once(call))
        return true;
    if (cecl_nccl_is_message(call->op))
        return false;
    while (group.kept[last].nth > 0 && !have_one_result(&group.kept[last].call, call))
        last = last_of(call, last - 1);
    return have_one_result(&group.kept[last].call, call);
}

/* Warns that a group's messages are divided into turns, while NCCL makes all messages of a group at the
 * same time. */
static void warn_of_turns(const struct cecl_nccl_call *call)
{
    static _Atomic bool has_warned;
    if (!atomic_exchange(&has_warned, true))
        cecl_log(
            CECL_LOG_WARN, -1,
            "a group has more than %d calls of %s with rank %d: %d of them are carried out at a "
            "time. A peer that waits for a later one before it takes part in an earlier one waits "
            "forever",
            most_at_once(call), cecl_nccl_op_names[call->op], call->root, most_at_once(call));
}

static struct kept place_served(const struct cecl_nccl_call *call)
{
    struct kept kept = {.call = *call,
                        .number = group.count,
                        .turn = cecl_nccl_is_message(call->op) ? FIRST_MESSAGE_TURN : 0};
    const int last = last_of(call, group.count - 1);
    if (last >= 0 && is_full(last, call)) {
        kept.turn = group.kept[last].turn + 1;
        if (cecl_nccl_is_message(call->op))
            warn_of_turns(call);
    } else if (last >= 0) {
        kept.turn = group.kept[last].turn;
        kept.nth = group.kept[last].nth + 1;
    }
    return kept;
}

ncclResult_t cecl_nccl_group_refuse(ncclResult_t result)
{
    if (cecl_nccl_group_depth() > 0 && group.refusal == ceclSuccess)
        group.refusal = result;
    return result;
}

ncclResult_t cecl_nccl_group_keep(const struct cecl_nccl_call *call, bool is_served)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    if (group.count == 0)
        cecl_thread_at_end(&end, cecl_nccl_group_forget);
    if (!CECL_HAS_ROOM(group.kept, group.count, group.room))
        return cecl_nccl_group_refuse(ceclSystemError);
    const int turn = cecl_nccl_is_message(call->op) ? PASSED_MESSAGES : PASSED_COLLECTIVES;
    const struct kept passed = {.call = *call, .number = group.count, .turn = turn},
                      kept = is_served ? place_served(call) : passed;
    group.unsorted = group.unsorted || kept.turn < group.last_turn;
    group.last_turn = kept.turn > group.last_turn ? kept.turn : group.last_turn;
    group.served += is_served;
    group.kept[group.count++] = kept;
    return ceclSuccess;
}

void cecl_nccl_group_forget(void)
{
    free(group.kept);
    group.kept = NULL;
    group.count = group.room = group.last_turn = group.served = 0;
    group.unsorted = false;
    group.passed = NULL;
    group.refusal = ceclSuccess;
}

/* ---- the part of a group that NCCL carries out */

void cecl_nccl_group_passed(ncclComm_t comm)
{
    group.passed = comm;
}

ncclResult_t cecl_nccl_group_refused(void)
{
    return group.refusal;
}

/* Puts the first `count` kept calls into NCCL's open group. */
static ncclResult_t pass_calls(const struct kept *kept, int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++) {
        group.passed = kept[i].call.comm;
        result = cecl_nccl_pass_ordered(&kept[i].call, cecl_nccl_comm_find(group.passed), false);
    }
    return result;
}

/* If no call is served, all go into NCCL's group as they would without cecl. */
ncclResult_t cecl_nccl_group_pass(void)
{
    if (group.served > 0 || group.refusal != ceclSuccess)
        return ceclSuccess;
    const ncclResult_t result = pass_calls(group.kept, group.count);
    group.count = 0;
    return result;
}

ncclResult_t cecl_nccl_group_pass_all(void)
{
    return pass_calls(group.kept, group.count);
}

/* Asks only one communicator, because NCCL completes a group on all of its communicators at once. */
void cecl_nccl_group_await_passed(void)
{
    while (group.count > 0 && group.passed &&
           !cecl_nccl_is_enqueued(group.passed, cecl_nccl_comm_find(group.passed)))
        cecl_nccl_pause_us(20);
}

/* ---- one turn: `count` calls from `kept` on */

/* The first call of the turn that is on the same communicator as call `index`: that call itself, if there is no
 * earlier one. */
static const struct kept *first_of(const struct kept *kept, int index)
{
    int first = 0;
    while (kept[first].call.comm != kept[index].call.comm)
        first++;
    return &kept[first];
}

/* Enters each call's communicator, so that no other thread can end it before `leave`. */
static void enter(struct kept *kept, int count)
{
    for (int i = 0; i < count; i++) {
        const ncclComm_t of = kept[i].call.comm;
        struct cecl_nccl_comm *comm = cecl_nccl_comm_find(of);
        kept[i].comm = comm && cecl_nccl_comm_enter(comm, of, CECL_NCCL_MADE) ? comm : NULL;
    }
}

/* Calls are counted here, and not when they are kept, because a single rank may end its group by
 * ncclGroupSimulateEnd. */
static void note_calls(const struct kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm && !kept[i].call.is_captured && !cecl_nccl_is_message(kept[i].call.op))
            cecl_nccl_agree_note_calls(kept[i].comm, 1);
}

static void leave(const struct kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            cecl_nccl_comm_leave(kept[i].comm);
}

/* Whether `index` is the first kept call of the group with its communicator and stream. */
static bool has_new_stream(int index)
{
    const struct cecl_nccl_call *call = &group.kept[index].call;
    int first = 0;
    while (group.kept[first].call.comm != call->comm ||
           group.kept[first].call.stream != call->stream)
        first++;
    return first == index;
}

/* Orders the stream `common` before or after all other streams of the group's kept calls on one
 * communicator. */
static ceclResult_t order_with_all(const struct cecl_nccl_comm *comm, ncclComm_t of,
                                   cudaStream_t common, bool before)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < group.count && result == ceclSuccess; i++) {
        const struct cecl_nccl_call *call = &group.kept[i].call;
        if (call->comm == of && call->stream != common && has_new_stream(i))
            result = cecl_nccl_gpu_order(comm->ordinal, before ? call->stream : common,
                                         before ? common : call->stream);
    }
    return result;
}

/* With NCCL the calls of a group on one communicator may be on several streams, which then wait for each
 * other. A cecl group has one stream for each communicator: that of the turn's first call. Before the turn
 * this stream waits for the streams of all kept calls, and after the turn they wait for it. */
static ceclResult_t order_streams(const struct kept *kept, int count, bool before)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && kept[i].comm->ordinal >= 0 && first_of(kept, i) == &kept[i])
            result = order_with_all(kept[i].comm, kept[i].call.comm, kept[i].call.stream, before);
    return result;
}

/* Ignores errors of calls: ceclGroupEnd returns them. */
static ceclResult_t enqueue(const struct kept *kept, int count)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    CECL_TRY(cecl->ceclGroupStart());
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            (void)!cecl_nccl_serve_enqueue(&kept[i].call, kept[i].comm,
                                           first_of(kept, i)->call.stream);
    return cecl->ceclGroupEnd();
}

static ceclResult_t complete(const struct kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && first_of(kept, i) == &kept[i] && !kept[i].call.is_captured)
            result = cecl_nccl_serve_complete(kept[i].comm);
    return result;
}

/* The communicator on which a turn's error is reported: the first one that was not aborted. NULL: all were
 * aborted. */
static struct cecl_nccl_comm *any_comm(const struct kept *kept, int count)
{
    struct cecl_nccl_comm *comm = NULL;
    for (int i = 0; i < count && !comm; i++)
        comm = kept[i].comm;
    return comm;
}

static ncclResult_t serve_turn(struct kept *kept, int count)
{
    enter(kept, count);
    note_calls(kept, count);
    ceclResult_t result = order_streams(kept, count, true);
    if (result == ceclSuccess)
        result = enqueue(kept, count);
    if (result == ceclSuccess)
        result = order_streams(kept, count, false);
    if (result == ceclSuccess)
        result = complete(kept, count);
    const ncclResult_t number = cecl_nccl_comm_result(any_comm(kept, count), result);
    leave(kept, count);
    return number;
}

/* A single call is made without a cecl group, because a small call is faster that way. */
static ncclResult_t serve_one(struct kept *kept)
{
    enter(kept, 1);
    if (!kept->comm)
        return ceclSuccess;
    note_calls(kept, 1);
    const ncclResult_t result =
        cecl_nccl_comm_result(kept->comm, cecl_nccl_serve(&kept->call, kept->comm));
    leave(kept, 1);
    return result;
}

/* Carries out the calls in a second NCCL group, after the one that the program has ended. As with NCCL,
 * the group's end returns an error of a call. */
static ncclResult_t pass_in_a_group(const struct kept *kept, int count)
{
    ncclResult_t result = cecl_nccl_pass_ncclGroupStart();
    if (result != ceclSuccess)
        return result;
    result = pass_calls(kept, count);
    const ncclResult_t ended = cecl_nccl_pass_ended(cecl_nccl_pass_ncclGroupEnd());
    return result == ceclSuccess ? ended : result;
}

static ncclResult_t order_passed(struct kept *kept, int count, bool before)
{
    enter(kept, count);
    const ceclResult_t result = order_streams(kept, count, before);
    const ncclResult_t number = cecl_nccl_comm_result(any_comm(kept, count), result);
    leave(kept, count);
    return number;
}

static bool has_several_streams(void)
{
    int i = 0;
    while (i < group.count && group.kept[i].call.stream == first_of(group.kept, i)->call.stream)
        i++;
    return i < group.count;
}

/* A turn of passed calls. The thread is not inside an entry while it calls NCCL, because an abort, which must
 * end NCCL's call, first waits until no thread is inside. */
static ncclResult_t pass_turn(struct kept *kept, int count)
{
    const bool is_last = kept + count == group.kept + group.count;
    ncclResult_t result = order_passed(kept, count, true);
    if (result != ceclSuccess)
        return result;
    result = pass_in_a_group(kept, count);
    if (result == ceclInProgress && (!is_last || has_several_streams()))
        cecl_nccl_group_await_passed();
    if (result != ceclSuccess && result != ceclInProgress)
        return result;
    const ncclResult_t ordered = order_passed(kept, count, false);
    return ordered == ceclSuccess ? result : ordered;
}

static int by_turn(const void *left, const void *right)
{
    const struct kept *a = left, *b = right;
    return a->turn != b->turn ? a->turn - b->turn : a->number - b->number;
}

/* The number of calls in the first call's turn. Calls are sorted by turn. */
static int length_of_turn(const struct kept *kept, int count)
{
    int length = 0;
    while (length < count && kept[length].turn == kept->turn)
        length++;
    return length;
}

ncclResult_t cecl_nccl_group_serve(void)
{
    ncclResult_t result = ceclSuccess;
    bool is_in_progress = false;
    if (group.count == 1)
        result = serve_one(group.kept);
    else if (group.unsorted)
        qsort(group.kept, (size_t)group.count, sizeof(*group.kept), by_turn);
    for (int i = 0; group.count > 1 && i < group.count && result == ceclSuccess;) {
        struct kept *kept = group.kept + i;
        const int length = length_of_turn(kept, group.count - i);
        i += length;
        result = is_passed(kept) ? pass_turn(kept, length) : serve_turn(kept, length);
        if (result == ceclInProgress) {
            is_in_progress = true;
            result = ceclSuccess;
        }
    }
    cecl_nccl_group_forget();
    return result == ceclSuccess && is_in_progress ? ceclInProgress : result;
}
