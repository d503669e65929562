/* Carries out the stages of a group; see group.c. `kept` and `count` are a stage's calls. */
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/gpu.h"
#include "nccl/group.h"
#include "nccl/library.h"
#include "nccl/serve.h"

/* The stage's first call on the same communicator as call `index`, or call `index` itself. */
static const struct cecl_nccl_kept *first_of(const struct cecl_nccl_kept *kept, int index)
{
    int first = 0;
    while (kept[first].call.comm != kept[index].call.comm)
        first++;
    return &kept[first];
}

/* Enters each call's communicator, so that no other thread can end it before `leave_all`. */
static void enter_all(struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        kept[i].comm = cecl_nccl_comm_enter_made(kept[i].call.comm);
}

/* Counts calls for agreements (captured.h). Counts them only now, because ncclGroupSimulateEnd may drop kept calls on a
 * single rank. */
static void note_calls(const struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            cecl_nccl_note_served(kept[i].comm, &kept[i].call);
}

/* Returns the stage's result. An error counts as one of the first communicator that was not aborted. */
static ncclResult_t leave_all(const struct cecl_nccl_kept *kept, int count, ceclResult_t result)
{
    struct cecl_nccl_comm *comm = NULL;
    for (int i = 0; i < count && !comm; i++)
        comm = kept[i].comm;
    const ncclResult_t number = cecl_nccl_comm_result(comm, result);
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            cecl_nccl_comm_leave(kept[i].comm);
    return number;
}

/* Whether `index` is the first kept call of the group with its communicator and stream. */
static bool has_new_stream(const struct cecl_nccl_group *group, int index)
{
    const struct cecl_nccl_call *call = &group->kept[index].call;
    const struct cecl_nccl_kept *first = group->kept;
    while (first->call.comm != call->comm || first->call.stream != call->stream)
        first++;
    return first == &group->kept[index];
}

/* Orders the stream of call `first` with the other streams on which the group has calls of the same communicator.
 * before  true: that stream waits for the others; false: the others wait for it */
static ceclResult_t order_with_all(const struct cecl_nccl_group *group,
                                   const struct cecl_nccl_kept *first, bool before)
{
    const cudaStream_t common = first->call.stream;
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < group->count && result == ceclSuccess; i++) {
        const struct cecl_nccl_call *call = &group->kept[i].call;
        if (call->comm == first->call.comm && call->stream != common && has_new_stream(group, i))
            result = cecl_nccl_gpu_order(first->comm->ordinal, before ? call->stream : common,
                                         before ? common : call->stream);
    }
    return result;
}

/* NCCL orders all streams of a group's calls on one communicator. A cecl group has one stream for each communicator,
 * the stream of the stage's first call. So before the stage this stream waits for the others, and after the stage the
 * others wait for it. */
static ceclResult_t order_streams(const struct cecl_nccl_group *group,
                                  const struct cecl_nccl_kept *kept, int count, bool before)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && kept[i].comm->ordinal >= 0 && first_of(kept, i) == &kept[i])
            result = order_with_all(group, &kept[i], before);
    return result;
}

/* Ignores errors of calls in a cecl group, because ceclGroupEnd returns them. If the program's group has only one call,
 * makes that call without a cecl group, which is faster for small calls. */
static ceclResult_t enqueue(const struct cecl_nccl_group *group, const struct cecl_nccl_kept *kept,
                            int count)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    if (group->count == 1)
        return kept->comm ? cecl_nccl_serve(&kept->call, kept->comm, kept->call.stream)
                          : ceclSuccess;
    CECL_TRY(cecl->ceclGroupStart());
    for (int i = 0; i < count; i++)
        if (kept[i].comm)
            (void)!cecl_nccl_serve(&kept[i].call, kept[i].comm, first_of(kept, i)->call.stream);
    return cecl->ceclGroupEnd();
}

static ceclResult_t complete(const struct cecl_nccl_kept *kept, int count)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count && result == ceclSuccess; i++)
        if (kept[i].comm && first_of(kept, i) == &kept[i])
            result = cecl_nccl_serve_complete(&kept[i].call, kept[i].comm);
    return result;
}

