/* The public collectives and messages. Each function passes its arguments to the row of its collective in cecl_ops. */
#include "launch/group.h"
#include "launch/make.h"

#define CALL(op, ...) \
    CECL_PUBLIC; \
    return cecl_collective(CECL_OP_##op, &(const struct cecl_args){__VA_ARGS__}, comm, stream)

/* Defines a public call. */
#define DEFINE(name, op, parameters, ...) \
    CECL_API ceclResult_t name(UNPACKED parameters, ceclComm_t comm, ceclStream_t stream) \
    { \
        CALL(op, __VA_ARGS__); \
    }
#define UNPACKED(...) __VA_ARGS__

DEFINE(ceclAllGather, ALL_GATHER,
       (const void *sendbuff, void *recvbuff, size_t sendcount, ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype)

DEFINE(ceclAllGatherStrided, ALL_GATHER_STRIDED,
       (const void *sendbuff, void *recvbuff, const ceclStrided_t *strided,
        ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .strided = strided, .type = datatype)

DEFINE(ceclAllGatherv, ALL_GATHERV,
       (const void *sendbuff, size_t sendcount, void *recvbuff, const size_t recvcounts[],
        const size_t displs[], ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .count = sendcount, .recvcounts = recvcounts,
       .rdispls = displs, .type = datatype)

DEFINE(ceclBroadcast, BROADCAST,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype, int root),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

DEFINE(ceclAlltoAll, ALL_TO_ALL,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype)

DEFINE(ceclAlltoAllStrided, ALL_TO_ALL_STRIDED,
       (const void *sendbuff, void *recvbuff, const ceclStrided_t *strided,
        ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .strided = strided, .type = datatype)

DEFINE(ceclAlltoAllv, ALL_TO_ALLV,
       (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
        const size_t recvcounts[], const size_t rdispls[], ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts, .sdispls = sdispls,
       .recvcounts = recvcounts, .rdispls = rdispls, .type = datatype)

DEFINE(ceclAlltoAllvAt, ALL_TO_ALLV_AT,
       (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
        const size_t recvcounts[], const size_t rdispls[], const size_t peerdispls[],
        ceclDataType_t datatype),
       .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts, .sdispls = sdispls,
       .recvcounts = recvcounts, .rdispls = rdispls, .peerdispls = peerdispls, .type = datatype)

/* The parameters of calls by splits on the device. */
#define SPLITS_PARAMETERS \
    const void *sendbuff, size_t sendrows, const uint64_t *sendsplits, void *recvbuff, \
        size_t recvrows, uint64_t *recvsplits
#define SPLITS(experts) \
    .send = sendbuff, .recv = recvbuff, .count = rowcount, .type = datatype, \
    .splits = &(const struct cecl_splits_args) \
    { \
        sendrows, recvrows, sendsplits, recvsplits, experts \
    }

DEFINE(ceclAlltoAllvDevice, ALL_TO_ALLV_DEVICE,
       (SPLITS_PARAMETERS, size_t rowcount, ceclDataType_t datatype), SPLITS(NULL))

DEFINE(ceclDispatch, DISPATCH,
       (SPLITS_PARAMETERS, const ceclExperts_t *experts, size_t rowcount, ceclDataType_t datatype),
       SPLITS(experts))

DEFINE(ceclCombine, COMBINE,
       (SPLITS_PARAMETERS, const ceclExperts_t *experts, size_t rowcount, ceclDataType_t datatype),
       SPLITS(experts))

DEFINE(ceclGather, GATHER,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype, int root),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

DEFINE(ceclScatter, SCATTER,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype, int root),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

DEFINE(ceclReduceScatter, REDUCE_SCATTER,
       (const void *sendbuff, void *recvbuff, size_t recvcount, ceclDataType_t datatype,
        ceclRedOp_t op),
       .send = sendbuff, .recv = recvbuff, .count = recvcount, .type = datatype, .red_op = op)

DEFINE(ceclReduceScatterTiles, REDUCE_SCATTER_TILES,
       (const void *sendbuff, void *recvbuff, const ceclTiles_t *tiles, ceclDataType_t datatype,
        ceclRedOp_t op),
       .send = sendbuff, .recv = recvbuff, .tiles = tiles, .type = datatype, .red_op = op)

CECL_API ceclResult_t ceclReduceScatterAs(const void *sendbuff, void *recvbuff, size_t recvcount,
                                          ceclDataType_t sendtype, ceclDataType_t recvtype,
                                          ceclRedOp_t op, ceclComm_t comm, ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_args args = {.send = sendbuff,
                                   .recv = recvbuff,
                                   .count = recvcount,
                                   .type = sendtype,
                                   .recv_type = recvtype,
                                   .red_op = op};
    return cecl_collective(sendtype == recvtype ? CECL_OP_REDUCE_SCATTER
                                                : CECL_OP_REDUCE_SCATTER_AS,
                           &args, comm, stream);
}

DEFINE(ceclAllReduce, ALL_REDUCE,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
        ceclRedOp_t op),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op)

DEFINE(ceclReduce, REDUCE,
       (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype, ceclRedOp_t op,
        int root),
       .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op,
       .root = root)

DEFINE(ceclSend, SEND, (const void *sendbuff, size_t count, ceclDataType_t datatype, int peer),
       .send = sendbuff, .count = count, .type = datatype, .root = peer)

DEFINE(ceclRecv, RECV, (void *recvbuff, size_t count, ceclDataType_t datatype, int peer),
       .recv = recvbuff, .count = count, .type = datatype, .root = peer)

CECL_API ceclResult_t ceclBarrier(ceclComm_t comm, ceclStream_t stream)
{
    CALL(BARRIER, .send = NULL);
}

CECL_API ceclResult_t ceclShard(ceclComm_t comm, void *recvbuff, size_t count,
                                ceclDataType_t datatype, void **shard)
{
    CECL_PUBLIC;
    const struct cecl_args args = {
        .send = recvbuff, .recv = recvbuff, .count = count, .type = datatype};
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("recvbuff", recvbuff));
    CECL_TRY(cecl_check_given("shard", shard));
    CECL_INSIDE(comm, "ceclShard");
    struct cecl_call call;
    const struct cecl_scope scope = cecl_comm_scope(comm);
    CECL_TRY(cecl_call_describe(&cecl_ops[CECL_OP_ALL_GATHER], &scope, &args, &call));
    CECL_TRY(
        cecl_window_check(&comm->windows, call.recv, cecl_call_recv_needed(&call), "recvbuff"));
    *shard = (char *)recvbuff + cecl_call_block(&call, comm->rank, comm->rank).recv_offset;
    return ceclSuccess;
}

CECL_API ceclResult_t ceclExplain(ceclOp_t op, const void *sendbuff, const void *recvbuff,
                                  size_t count, ceclDataType_t datatype, ceclComm_t comm,
                                  ceclExplanation_t *explanation)
{
    CECL_PUBLIC;
    const struct cecl_args args = {
        .send = sendbuff, .recv = (void *)(uintptr_t)recvbuff, .count = count, .type = datatype};
    const enum cecl_op_index index =
        op == ceclOpAllGather ? CECL_OP_ALL_GATHER : CECL_OP_ALL_TO_ALL;
    CECL_TRY(cecl_comm_check(comm));
    CECL_TRY(cecl_check_given("explanation", explanation));
    /* other collectives need arguments that this function does not take */
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
