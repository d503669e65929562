/* Passes calls on to NCCL, in order with the exchanges of rails. */
#include "nccl/passed.h"

#include "nccl/gpu.h"
#include "nccl/rails.h"
#include "util/thread.h"

#define PASS(name, ...)                                                                            \
    case CECL_NCCL_OP_nccl##name: return cecl_nccl_pass_nccl##name(__VA_ARGS__, comm, stream);
ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call)
{
    const void *const send = call->sendbuff;
    void *const recv = call->recvbuff;
    const size_t count = call->count;
    const ncclDataType_t type = call->datatype;
    const ncclRedOp_t op = call->redop;
    const int root = call->root;
    const ncclComm_t comm = call->comm;
    const cudaStream_t stream = call->stream;
    switch (call->op) {
        CECL_NCCL_CALLS(PASS)
    case CECL_NCCL_OP_ncclBcast:
        return cecl_nccl_pass_ncclBcast(recv, count, type, root, comm, stream);
    default: return ceclInternalError;
    }
}

/* ---- calls of a communicator with rails. The thread is not inside an entry while it calls NCCL, because
 * an abort, which must end NCCL's call, first waits until no thread is inside. */

static _Thread_local struct cecl_nccl_comm *in_group;

/* Called if a thread ends with an open group. */
static void forget_at_end(void)
{
    for (; in_group; in_group = in_group->rails.next_in_group)
        in_group->rails.is_in_group = false;
}

static void note(struct cecl_nccl_comm *entry, const struct cecl_nccl_call *call)
{
    static struct cecl_thread_end thread_end = CECL_THREAD_END_NONE;
    struct cecl_nccl_rails *rails = &entry->rails;
    rails->stream = call->stream;
    if (rails->is_in_group)
        return;
    cecl_thread_at_end(&thread_end, forget_at_end);
    rails->is_in_group = true;
    rails->comm = call->comm;
    rails->next_in_group = in_group;
    in_group = entry;
}

static bool is_ordered(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *entry)
{
    bool is_sound;
    return entry && entry->rails.exist &&
           !(entry->ordinal >= 0 && cecl_nccl_gpu_captures(call->stream, &is_sound));
}

static ceclResult_t begin_pass(const struct cecl_nccl_call *call, struct cecl_nccl_comm *entry)
{
    if (!cecl_nccl_comm_enter(entry, call->comm, CECL_NCCL_MADE))
        return ceclSuccess;
    const ceclResult_t result = cecl_nccl_rails_before(&entry->rails, call->stream);
    cecl_nccl_comm_leave(entry);
    return result;
}

/* Returns `result`, which NCCL has returned, or this function's own error. */
static ncclResult_t end_pass(struct cecl_nccl_comm *entry, ncclComm_t comm, cudaStream_t stream,
                             ncclResult_t result)
{
    while (result == ceclInProgress && !cecl_nccl_is_enqueued(comm, entry))
        cecl_nccl_pause_us(20);
    if (!cecl_nccl_comm_enter(entry, comm, CECL_NCCL_MADE))
        return result;
    const ceclResult_t ended = cecl_nccl_rails_behind(&entry->rails, stream);
    cecl_nccl_comm_leave(entry);
    return ended != ceclSuccess && (result == ceclSuccess || result == ceclInProgress)
               ? (ncclResult_t)ended
               : result;
}

/* All streams of an NCCL group's calls wait for its kernel, so an event on one of them comes after all
 * calls. */
ncclResult_t cecl_nccl_pass_ended(ncclResult_t result)
{
    while (in_group) {
        struct cecl_nccl_comm *entry = in_group;
        in_group = entry->rails.next_in_group;
        entry->rails.is_in_group = false;
        result = end_pass(entry, entry->rails.comm, entry->rails.stream, result);
    }
    return result;
}

ncclResult_t cecl_nccl_pass_ordered(const struct cecl_nccl_call *call, struct cecl_nccl_comm *entry,
                                    bool ends)
{
    if (!is_ordered(call, entry))
        return cecl_nccl_pass(call);
    const ceclResult_t begun = begin_pass(call, entry);
    if (begun != ceclSuccess)
        return (ncclResult_t)begun;
    if (!ends)
        note(entry, call);
    const ncclResult_t result = cecl_nccl_pass(call);
    return ends ? end_pass(entry, call->comm, call->stream, result) : result;
}

bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry)
{
    ncclResult_t error = ceclSuccess;
    /* the communicator is being ended */
    if (entry && !cecl_nccl_comm_enter(entry, comm, CECL_NCCL_SET(MAKING) | CECL_NCCL_MADE))
        return true;
    const ncclResult_t asked = cecl_nccl_pass_ncclCommGetAsyncError(comm, &error);
    if (entry)
        cecl_nccl_comm_leave(entry);
    return asked != ceclSuccess || error != ceclInProgress;
}
