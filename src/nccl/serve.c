/* See serve.h. */
#include "nccl/serve.h"

#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/process.h"

/* On ranks other than root NCCL does not look at the recvbuff of a gather or of a reduction to root. cecl
 * wants an address, to which it does not write. */
static void *at_root(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return comm->rank == call->root ? call->recvbuff : (void *)(uintptr_t)call->sendbuff;
}

static ceclResult_t move(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                         ceclStream_t stream)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const ceclDataType_t type = (ceclDataType_t)call->datatype;
    const ceclComm_t ours = comm->ours;
    switch (call->op) {
    case CECL_NCCL_OP_ncclAllGather:
        return cecl->ceclAllGather(call->sendbuff, call->recvbuff, call->count, type, ours, stream);
    case CECL_NCCL_OP_ncclAlltoAll:
        return cecl->ceclAlltoAll(call->sendbuff, call->recvbuff, call->count, type, ours, stream);
    case CECL_NCCL_OP_ncclBcast:
    case CECL_NCCL_OP_ncclBroadcast:
        return cecl->ceclBroadcast(call->sendbuff, call->recvbuff, call->count, type, call->root,
                                   ours, stream);
    case CECL_NCCL_OP_ncclGather:
        return cecl->ceclGather(call->sendbuff, at_root(call, comm), call->count, type, call->root,
                                ours, stream);
    case CECL_NCCL_OP_ncclScatter:
        return cecl->ceclScatter(call->sendbuff, call->recvbuff, call->count, type, call->root,
                                 ours, stream);
    case CECL_NCCL_OP_ncclSend:
        return cecl->ceclSend(call->sendbuff, call->count, type, call->root, ours, stream);
    case CECL_NCCL_OP_ncclRecv:
        return cecl->ceclRecv(call->recvbuff, call->count, type, call->root, ours, stream);
    default: return cecl_fail(ceclInternalError, "%s is not served", cecl_nccl_op_names[call->op]);
    }
}

static ceclResult_t reduce(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           ceclStream_t stream)
{
    const ceclComm_t ours = comm->ours;
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    const ceclDataType_t type = (ceclDataType_t)call->datatype;
    const ceclRedOp_t redop = (ceclRedOp_t)call->redop;
    switch (call->op) {
    case CECL_NCCL_OP_ncclAllReduce:
        return cecl->ceclAllReduce(call->sendbuff, call->recvbuff, call->count, type, redop, ours,
                                   stream);
    case CECL_NCCL_OP_ncclReduce:
        return cecl->ceclReduce(call->sendbuff, at_root(call, comm), call->count, type, redop,
                                call->root, ours, stream);
    case CECL_NCCL_OP_ncclReduceScatter:
        return cecl->ceclReduceScatter(call->sendbuff, call->recvbuff, call->count, type, redop,
                                       ours, stream);
    default: return cecl_fail(ceclInternalError, "%s is not served", cecl_nccl_op_names[call->op]);
    }
}

/* A stream of the host device is not the program's: the stand-in for NCCL completes each call before
 * it returns, and takes no notice of streams. */
ceclResult_t cecl_nccl_serve_enqueue(const struct cecl_nccl_call *call,
                                     const struct cecl_nccl_comm *comm, cudaStream_t stream)
{
    const ceclStream_t used = comm->on_gpu ? (ceclStream_t)stream : NULL;
    return call->reduces ? reduce(call, comm, used) : move(call, comm, used);
}

ceclResult_t cecl_nccl_serve_complete(const struct cecl_nccl_comm *comm)
{
    return comm->on_gpu ? ceclSuccess
                        : cecl_nccl_library()->ceclStreamSynchronize(comm->ours, NULL);
}

ceclResult_t cecl_nccl_serve(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    CECL_TRY(cecl_nccl_serve_enqueue(call, comm, call->stream));
    return cecl_nccl_serve_complete(comm);
}

/* A call that is refused is refused again when it is made, and gives its error then. */
bool cecl_nccl_serve_uses_sms(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclExplanation_t told = {.zeroSm = 1};
    if (call->reduces)
        return true;
    if (cecl->ceclGroupStart() != ceclSuccess)
        return false;
    (void)!cecl_nccl_serve_enqueue(call, comm, call->stream);
    (void)!cecl->ceclGroupExplain(comm->ours, &told);
    return !told.zeroSm;
}
