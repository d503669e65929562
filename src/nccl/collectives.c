/* The functions of NCCL whose calls cecl may make in NCCL's place. */
#include "nccl/serve.h"

#define REDUCES .reduces = true, .redop = op

/* The body of each function. This is a macro, because it needs the return address of the exported function. */
#define DECIDE(name, send, recv, elements, ...) \
    struct cecl_nccl_call call = {.op = CECL_NCCL_OP_##name, \
                                  .comm = comm, \
                                  .stream = stream, \
                                  .datatype = datatype, \
                                  .count = elements, \
                                  .sendbuff = send, \
                                  .recvbuff = recv, \
                                  __VA_ARGS__}; \
    ncclResult_t result; \
    return cecl_nccl_take(&call, __builtin_return_address(0), &result) ? result \
                                                                       : cecl_nccl_pass(&call)

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclAllGather, sendbuff, recvbuff, sendcount, .root = 0);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    DECIDE(ncclAllReduce, sendbuff, recvbuff, count, REDUCES, .root = 0);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclAlltoAll, sendbuff, recvbuff, count, .root = 0);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    DECIDE(ncclBcast, buff, buff, count, .root = root);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclBroadcast, sendbuff, recvbuff, count, .root = root);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclGather, sendbuff, recvbuff, count, .root = root);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclRecv, NULL, recvbuff, count, .root = peer);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclReduce, sendbuff, recvbuff, count, REDUCES, .root = root);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    DECIDE(ncclReduceScatter, sendbuff, recvbuff, recvcount, REDUCES, .root = 0);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclScatter, sendbuff, recvbuff, count, .root = root);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    DECIDE(ncclSend, sendbuff, NULL, count, .root = peer);
}

#define COUNTED CECL_NCCL_ALIAS
#include "nccl/names.h"
