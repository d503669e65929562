/* The functions of NCCL that are decided on call by call. */
#include "nccl/abi.h"
#include "nccl/call.h"

/* cecl_nccl_pass_ncclAllGather and so on: the same functions of the real NCCL (jump.c). */
#define COUNTED(name) __typeof__(name) cecl_nccl_pass_##name;
#define JUMP(name, answer)
CECL_NCCL_NAMES(COUNTED, JUMP)

#define MOVES false
#define REDUCES true

/* A macro, because the address that the exported function returns to is asked for. */
#define ADMITTED(name, kind, count, datatype, comm)                                                \
    cecl_nccl_admit(&(const struct cecl_nccl_call){CECL_NCCL_OP_##name, kind, datatype, count,     \
                                                   comm, __builtin_return_address(0)})

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclAllGather, MOVES, sendcount, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    if (!ADMITTED(ncclAllReduce, REDUCES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclAlltoAll, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    if (!ADMITTED(ncclBcast, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclBcast(buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclBroadcast, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclGather, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclRecv, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclRecv(recvbuff, count, datatype, peer, comm, stream);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclReduce, REDUCES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    if (!ADMITTED(ncclReduceScatter, REDUCES, recvcount, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm,
                                            stream);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclScatter, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    if (!ADMITTED(ncclSend, MOVES, count, datatype, comm))
        return ceclInvalidUsage;
    return cecl_nccl_pass_ncclSend(sendbuff, count, datatype, peer, comm, stream);
}