static ncclResult_t serve_stage(const struct cecl_nccl_group *group, struct cecl_nccl_kept *kept,
                                int count)
{
    enter_all(kept, count);
    note_calls(kept, count);
    ceclResult_t result = order_streams(group, kept, count, true);
    if (result == ceclSuccess)
        result = enqueue(group, kept, count);
    if (result == ceclSuccess)
        result = order_streams(group, kept, count, false);
    if (result == ceclSuccess)
        result = complete(kept, count);
    return leave_all(kept, count, result);
}

/* Makes the calls in another NCCL group, after the one that the program has ended. Returns the first call's error or
 * the error of the group's end. */
static ncclResult_t pass_in_a_group(struct cecl_nccl_group *group,
                                    const struct cecl_nccl_kept *kept, int count)
{
    ncclResult_t result = cecl_nccl_pass_ncclGroupStart();
    if (result != ceclSuccess)
        return result;
    result = cecl_nccl_group_pass(group, kept, count);
    const ncclResult_t ended = cecl_nccl_pass_ncclGroupEnd();
    return result == ceclSuccess ? ended : result;
}

static ncclResult_t order_passed(const struct cecl_nccl_group *group, struct cecl_nccl_kept *kept,
                                 int count, bool before)
{
    enter_all(kept, count);
    return leave_all(kept, count, order_streams(group, kept, count, before));
}

static bool has_several_streams(const struct cecl_nccl_group *group)
{
    int i = 0;
    while (i < group->count && group->kept[i].call.stream == first_of(group->kept, i)->call.stream)
        i++;
    return i < group->count;
}

/* A stage of calls that NCCL makes. While the thread calls NCCL, it is not inside an entry: an abort waits until no
 * thread is inside, and only then ends NCCL's call. */
static ncclResult_t pass_stage(struct cecl_nccl_group *group, struct cecl_nccl_kept *kept,
                               int count)
{
    const bool is_last = kept + count == group->kept + group->count;
    ncclResult_t result = order_passed(group, kept, count, true);
    if (result != ceclSuccess)
        return result;
    result = pass_in_a_group(group, kept, count);
    if (result == ceclInProgress && (!is_last || has_several_streams(group)))
        cecl_nccl_group_await_passed(group);
    if (result != ceclSuccess && result != ceclInProgress)
        return result;
    const ncclResult_t ordered = order_passed(group, kept, count, false);
    return ordered == ceclSuccess ? result : ordered;
}

/* ---- all stages */

static int by_stage(const void *left, const void *right)
{
    const struct cecl_nccl_kept *a = left, *b = right;
    return a->stage != b->stage ? a->stage - b->stage : a->number - b->number;
}

static void sort(struct cecl_nccl_group *group)
{
    int sorted = 1;
    while (sorted < group->count && group->kept[sorted - 1].stage <= group->kept[sorted].stage)
        sorted++;
    if (sorted < group->count)
        qsort(group->kept, (size_t)group->count, sizeof(*group->kept), by_stage);
}

/* How many of the calls, which are sorted by stage, have the first call's stage. */
static int length_of_stage(const struct cecl_nccl_kept *kept, int count)
{
    int length = 0;
    while (length < count && kept[length].stage == kept->stage)
        length++;
    return length;
}

ncclResult_t cecl_nccl_group_serve(struct cecl_nccl_group *group)
{
    ncclResult_t result = ceclSuccess;
    bool is_in_progress = false;
    sort(group);
    for (int i = 0, length; i < group->count && result == ceclSuccess; i += length) {
        struct cecl_nccl_kept *kept = group->kept + i;
        length = length_of_stage(kept, group->count - i);
        result = cecl_nccl_is_served(&kept->call) ? serve_stage(group, kept, length)
                                                  : pass_stage(group, kept, length);
        if (result == ceclInProgress) {
            is_in_progress = true;
            result = ceclSuccess;
        }
    }
    cecl_nccl_group_forget_calls(group);
    return result == ceclSuccess && is_in_progress ? ceclInProgress : result;
}
