/* Passes calls on to NCCL. */
#include "nccl/passed.h"

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
