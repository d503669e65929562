/* See serve.h. */
#include "nccl/serve.h"

#include <dlfcn.h>
#include <pthread.h>

#include "nccl/library.h"
#include "nccl/process.h"

/* ---- through cecl */

/* A function of the stand-in for NCCL, see serve.h; NULL: NCCL is no stand-in, or its streams never capture. */
static ceclStream_t (*lend)(ceclComm_t ours, cudaStream_t stream);

static void find_lend(void)
{
    *(void **)&lend = dlsym(cecl_nccl_process()->real.handle, "cecl_standin_stream");
}

ceclStream_t cecl_nccl_host_stream(ceclComm_t ours, cudaStream_t stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!stream || !ours)
        return NULL;
    pthread_once(&once, find_lend);
    return lend ? lend(ours, stream) : NULL;
}

/* Sets the policy of the calls that follow, also in a group. If it cannot be set, the call is made with the previous
 * policy, because the other ranks already wait for this rank. */
static void set_policy(const struct cecl_nccl_library *cecl, struct cecl_nccl_comm *comm,
                       int policy)
{
    ceclOptions_t options = CECL_OPTIONS_INITIALIZER;
    options.smPolicy = policy;
    if (cecl->ceclSetOptions(comm->ours, &options) == ceclSuccess)
        comm->policy = policy;
}

#define SERVE(name, ...) \
    case CECL_NCCL_OP_nccl##name: return cecl->cecl##name(__VA_ARGS__, ours, on);

/* In a gather or a reduction to root NCCL ignores recvbuff on ranks other than root. cecl requires an address, but
 * writes nothing there, so this function passes sendbuff to cecl. On the host device calls are on the default stream,
 * unless they are captured: the stand-in for NCCL completes each call before it returns. */
ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                             cudaStream_t stream)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const bool is_used = cecl_nccl_has_result_on_all(call->op) || comm->rank == call->root;
    const void *const send = call->sendbuff;
    void *const recv = is_used ? call->recvbuff : (void *)(uintptr_t)send;
    const size_t count = call->count;
    const ceclDataType_t type = (ceclDataType_t)call->datatype;
    const ceclRedOp_t op = (ceclRedOp_t)call->redop;
    const int root = call->root;
    const ceclComm_t ours = comm->ours;
    const ceclStream_t on =
        comm->ordinal >= 0 ? (ceclStream_t)stream : cecl_nccl_host_stream(ours, stream);
    if (call->way.policy != comm->policy)
        set_policy(cecl, comm, call->way.policy);
    switch (call->op) {
        CECL_NCCL_CALLS(SERVE)
    case CECL_NCCL_OP_ncclBcast:
        return cecl->ceclBroadcast(send, recv, count, type, root, ours, on);
    default: return cecl_fail(ceclInternalError, "call %d is not served", (int)call->op);
    }
}

ceclResult_t cecl_nccl_serve_complete(const struct cecl_nccl_call *call,
                                      const struct cecl_nccl_comm *comm)
{
    return comm->ordinal >= 0 || call->way.is_captured
               ? ceclSuccess
               : cecl_nccl_library()->ceclStreamSynchronize(comm->ours, NULL);
}

/* Ignores errors: the call itself, which follows, returns them. */
bool cecl_nccl_uses_sms(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclExplanation_t told = {.zeroSm = 1};
    if (cecl->ceclGroupStart() != ceclSuccess)
        return false;
    (void)!cecl_nccl_serve(call, comm, call->stream);
    (void)!cecl->ceclGroupExplain(comm->ours, &told);
    return !told.zeroSm;
}

/* ---- through NCCL */

#define PASS(name, ...) \
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

bool cecl_nccl_is_enqueued(ncclComm_t comm, struct cecl_nccl_comm *entry)
{
    ncclResult_t error = ceclSuccess;
    /* if another thread is ending the communicator, NCCL is not asked */
    if (entry && !cecl_nccl_comm_enter(entry, comm, CECL_NCCL_SET(MAKING) | CECL_NCCL_MADE))
        return true;
    const ncclResult_t asked = cecl_nccl_pass_ncclCommGetAsyncError(comm, &error);
    if (entry)
        cecl_nccl_comm_leave(entry);
    return asked != ceclSuccess || error != ceclInProgress;
}
