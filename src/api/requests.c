/* The public calls that make, start and free requests. Each ...Init passes its arguments to the row of its
 * call, as the call itself does. */
#include "comm/trace.h"
#include "launch/collective.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/request.h"

/* ---- making */

static ceclResult_t refuse_in_group(const char *name, const char *instead)
{
    return cecl_fail(ceclInvalidUsage, "%s: call it outside a group; %s", name, instead);
}

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
    if (cecl_group_is_open())
        return refuse_in_group(name, "ceclGroupInit makes a request from the group's calls");
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const ceclResult_t result = init_entered(index, args, comm, request);
    cecl_trace_end(&traced, 0, 0, cecl_ops[index].name, result);
    cecl_comm_leave(comm);
    return result;
}

#define INIT(op, ...)                                                                              \
    return init(CECL_OP_##op, &(const struct cecl_args){__VA_ARGS__}, comm, request)

CECL_API ceclResult_t ceclAllGatherInit(const void *sendbuff, void *recvbuff, size_t sendcount,
                                        ceclDataType_t datatype, ceclComm_t comm,
                                        ceclRequest_t *request)
{
    INIT(ALL_GATHER, .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype);
}

CECL_API ceclResult_t ceclAllGatherChunksInit(const void *sendbuff, void *recvbuff,
                                              size_t sendcount, int chunks, ceclDataType_t datatype,
                                              ceclComm_t comm, ceclRequest_t *request)
{
    INIT(ALL_GATHER, .send = sendbuff, .recv = recvbuff, .count = sendcount, .type = datatype,
         .chunks = chunks < 1 ? -1 : chunks);
}

CECL_API ceclResult_t ceclAllGatherStridedInit(const void *sendbuff, void *recvbuff,
                                               const ceclStrided_t *strided,
                                               ceclDataType_t datatype, ceclComm_t comm,
                                               ceclRequest_t *request)
{
    INIT(ALL_GATHER_STRIDED, .send = sendbuff, .recv = recvbuff, .strided = strided,
         .type = datatype);
}

CECL_API ceclResult_t ceclAllGathervInit(const void *sendbuff, size_t sendcount, void *recvbuff,
                                         const size_t recvcounts[], const size_t displs[],
                                         ceclDataType_t datatype, ceclComm_t comm,
                                         ceclRequest_t *request)
{
    INIT(ALL_GATHERV, .send = sendbuff, .recv = recvbuff, .count = sendcount,
         .recvcounts = recvcounts, .rdispls = displs, .type = datatype);
}

CECL_API ceclResult_t ceclBroadcastInit(const void *sendbuff, void *recvbuff, size_t count,
                                        ceclDataType_t datatype, int root, ceclComm_t comm,
                                        ceclRequest_t *request)
{
    INIT(BROADCAST, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclAlltoAllInit(const void *sendbuff, void *recvbuff, size_t count,
                                       ceclDataType_t datatype, ceclComm_t comm,
                                       ceclRequest_t *request)
{
    INIT(ALL_TO_ALL, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllStridedInit(const void *sendbuff, void *recvbuff,
                                              const ceclStrided_t *strided, ceclDataType_t datatype,
                                              ceclComm_t comm, ceclRequest_t *request)
{
    INIT(ALL_TO_ALL_STRIDED, .send = sendbuff, .recv = recvbuff, .strided = strided,
         .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllvInit(const void *sendbuff, const size_t sendcounts[],
                                        const size_t sdispls[], void *recvbuff,
                                        const size_t recvcounts[], const size_t rdispls[],
                                        ceclDataType_t datatype, ceclComm_t comm,
                                        ceclRequest_t *request)
{
    INIT(ALL_TO_ALLV, .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts,
         .sdispls = sdispls, .recvcounts = recvcounts, .rdispls = rdispls, .type = datatype);
}

CECL_API ceclResult_t ceclAlltoAllvAtInit(const void *sendbuff, const size_t sendcounts[],
                                          const size_t sdispls[], void *recvbuff,
                                          const size_t recvcounts[], const size_t rdispls[],
                                          const size_t peerdispls[], ceclDataType_t datatype,
                                          ceclComm_t comm, ceclRequest_t *request)
{
    INIT(ALL_TO_ALLV_AT, .send = sendbuff, .recv = recvbuff, .sendcounts = sendcounts,
         .sdispls = sdispls, .recvcounts = recvcounts, .rdispls = rdispls, .peerdispls = peerdispls,
         .type = datatype);
}

CECL_API ceclResult_t ceclGatherInit(const void *sendbuff, void *recvbuff, size_t count,
                                     ceclDataType_t datatype, int root, ceclComm_t comm,
                                     ceclRequest_t *request)
{
    INIT(GATHER, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclScatterInit(const void *sendbuff, void *recvbuff, size_t count,
                                      ceclDataType_t datatype, int root, ceclComm_t comm,
                                      ceclRequest_t *request)
{
    INIT(SCATTER, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .root = root);
}

CECL_API ceclResult_t ceclReduceScatterInit(const void *sendbuff, void *recvbuff, size_t recvcount,
                                            ceclDataType_t datatype, ceclRedOp_t op,
                                            ceclComm_t comm, ceclRequest_t *request)
{
    INIT(REDUCE_SCATTER, .send = sendbuff, .recv = recvbuff, .count = recvcount, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclReduceScatterTilesInit(const void *sendbuff, void *recvbuff,
                                                 const ceclTiles_t *tiles, ceclDataType_t datatype,
                                                 ceclRedOp_t op, ceclComm_t comm,
                                                 ceclRequest_t *request)
{
    INIT(REDUCE_SCATTER_TILES, .send = sendbuff, .recv = recvbuff, .tiles = tiles, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclAllReduceInit(const void *sendbuff, void *recvbuff, size_t count,
                                        ceclDataType_t datatype, ceclRedOp_t op, ceclComm_t comm,
                                        ceclRequest_t *request)
{
    INIT(ALL_REDUCE, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype,
         .red_op = op);
}

CECL_API ceclResult_t ceclReduceInit(const void *sendbuff, void *recvbuff, size_t count,
                                     ceclDataType_t datatype, ceclRedOp_t op, int root,
                                     ceclComm_t comm, ceclRequest_t *request)
{
    INIT(REDUCE, .send = sendbuff, .recv = recvbuff, .count = count, .type = datatype, .red_op = op,
         .root = root);
}

CECL_API ceclResult_t ceclSendInit(const void *sendbuff, size_t count, ceclDataType_t datatype,
                                   int peer, ceclComm_t comm, ceclRequest_t *request)
{
    INIT(SEND, .send = sendbuff, .count = count, .type = datatype, .root = peer);
}

CECL_API ceclResult_t ceclRecvInit(void *recvbuff, size_t count, ceclDataType_t datatype, int peer,
                                   ceclComm_t comm, ceclRequest_t *request)
{
    INIT(RECV, .recv = recvbuff, .count = count, .type = datatype, .root = peer);
}

CECL_API ceclResult_t ceclBarrierInit(ceclComm_t comm, ceclRequest_t *request)
{
    return init(CECL_OP_BARRIER, &(struct cecl_args){0}, comm, request);
}

/* ---- starting and freeing */

/* How the request's calls are carried out, for the trace. */
static const char *path_of(ceclRequest_t request)
{
    const struct cecl_launch *launch = request->collectives;
    return launch && launch->runs ? cecl_bound_explanation(launch->program)->path
           : request->messages    ? "point to point"
                                  : "nothing to do";
}

static ceclResult_t start(const char *name, ceclRequest_t request,
                          const struct cecl_start_signal *signal, ceclStream_t stream)
{
    CECL_TRY(cecl_request_check(request));
    ceclComm_t comm = request->comm;
    CECL_TRY(cecl_comm_check(comm));
    if (cecl_group_is_open())
        return cecl_group_refuse(
            refuse_in_group(name, "ceclGroupInit makes one request from several calls"));
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const ceclResult_t result = cecl_request_start(request, signal, stream);
    if (traced.trace)
        cecl_trace_end(&traced, request->send_bytes, request->recv_bytes,
                       result == ceclSuccess ? path_of(request) : "refused", result);
    cecl_comm_leave(comm);
    return result;
}

CECL_API ceclResult_t ceclStart(ceclRequest_t request, ceclStream_t stream)
{
    return start(cecl_ops[CECL_OP_START].name, request, NULL, stream);
}

CECL_API ceclResult_t ceclStartOnSignal(ceclRequest_t request, uint32_t *word, uint32_t value,
                                        ceclStream_t stream)
{
    const struct cecl_start_signal signal = {word, value};
    return start(CECL_START_ON_SIGNAL, request, &signal, stream);
}

CECL_API ceclResult_t ceclGetDeviceChunks(ceclRequest_t request, ceclDeviceChunks_t *chunks)
{
    CECL_TRY(cecl_request_check(request));
    ceclComm_t comm = request->comm;
    CECL_TRY(cecl_comm_check(comm));
    if (!chunks)
        return cecl_fail(ceclInvalidArgument, "chunks: NULL");
    CECL_TRY(cecl_comm_enter(comm, "ceclGetDeviceChunks"));
    return cecl_comm_left(comm, cecl_request_describe_chunks(request, chunks));
}

CECL_API ceclResult_t ceclWaitChunk(ceclRequest_t request, int peer, int chunk, ceclStream_t stream)
{
    const char *name = "ceclWaitChunk";
    CECL_TRY(cecl_request_check(request));
    ceclComm_t comm = request->comm;
    CECL_TRY(cecl_comm_check(comm));
    if (cecl_group_is_open())
        return cecl_group_refuse(
            refuse_in_group(name, "it cannot be carried out together with other calls"));
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const ceclResult_t result = cecl_request_wait_chunk(request, peer, chunk, stream);
    cecl_trace_end(&traced, 0, 0, "waits for signals", result);
    return cecl_comm_left(comm, result);
}

/* Requires that all requests are valid, and that the first request's communicator is usable. */
static ceclResult_t check_all(ceclRequest_t *requests, int count)
{
    if (!requests || count < 1)
        return cecl_fail(ceclInvalidArgument, "requests %p, count %d: 1 request at least expected",
                         (void *)requests, count);
    for (int i = 0; i < count; i++)
        CECL_TRY(cecl_request_check(requests[i]));
    return cecl_comm_check(requests[0]->comm);
}

CECL_API ceclResult_t ceclReadyAll(ceclRequest_t *requests, int count, ceclStream_t stream)
{
    const char *name = cecl_ops[CECL_OP_READY].name;
    CECL_TRY(check_all(requests, count));
    if (cecl_group_is_open())
        return cecl_group_refuse(
            refuse_in_group(name, "it cannot be carried out together with other calls"));
    ceclComm_t comm = requests[0]->comm;
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const ceclResult_t result = cecl_requests_ready(requests, count, stream);
    cecl_trace_end(&traced, 0, 0, "signals to all", result);
    cecl_comm_leave(comm);
    return result;
}

CECL_API ceclResult_t ceclReady(ceclRequest_t request, ceclStream_t stream)
{
    return ceclReadyAll(&request, 1, stream);
}

CECL_API ceclResult_t ceclRequestFree(ceclRequest_t request)
{
    if (cecl_request_forget(request))
        return ceclSuccess;
    CECL_TRY(cecl_request_check(request));
    ceclComm_t comm = request->comm;
    CECL_TRY(cecl_comm_check_handle(comm));
    CECL_TRY(cecl_comm_enter(comm, "ceclRequestFree"));
    const ceclResult_t result = cecl_request_free(request);
    cecl_comm_leave(comm);
    return result;
}
