/* See one_sided.h. */
#include "nccl/one_sided.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/captured.h"
#include "nccl/depth.h"
#include "nccl/library.h"
#include "nccl/process.h"
#include "nccl/serve.h"
#include "nccl/windows.h"
#include "util/grow.h"
#include "util/thread.h"

/* cecl has no contexts, so each of NCCL's contexts gets some of cecl's signals. */
#define CONTEXTS 8
#define SIGNALS_OF_CONTEXT (CECL_SIGNALS / CONTEXTS)

/* ---- checking */

static ceclResult_t check_signal(int signal, int context)
{
    return signal >= 0 && signal < SIGNALS_OF_CONTEXT && context >= 0 && context < CONTEXTS
               ? ceclSuccess
               : cecl_fail(ceclInvalidArgument,
                           "sigIdx %d, ctx %d: cecl serves sigIdx 0 to %d and ctx 0 to %d", signal,
                           context, SIGNALS_OF_CONTEXT - 1, CONTEXTS - 1);
}

static int number_of(int signal, int context)
{
    return context * SIGNALS_OF_CONTEXT + signal;
}

/* Whether the call is a put to this rank itself, made by a local copy, which may use an SM. ceclPutSignal
 * would refuse it unless the policy is CECL_SM_ALLOW. Programs expect it to work, except under
 * CECL_NCCL=strict. */
static bool copies_locally(const struct cecl_nccl_one_sided *call,
                           const struct cecl_nccl_comm *comm)
{
    return call->peer == comm->rank && call->count > 0 && comm->limits.smPolicy != CECL_SM_ALLOW &&
           cecl_nccl_process()->policy != CECL_NCCL_STRICT;
}

static ceclResult_t check_window(const struct cecl_nccl_one_sided *call,
                                 const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_window *window = cecl_nccl_window_find(comm, call->window);
    const size_t element = cecl_nccl_type_bytes(call->datatype);
    if (!window)
        return cecl_fail(ceclInvalidArgument, "peerWin %p: not a window of this communicator",
                         (void *)call->window);
    if (!window->ours)
        return cecl_fail(ceclInvalidUsage,
                         "peerWin %p: cecl cannot share this window, although it shares earlier "
                         "ones; register it first, or set CECL_NCCL=off",
                         (void *)call->window);
    if (copies_locally(call, comm) && (element == 0 || call->offset > window->bytes ||
                                       call->count > (window->bytes - call->offset) / element))
        return cecl_fail(ceclInvalidArgument,
                         "count %zu of datatype %d at offset %zu: not within the %zu bytes of the "
                         "window",
                         call->count, call->datatype, call->offset, window->bytes);
    return ceclSuccess;
}

/* Checks what libcecl.so does not check. */
static ceclResult_t check(const struct cecl_nccl_one_sided *call, const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_call captured = {.stream = call->stream};
    if (cecl_nccl_is_captured(&captured, comm))
        return cecl_fail(ceclInvalidUsage,
                         "%s: the stream is captured, and cecl, which serves the one-sided calls "
                         "of this communicator, cannot capture them; make it outside of the "
                         "graph, or set CECL_NCCL=off",
                         cecl_nccl_op_names[call->op]);
    for (int i = 0; i < call->nwaits; i++)
        CECL_TRY(check_signal(call->waits[i].sigIdx, call->waits[i].ctx));
    if (call->op == CECL_NCCL_OP_ncclWaitSignal)
        return ceclSuccess;
    if (call->flags != 0)
        return cecl_fail(ceclInvalidArgument, "flags %u: 0 expected", call->flags);
    CECL_TRY(check_signal(call->signal, call->context));
    return call->op == CECL_NCCL_OP_ncclPutSignal ? check_window(call, comm) : ceclSuccess;
}

/* ---- carrying out */

static ceclResult_t copy_locally(const struct cecl_nccl_one_sided *call,
                                 const struct cecl_nccl_comm *comm,
                                 const struct cecl_nccl_window *window, ceclStream_t on)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    CECL_TRY(cecl->ceclMemcpyAsync(comm->ours, (char *)window->buff + call->offset, call->local,
                                   call->count * cecl_nccl_type_bytes(call->datatype), on));
    return cecl->ceclSignal(call->peer, number_of(call->signal, call->context), comm->ours, on);
}

static ceclResult_t put(const struct cecl_nccl_one_sided *call, const struct cecl_nccl_comm *comm,
                        ceclStream_t on)
{
    const struct cecl_nccl_window *window = cecl_nccl_window_find(comm, call->window);
    if (copies_locally(call, comm))
        return copy_locally(call, comm, window, on);
    return cecl_nccl_library()->ceclPutSignal(
        call->local, call->count, (ceclDataType_t)call->datatype, call->peer, window->ours,
        call->offset, number_of(call->signal, call->context), comm->ours, on);
}

/* One call of ceclWaitSignal gets at most this many entries. An entry that waits for no signal is left
 * out. */
