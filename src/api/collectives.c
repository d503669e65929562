/* The public collectives and messages, and the functions that make requests of them. Each passes its arguments
 * to its row of the table of collectives. */
#include "comm/trace.h"
#include "launch/collective.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/request.h"

static ceclResult_t init_entered(enum cecl_op_index index, const struct cecl_args *args,
                                 ceclComm_t comm, ceclRequest_t *request)
{
    struct cecl_call call = {.op = &cecl_ops[index]};
    struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call.op), NULL);
    if (!launch)
        return ceclOutOfMemory;
    const ceclResult_t local = cecl_launch_describe(launch, args, &call);
    const bool is_message = launch->kind == CECL_LAUNCH_MESSAGES;
    return cecl_request_make(comm, is_message ? NULL : launch, is_message ? launch : NULL, &call,
                             local, request);
}

static ceclResult_t init(enum cecl_op_index index, const struct cecl_args *args, ceclComm_t comm,
                         ceclRequest_t *request)
{
    const char *name = cecl_ops[CECL_OP_INIT].name;
    CECL_TRY(cecl_comm_check(comm));
    if (!request)
        return cecl_fail(ceclInvalidArgument, "request: NULL");
    CECL_TRY(
        cecl_group_check_outside(name, "; ceclGroupInit makes a request from the group's calls"));
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const ceclResult_t result = init_entered(index, args, comm, request);
    cecl_trace_end(&traced, 0, 0, cecl_ops[index].name, result);
    cecl_comm_leave(comm);
    return result;
}

#define CALL(op, ...)                                                                              \
    CECL_PUBLIC;                                                                                   \
    return cecl_collective(CECL_OP_##op, &(const struct cecl_args){__VA_ARGS__}, comm, stream)
#define INIT(op, ...)                                                                              \
    CECL_PUBLIC;                                                                                   \
    return init(CECL_OP_##op, &(const struct cecl_args){__VA_ARGS__}, comm, request)

/* Defines a call and the ...Init that makes a request of it: they differ only in their last argument. */
#define CALL_AND_INIT(name, op, parameters, ...)                                                   \
    CECL_API ceclResult_t name(UNPACKED parameters, ceclComm_t comm, ceclStream_t stream)          \
    {                                                                                              \
        CALL(op, __VA_ARGS__);                                                                     \
    }                                                                                              \
    CECL_API ceclResult_t name##Init(UNPACKED parameters, ceclComm_t comm, ceclRequest_t *request) \
    {                                                                                              \
        INIT(op, __VA_ARGS__);                                                                     \
    }
#define UNPACKED(...) __VA_ARGS__

CALL_AND_INIT(ceclAllGather, ALL_GATHER,
              (const void *sendbuff, void *recvbuff, size_t sendcount, ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype)

CECL_API ceclResult_t ceclAllGatherChunksInit(const void *sendbuff, void *recvbuff,
                                              size_t sendcount, int chunks, ceclDataType_t datatype,
                                              ceclComm_t comm, ceclRequest_t *request)
{
    INIT(ALL_GATHER, .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype,
         .chunks = chunks < 1 ? -1 : chunks);
}

CALL_AND_INIT(ceclAllGatherStrided, ALL_GATHER_STRIDED,
              (const void *sendbuff, void *recvbuff, const ceclStrided_t *strided,
               ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .strided = strided, .type = datatype)

CALL_AND_INIT(ceclAllGatherv, ALL_GATHERV,
              (const void *sendbuff, size_t sendcount, void *recvbuff, const size_t recvcounts[],
               const size_t displs[], ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .count = sendcount, .recvcounts = recvcounts,
              .rdispls = displs, .type = datatype)

CALL_AND_INIT(ceclBroadcast, BROADCAST,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
               int root),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

CALL_AND_INIT(ceclAlltoAll, ALL_TO_ALL,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype)

CALL_AND_INIT(ceclAlltoAllStrided, ALL_TO_ALL_STRIDED,
              (const void *sendbuff, void *recvbuff, const ceclStrided_t *strided,
               ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .strided = strided, .type = datatype)

CALL_AND_INIT(ceclAlltoAllv, ALL_TO_ALLV,
              (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
               void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
               ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts, .sdispls = sdispls,
              .recvcounts = recvcounts, .rdispls = rdispls, .type = datatype)

CALL_AND_INIT(ceclAlltoAllvAt, ALL_TO_ALLV_AT,
              (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
               void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
               const size_t peerdispls[], ceclDataType_t datatype),
              .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts, .sdispls = sdispls,
              .recvcounts = recvcounts, .rdispls = rdispls, .peerdispls = peerdispls,
              .type = datatype)

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

CALL_AND_INIT(ceclGather, GATHER,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
               int root),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

CALL_AND_INIT(ceclScatter, SCATTER,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
               int root),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .root = root)

CALL_AND_INIT(ceclReduceScatter, REDUCE_SCATTER,
              (const void *sendbuff, void *recvbuff, size_t recvcount, ceclDataType_t datatype,
               ceclRedOp_t op),
              .send = sendbuff, .recv = recvbuff, .count = recvcount, .type = datatype,
              .red_op = op)

CALL_AND_INIT(ceclReduceScatterTiles, REDUCE_SCATTER_TILES,
              (const void *sendbuff, void *recvbuff, const ceclTiles_t *tiles,
               ceclDataType_t datatype, ceclRedOp_t op),
              .send = sendbuff, .recv = recvbuff, .tiles = tiles, .type = datatype, .red_op = op)

CALL_AND_INIT(ceclAllReduce, ALL_REDUCE,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
               ceclRedOp_t op),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op)

CALL_AND_INIT(ceclReduce, REDUCE,
              (const void *sendbuff, void *recvbuff, size_t count, ceclDataType_t datatype,
               ceclRedOp_t op, int root),
              .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op,
              .root = root)

CALL_AND_INIT(ceclSend, SEND,
              (const void *sendbuff, size_t count, ceclDataType_t datatype, int peer),
              .send = sendbuff, .count = count, .type = datatype, .root = peer)

CALL_AND_INIT(ceclRecv, RECV, (void *recvbuff, size_t count, ceclDataType_t datatype, int peer),
              .recv = recvbuff, .count = count, .type = datatype, .root = peer)

CECL_API ceclResult_t ceclBarrier(ceclComm_t comm, ceclStream_t stream)
{
    CALL(BARRIER, .send = NULL);
}

CECL_API ceclResult_t ceclBarrierInit(ceclComm_t comm, ceclRequest_t *request)
{
    INIT(BARRIER, .send = NULL);
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
    CECL_PUBLIC;
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
    CECL_PUBLIC;
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
