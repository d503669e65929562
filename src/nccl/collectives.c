/* The functions of NCCL that are decided on call by call. */
#include "nccl/abi.h"
#include "nccl/call.h"
#include "nccl/names.h"

/* cecl_nccl_pass_ncclAllGather and so on: the same functions of the real NCCL (jump.c). */
#define COUNTED(name) __typeof__(name) cecl_nccl_pass_##name;
CECL_NCCL_NAMES(COUNTED, CECL_NCCL_SKIP, CECL_NCCL_SKIP)

#define MOVES .reduces = false
#define REDUCES .reduces = true, .redop = op

/* Returns from the function if the call is served or refused. A macro, because the address that the
 * exported function returns to is asked for. */
#define TAKE(name, kind, send, recv, elements, ...)                                                \
    const struct cecl_nccl_call call = {.op = CECL_NCCL_OP_##name,                                 \
                                        .caller = __builtin_return_address(0),                     \
                                        .comm = comm,                                              \
                                        .stream = stream,                                          \
                                        .datatype = datatype,                                      \
                                        .count = elements,                                         \
                                        .sendbuff = send,                                          \
                                        .recvbuff = recv,                                          \
                                        kind,                                                      \
                                        __VA_ARGS__};                                              \
    ncclResult_t result;                                                                           \
    if (cecl_nccl_take(&call, &result))                                                            \
    return result

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclAllGather, MOVES, sendbuff, recvbuff, sendcount, .root = 0);
    return cecl_nccl_pass_ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    TAKE(ncclAllReduce, REDUCES, sendbuff, recvbuff, count, .root = 0);
    return cecl_nccl_pass_ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclAlltoAll, MOVES, sendbuff, recvbuff, count, .root = 0);
    return cecl_nccl_pass_ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    TAKE(ncclBcast, MOVES, buff, buff, count, .root = root);
    return cecl_nccl_pass_ncclBcast(buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclBroadcast, MOVES, sendbuff, recvbuff, count, .root = root);
    return cecl_nccl_pass_ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclGather, MOVES, sendbuff, recvbuff, count, .root = root);
    return cecl_nccl_pass_ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclRecv, MOVES, NULL, recvbuff, count, .root = peer);
    return cecl_nccl_pass_ncclRecv(recvbuff, count, datatype, peer, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclReduce, REDUCES, sendbuff, recvbuff, count, .root = root);
    return cecl_nccl_pass_ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    TAKE(ncclReduceScatter, REDUCES, sendbuff, recvbuff, recvcount, .root = 0);
    return cecl_nccl_pass_ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm,
                                            stream);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclScatter, MOVES, sendbuff, recvbuff, count, .root = root);
    return cecl_nccl_pass_ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    TAKE(ncclSend, MOVES, sendbuff, NULL, count, .root = peer);
    return cecl_nccl_pass_ncclSend(sendbuff, count, datatype, peer, comm, stream);
}

#define LAST call->comm, call->stream
ncclResult_t cecl_nccl_pass(const struct cecl_nccl_call *call)
{
    const void *const send = call->sendbuff;
    void *const recv = call->recvbuff;
    const size_t count = call->count;
    const ncclDataType_t type = call->datatype;
    switch (call->op) {
    case CECL_NCCL_OP_ncclAllGather:
        return cecl_nccl_pass_ncclAllGather(send, recv, count, type, LAST);
    case CECL_NCCL_OP_ncclAllReduce:
        return cecl_nccl_pass_ncclAllReduce(send, recv, count, type, call->redop, LAST);
    case CECL_NCCL_OP_ncclAlltoAll:
        return cecl_nccl_pass_ncclAlltoAll(send, recv, count, type, LAST);
    case CECL_NCCL_OP_ncclBcast:
        return cecl_nccl_pass_ncclBcast(recv, count, type, call->root, LAST);
    case CECL_NCCL_OP_ncclBroadcast:
        return cecl_nccl_pass_ncclBroadcast(send, recv, count, type, call->root, LAST);
    case CECL_NCCL_OP_ncclGather:
        return cecl_nccl_pass_ncclGather(send, recv, count, type, call->root, LAST);
    case CECL_NCCL_OP_ncclRecv: return cecl_nccl_pass_ncclRecv(recv, count, type, call->root, LAST);
    case CECL_NCCL_OP_ncclReduce:
        return cecl_nccl_pass_ncclReduce(send, recv, count, type, call->redop, call->root, LAST);
    case CECL_NCCL_OP_ncclReduceScatter:
        return cecl_nccl_pass_ncclReduceScatter(send, recv, count, type, call->redop, LAST);
    case CECL_NCCL_OP_ncclScatter:
        return cecl_nccl_pass_ncclScatter(send, recv, count, type, call->root, LAST);
    case CECL_NCCL_OP_ncclSend: return cecl_nccl_pass_ncclSend(send, count, type, call->root, LAST);
    default: return ceclInternalError;
    }
}

CECL_NCCL_NAMES(CECL_NCCL_ALIAS, CECL_NCCL_SKIP, CECL_NCCL_SKIP)