#define WAITS 64

static ceclResult_t await(const struct cecl_nccl_one_sided *call, const struct cecl_nccl_comm *comm,
                          ceclStream_t on)
{
    ceclSignalWait_t waits[WAITS];
    int count = 0;
    for (int i = 0; i < call->nwaits; i++) {
        const ncclWaitSignalDesc_t *wait = &call->waits[i];
        if (wait->opCnt != 0)
            waits[count++] = (ceclSignalWait_t){.peer = wait->peer,
                                                .signal = number_of(wait->sigIdx, wait->ctx),
                                                .count = wait->opCnt};
        if (count == WAITS || (count > 0 && i == call->nwaits - 1)) {
            CECL_TRY(cecl_nccl_library()->ceclWaitSignal(count, waits, comm->ours, on));
            count = 0;
        }
    }
    return ceclSuccess;
}

static ceclResult_t enqueue(const struct cecl_nccl_one_sided *call,
                            const struct cecl_nccl_comm *comm)
{
    const ceclStream_t on = comm->ordinal >= 0 ? (ceclStream_t)call->stream : NULL;
    switch (call->op) {
    case CECL_NCCL_OP_ncclPutSignal: return put(call, comm, on);
    case CECL_NCCL_OP_ncclSignal:
        return cecl_nccl_library()->ceclSignal(call->peer, number_of(call->signal, call->context),
                                               comm->ours, on);
    default: return await(call, comm, on);
    }
}

/* check() records its message in this library; other messages are in libcecl.so. */
static ncclResult_t carry_out(const struct cecl_nccl_one_sided *call, struct cecl_nccl_comm *comm)
{
    const ceclResult_t refused = check(call, comm);
    if (refused != ceclSuccess)
        return cecl_nccl_comm_own_result(comm, refused);
    ceclResult_t result = enqueue(call, comm);
    if (result == ceclSuccess)
        result = cecl_nccl_serve_complete(comm);
    return cecl_nccl_comm_result(comm, result);
}

/* ---- groups */

static _Thread_local struct {
    struct cecl_nccl_one_sided *calls; /* each with its own copy of `waits` */
    int count, room;
} group;

void cecl_nccl_one_sided_forget(void)
{
    for (int i = 0; i < group.count; i++)
        free((void *)(uintptr_t)group.calls[i].waits);
    free(group.calls);
    group.calls = NULL;
    group.count = group.room = 0;
}

static ncclResult_t keep(const struct cecl_nccl_one_sided *call)
{
    static struct cecl_thread_end end = CECL_THREAD_END_NONE;
    const size_t bytes = (size_t)call->nwaits * sizeof(*call->waits);
    ncclWaitSignalDesc_t *waits = bytes > 0 ? malloc(bytes) : NULL;
    if (group.count == 0)
        cecl_thread_at_end(&end, cecl_nccl_one_sided_forget);
    if ((bytes > 0 && !waits) || !CECL_HAS_ROOM(group.calls, group.count, group.room)) {
        free(waits);
        return ceclSystemError;
    }
    if (bytes > 0)
        memcpy(waits, call->waits, bytes);
    group.calls[group.count] = *call;
    group.calls[group.count++].waits = waits;
    return ceclSuccess;
}

static ncclResult_t carry_out_kept(const struct cecl_nccl_one_sided *call)
{
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    if (!comm || !cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE))
        return ceclSuccess; /* the communicator was aborted, so the call is dropped */
    const ncclResult_t result = carry_out(call, comm);
    cecl_nccl_comm_leave(comm);
    return result;
}

ncclResult_t cecl_nccl_one_sided_end_group(void)
{
    ncclResult_t result = ceclSuccess;
    for (int waits = 0; waits < 2; waits++)
        for (int i = 0; i < group.count && result == ceclSuccess; i++)
            if ((group.calls[i].op == CECL_NCCL_OP_ncclWaitSignal) == (waits == 1))
                result = carry_out_kept(&group.calls[i]);
    cecl_nccl_one_sided_forget();
    return result;
}

/* ---- */

bool cecl_nccl_one_sided_uses_sms(const struct cecl_nccl_one_sided *call,
                                  const struct cecl_nccl_comm *comm)
{
    return copies_locally(call, comm);
}

ncclResult_t cecl_nccl_one_sided_serve(const struct cecl_nccl_one_sided *call,
                                       struct cecl_nccl_comm *comm)
{
    if (call->nwaits < 0 || (call->nwaits > 0 && !call->waits))
        return cecl_nccl_comm_own_result(comm,
                                         cecl_fail(ceclInvalidArgument,
                                                   "nDesc %d, signalDescs %p: an array of nDesc "
                                                   "descriptors expected",
                                                   call->nwaits, (const void *)call->waits));
    return cecl_nccl_group_depth() > 0 ? keep(call) : carry_out(call, comm);
}
