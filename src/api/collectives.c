/* The public collectives. Each passes its arguments to its row of the table of collectives. */
#include "launch/collective.h"
#include "launch/describe.h"
#include "launch/group.h"

#define CALL(op, ...)                                                                              \
    return cecl_collective(CECL_OP_##op, &(const struct cecl_args){__VA_ARGS__}, comm, stream)

CECL_API ceclResult_t ceclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_GATHER, .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype);
}

CECL_API ceclResult_t ceclAllGatherStrided(const void *sendbuff, void *recvbuff,
                                           const ceclStrided_t *strided, ceclDataType_t datatype,
                                           ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_GATHER_STRIDED, .send = sendbuff, .recv = recvbuff, .strided = strided,
         .type = datatype);
}

CECL_API ceclResult_t ceclAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                                     const size_t recvcounts[], const size_t displs[],
                                     ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_GATHERV, .send = sendbuff, .recv = recvbuff, .count = sendcount,
         .recvcounts = recvcounts, .rdispls = displs, .type = datatype);
}

CECL_API ceclResult_t ceclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                    ceclDataType_t datatype, int root, ceclComm_t comm,
                                    ceclStream_t stream)
{
    CALL(BROADCAST, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                   ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_TO_ALL, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllStrided(const void *sendbuff, void *recvbuff,
                                          const ceclStrided_t *strided, ceclDataType_t datatype,
                                          ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_TO_ALL_STRIDED, .send = sendbuff, .recv = recvbuff, .strided = strided,
         .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllv(const void *sendbuff, const size_t sendcounts[],
                                    const size_t sdispls[], void *recvbuff,
                                    const size_t recvcounts[], const size_t rdispls[],
                                    ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_TO_ALLV, .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts,
         .sdispls = sdispls, .recvcounts = recvcounts, .rdispls = rdispls, .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllvAt(const void *sendbuff, const size_t sendcounts[],
                                      const size_t sdispls[], void *recvbuff,
                                      const size_t recvcounts[], const size_t rdispls[],
                                      const size_t peerdispls[], ceclDataType_t datatype,
                                      ceclComm_t comm, ceclStream_t stream)
{
    CALL(ALL_TO_ALLV_AT, .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts,
         .sdispls = sdispls, .recvcounts = recvcounts, .rdispls = rdispls, .peerdispls = peerdispls,
         .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllvDevice(const void *sendbuff, size_t sendrows,
                                          const uint64_t *sendsplits, void *recvbuff,
                                          size_t recvrows, uint64_t *recvsplits, size_t rowcount,
                                          ceclDataType_t datatype, ceclComm_t comm,
                                          ceclStream_t stream)
{
    const struct cecl_splits_args splits = {sendrows, recvrows, sendsplits, recvsplits, NULL};
    CALL(ALL_TO_ALLV_DEVICE, .send = sendbuff, .recv = recvbuff, .count = rowcount,
         .type = datatype, .splits = &splits);
}

CECL_API ceclResult_t ceclDispatch(const void *sendbuff, size_t sendrows,
                                   const uint64_t *sendsplits, void *recvbuff, size_t recvrows,
                                   uint64_t *recvsplits, const ceclExperts_t *experts,
                                   size_t rowcount, ceclDataType_t datatype, ceclComm_t comm,
                                   ceclStream_t stream)
{
    const struct cecl_splits_args splits = {sendrows, recvrows, sendsplits, recvsplits, experts};
    CALL(DISPATCH, .send = sendbuff, .recv = recvbuff, .count = rowcount, .type = datatype,
         .splits = &splits);
}

CECL_API ceclResult_t ceclCombine(const void *sendbuff, size_t sendrows, const uint64_t *sendsplits,
                                  void *recvbuff, size_t recvrows, uint64_t *recvsplits,
                                  const ceclExperts_t *experts, size_t rowcount,
                                  ceclDataType_t datatype, ceclComm_t comm, ceclStream_t stream)
{
    const struct cecl_splits_args splits = {sendrows, recvrows, sendsplits, recvsplits, experts};
    CALL(COMBINE, .send = sendbuff, .recv = recvbuff, .count = rowcount, .type = datatype,
         .splits = &splits);
}

CECL_API ceclResult_t ceclGather(const void *sendbuff, void *recvbuff, size_t count,
                                 ceclDataType_t datatype, int root, ceclComm_t comm,
                                 ceclStream_t stream)
{
    CALL(GATHER, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclScatter(const void *sendbuff, void *recvbuff, size_t count,
                                  ceclDataType_t datatype, int root, ceclComm_t comm,
                                  ceclStream_t stream)
{
    CALL(SCATTER, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                        ceclDataType_t datatype, ceclRedOp_t op, ceclComm_t comm,
                                        ceclStream_t stream)
{
    CALL(REDUCE_SCATTER, .send = sendbuff, .recv = recvbuff, .count = recvcount, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclReduceScatterTiles(const void *sendbuff, void *recvbuff,
                                             const ceclTiles_t *tiles, ceclDataType_t datatype,
                                             ceclRedOp_t op, ceclComm_t comm, ceclStream_t stream)
{
    CALL(REDUCE_SCATTER_TILES, .send = sendbuff, .recv = recvbuff, .tiles = tiles, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    ceclDataType_t datatype, ceclRedOp_t op, ceclComm_t comm,
                                    ceclStream_t stream)
{
    CALL(ALL_REDUCE, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclReduce(const void *sendbuff, void *recvbuff, size_t count,
                                 ceclDataType_t datatype, ceclRedOp_t op, int root, ceclComm_t comm,
                                 ceclStream_t stream)
{
    CALL(REDUCE, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op,
         .root = root);
}

CECL_API ceclResult_t ceclSend(const void *sendbuff, size_t count, ceclDataType_t datatype,
                               int peer, ceclComm_t comm, ceclStream_t stream)
{
    CALL(SEND, .send = sendbuff, .count = count, .type = datatype, .root = peer);
}

CECL_API ceclResult_t ceclRecv(void *recvbuff, size_t count, ceclDataType_t datatype, int peer,
                               ceclComm_t comm, ceclStream_t stream)
{
    CALL(RECV, .recv = recvbuff, .count = count, .type = datatype, .root = peer);
}

CECL_API ceclResult_t ceclBarrier(ceclComm_t comm, ceclStream_t stream)
{
    return cecl_collective(CECL_OP_BARRIER, &(struct cecl_args){0}, comm, stream);
}

static ceclResult_t find_shard(ceclComm_t comm, const struct cecl_args *args, void **shard)
{
    struct cecl_call call;
    const struct cecl_scope scope = cecl_comm_scope(comm);
    CECL_TRY(cecl_call_describe(&cecl_ops[CECL_OP_ALL_GATHER], &scope, args, &call));
    CECL_TRY(
        cecl_window_check(&comm->windows, call.recv, cecl_call_recv_needed(&call), "recvbuff"));
    *shard = (char *)args->recv + cecl_call_block(&call, comm->rank, comm->rank).recv_offset;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclShard(ceclComm_t comm, void *recvbuff, size_t count,
                                ceclDataType_t datatype, void **shard)
{
    const struct cecl_args args = {
        .send = recvbuff, .recv = recvbuff, .count = count, .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    if (!recvbuff || !shard)
        return cecl_fail(ceclInvalidArgument, "%s: NULL", recvbuff ? "shard" : "recvbuff");
    CECL_TRY(cecl_comm_enter(comm, "ceclShard"));
    return cecl_comm_left(comm, find_shard(comm, &args, shard));
}

CECL_API ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff, const void *recvbuff,
                                  size_t count, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclExplanation_t *explanation)
{
    const struct cecl_args args = {
        .send = sendbuff, .recv = (void *)(uintptr_t)recvbuff, .count = count, .type = datatype};
    const enum cecl_op_index index =
        op == ceclOpAllGather ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL;
    CECL_TRY(cecl_comm_check(comm));
    if (!explanation)
        return cecl_fail(ceclInvalidArgument, "explanation: NULL");
    /* other calls have arguments that this function lacks */
    if (op != ceclOpAllGather && op != ceclOpAlltoAll)
        return cecl_fail(ceclInvalidArgument,
                         "op %d: ceclOpAllGather or ceclOpAlltoAll expected; ceclGroupExplain "
                         "explains all other calls",
                         (int)op);
    if (cecl_group_waiting(comm) > 0)
        return cecl_fail(ceclInvalidUsage, "this thread has calls on comm in a group that has not "
                                           "ended; ceclGroupExplain explains them");
    return cecl_collective_explain(index, &args, comm, explanation);
}
