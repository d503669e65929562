/* Carries out the turns of a group: `count` calls from `kept` on; see group.c. */
#include <stdlib.h>

#include "nccl/agree.h"
#include "nccl/gpu.h"
#include "nccl/group.h"
#include "nccl/kept.h"
#include "nccl/library.h"
#include "nccl/passed.h"
#include "nccl/serve.h"

/* The first call of the turn that is on the same communicator as call `index`: that call itself, if there is no
 * earlier one. */
static const struct cecl_nccl_kept *first_of(const struct cecl_nccl_kept *kept, int index)
{
    int first = 0;
    while (kept[first].call.comm != kept[index].call.comm)
        first++;
    return &kept[first];
}

/* Enters each call's communicator, so that no other thread can end it before `leave`. */
static void enter(struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0; i < count; i++) {
        const ncclComm_t of = kept[i].call.comm;
        struct cecl_nccl_comm *comm = cecl_nccl_comm_find(of);
        kept[i].comm = comm && cecl_nccl_comm_enter(comm, of, CECL_NCCL_MADE) ? comm : NULL;
    }
}

/* Calls are counted here, and not when they are kept, because a single rank may end its group by
 * ncclGroupSimulateEnd. */
static void note_calls(const struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm && !kept[i].call.is_captured && !cecl_nccl_is_message(kept[i].call.op))
            cecl_nccl_agree_note_calls(kept[i].comm, 1);
}

static void leave(const struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            cecl_nccl_comm_leave(kept[i].comm);
}

/* Whether `index` is the first kept call of the group with its communicator and stream. */
static bool has_new_stream(int index)
{
    const struct cecl_nccl_kept *kept = cecl_nccl_group_mine()->kept;
    const struct cecl_nccl_call *call = &kept[index].call;
    int first = 0;
    while (kept[first].call.comm != call->comm || kept[first].call.stream != call->stream)
        first++;
    return first == index;
}

/* Orders the stream `common` before or after all other streams of the group's kept calls on one
 * communicator. */
static ceclResult_t order_with_all(const struct cecl_nccl_comm *comm, ncclComm_t of,
                                   cudaStream_t common, bool before)
{
    const struct cecl_nccl_group *group = cecl_nccl_group_mine();
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < group->count && result == ceclSuccess; i++) {
        const struct cecl_nccl_call *call = &group->kept[i].call;
        if (call->comm == of && call->stream != common && has_new_stream(i))
            result = cecl_nccl_gpu_order(comm->ordinal, before ? call->stream : common,
                                         before ? common : call->stream);
    }
    return result;
}

/* With NCCL the calls of a group on one communicator may be on several streams, which then wait for each
 * other. A cecl group has one stream for each communicator: that of the turn's first call. Before the turn
 * this stream waits for the streams of all kept calls, and after the turn they wait for it. */
static ceclResult_t order_streams(const struct cecl_nccl_kept *kept, int count, bool before)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && kept[i].comm->ordinal >= 0 && first_of(kept, i) == &kept[i])
            result = order_with_all(kept[i].comm, kept[i].call.comm, kept[i].call.stream, before);
    return result;
}

/* Ignores errors of calls: ceclGroupEnd returns them. */
static ceclResult_t enqueue(const struct cecl_nccl_kept *kept, int count)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    CECL_TRY(cecl->ceclGroupStart());
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            (void)!cecl_nccl_serve_enqueue(&kept[i].call, kept[i].comm,
                                           first_of(kept, i)->call.stream);
    return cecl->ceclGroupEnd();
}

static ceclResult_t complete(const struct cecl_nccl_kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && first_of(kept, i) == &kept[i] && !kept[i].call.is_captured)
            result = cecl_nccl_serve_complete(kept[i].comm);
    return result;
}

/* The communicator on which a turn's error is reported: the first one that was not aborted. NULL: all were
 * aborted. */
static struct cecl_nccl_comm *any_comm(const struct cecl_nccl_kept *kept, int count)
{
    struct cecl_nccl_comm *comm = NULL;
    for (int i = 0; i < count && !comm; i++)
        comm = kept[i].comm;
    return comm;
}

static ncclResult_t serve_turn(struct cecl_nccl_kept *kept, int count)
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

static ncclResult_t serve_one(struct cecl_nccl_kept *kept)
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
static ncclResult_t pass_in_a_group(const struct cecl_nccl_kept *kept, int count)
{
    ncclResult_t result = cecl_nccl_pass_ncclGroupStart();
    if (result != ceclSuccess)
        return result;
    result = cecl_nccl_group_pass_calls(kept, count);
    const ncclResult_t ended = cecl_nccl_pass_ncclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

static ncclResult_t order_passed(struct cecl_nccl_kept *kept, int count, bool before)
{
    enter(kept, count);
    const ceclResult_t result = order_streams(kept, count, before);
    const ncclResult_t number = cecl_nccl_comm_result(any_comm(kept, count), result);
    leave(kept, count);
    return number;
}

static bool has_several_streams(void)
{
    const struct cecl_nccl_group *group = cecl_nccl_group_mine();
    int i = 0;
    while (i < group->count && group->kept[i].call.stream == first_of(group->kept, i)->call.stream)
        i++;
    return i < group->count;
}

/* A turn of passed calls. The thread is not inside an entry while it calls NCCL, because an abort, which must
 * end NCCL's call, first waits until no thread is inside. */
static ncclResult_t pass_turn(struct cecl_nccl_kept *kept, int count)
{
    const struct cecl_nccl_group *group = cecl_nccl_group_mine();
    const bool is_last = kept + count == group->kept + group->count;
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
    const struct cecl_nccl_kept *a = left, *b = right;
    return a->turn != b->turn ? a->turn - b->turn : a->number - b->number;
}

/* The number of calls in the first call's turn. Calls are sorted by turn. */
static int length_of_turn(const struct cecl_nccl_kept *kept, int count)
{
    int length = 0;
    while (length < count && kept[length].turn == kept->turn)
        length++;
    return length;
}

/* ---- all turns */

/* A single call is made without a cecl group, because a small call is faster that way. */
static ncclResult_t carry_out(struct cecl_nccl_kept *kept, int count)
{
    if (cecl_nccl_turn_is_passed(kept->turn))
        return pass_turn(kept, count);
    return cecl_nccl_group_mine()->count == 1 ? serve_one(kept) : serve_turn(kept, count);
}

ncclResult_t cecl_nccl_group_serve(void)
{
    const struct cecl_nccl_group *group = cecl_nccl_group_mine();
    ncclResult_t result = ceclSuccess;
    bool is_in_progress = false;
    if (group->unsorted)
        qsort(group->kept, (size_t)group->count, sizeof(*group->kept), by_turn);
    for (int i = 0; i < group->count && result == ceclSuccess;) {
        struct cecl_nccl_kept *kept = group->kept + i;
        const int length = length_of_turn(kept, group->count - i);
        i += length;
        result = carry_out(kept, length);
        if (result == ceclInProgress) {
            is_in_progress = true;
            result = ceclSuccess;
        }
    }
    result = result == ceclSuccess ? group->refusal : result;
    cecl_nccl_group_forget();
    return result == ceclSuccess && is_in_progress ? ceclInProgress : result;
}
