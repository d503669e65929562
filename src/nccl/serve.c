/* See serve.h. */
#include "nccl/serve.h"

#include <string.h>

#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/process.h"

/* NCCL lets ranks other than root pass NULL for what they do not use. cecl wants an address of the
 * recvbuff of a gather and of a reduction to root, which it does not write to either. */
static void *at_root(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return call->recvbuff || comm->rank == call->root ? call->recvbuff
                                                      : (void *)(uintptr_t)call->sendbuff;
}

/* NCCL reads a broadcast's sendbuff on root alone, so each rank may be in place or not. cecl's ranks
 * must agree on that. Where a local copy is allowed, which takes SMs, all ranks are in place, and root
 * copies its sendbuff to its recvbuff first. Otherwise each rank is taken at its word, and one that
 * passes NULL counts as in place. */
static bool makes_alike(void)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    return process->policy != CECL_NCCL_STRICT && process->sm_policy != CECL_SM_NEVER;
}

static const void *broadcast_from(const struct cecl_nccl_call *call,
                                  const struct cecl_nccl_comm *comm)
{
    const bool has_sendbuff = call->sendbuff;
    if (comm->rank == call->root)
        return has_sendbuff && makes_alike() ? call->recvbuff : call->sendbuff;
    return !has_sendbuff || makes_alike() ? call->recvbuff : call->sendbuff;
}

/* Whether the call's first step is that copy. */
static bool copies_first(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    return call->op == CECL_NCCL_OP_ncclBroadcast && comm->rank == call->root && call->sendbuff &&
           call->recvbuff && call->sendbuff != call->recvbuff && makes_alike();
}

static ceclResult_t copy_first(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                               cudaStream_t stream)
{
    const size_t bytes = cecl_nccl_call_bytes(call);
    if (comm->on_gpu)
        return cecl_nccl_gpu_copy(comm->ordinal, call->recvbuff, call->sendbuff, bytes, stream);
    memmove(call->recvbuff, call->sendbuff, bytes);
    return ceclSuccess;
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
        return cecl->ceclBroadcast(broadcast_from(call, comm), call->recvbuff, call->count, type,
                                   call->root, ours, stream);
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
static ceclResult_t enqueue(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                            cudaStream_t stream)
{
    const ceclStream_t used = comm->on_gpu ? (ceclStream_t)stream : NULL;
    return call->reduces ? reduce(call, comm, used) : move(call, comm, used);
}

ceclResult_t cecl_nccl_serve_enqueue(const struct cecl_nccl_call *call,
                                     const struct cecl_nccl_comm *comm, cudaStream_t stream)
{
    if (copies_first(call, comm))
        CECL_TRY(copy_first(call, comm, stream));
    return enqueue(call, comm, stream);
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
    if (call->reduces || copies_first(call, comm))
        return true;
    if (cecl->ceclGroupStart() != ceclSuccess)
        return false;
    (void)!enqueue(call, comm, call->stream);
    (void)!cecl->ceclGroupExplain(comm->ours, &told);
    return !told.zeroSm;
}
