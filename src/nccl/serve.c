/* See serve.h. */
#include "nccl/serve.h"

#include "nccl/host_stream.h"
#include "nccl/library.h"

#define SERVE(name, ...)                                                                           \
    case CECL_NCCL_OP_nccl##name: return cecl->cecl##name(__VA_ARGS__, ours, on);

/* On ranks other than root NCCL ignores the recvbuff of a gather or of a reduction to root. cecl requires an
 * address, but writes nothing there, so this function passes sendbuff. On the host device the stand-in for NCCL
 * completes each call before it returns, on any stream, unless the stream captures. */
ceclResult_t cecl_nccl_serve_enqueue(const struct cecl_nccl_call *call,
                                     const struct cecl_nccl_comm *comm, cudaStream_t stream)
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
    switch (call->op) {
        CECL_NCCL_CALLS(SERVE)
    case CECL_NCCL_OP_ncclBcast:
        return cecl->ceclBroadcast(send, recv, count, type, root, ours, on);
    default: return cecl_fail(ceclInternalError, "call %d is not served", (int)call->op);
    }
}

ceclResult_t cecl_nccl_serve_complete(const struct cecl_nccl_comm *comm)
{
    return comm->ordinal >= 0 ? ceclSuccess
                              : cecl_nccl_library()->ceclStreamSynchronize(comm->ours, NULL);
}

ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    CECL_TRY(cecl_nccl_serve_enqueue(call, comm, call->stream));
    return call->is_captured ? ceclSuccess : cecl_nccl_serve_complete(comm);
}

/* If explaining the call fails, making it fails too and returns the error. */
bool cecl_nccl_serve_uses_sms(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclExplanation_t told = {.zeroSm = 1};
    if (cecl->ceclGroupStart() != ceclSuccess)
        return false;
    (void)!cecl_nccl_serve_enqueue(call, comm, call->stream);
    (void)!cecl->ceclGroupExplain(comm->ours, &told);
    return !told.zeroSm;
}
