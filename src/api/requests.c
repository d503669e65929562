/* The public calls that start and free requests. collectives.c has those that make requests. */
#include "comm/trace.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/request.h"

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
            cecl_group_check_outside(name, "; ceclGroupInit makes one request from several calls"));
    CECL_TRY(cecl_comm_enter(comm, name));
    const struct cecl_traced traced = cecl_trace_begin(comm, name);
    const char *path = NULL;
    const ceclResult_t result = cecl_request_start(request, signal, stream, &path);
    if (traced.trace)
        cecl_trace_end(&traced, request->send_bytes, request->recv_bytes,
                       result != ceclSuccess ? "refused"
                       : path                ? path
                                             : path_of(request),
                       result);
    cecl_comm_leave(comm);
    return result;
}

CECL_API ceclResult_t ceclStart(ceclRequest_t request, ceclStream_t stream)
{
    CECL_PUBLIC;
    return start(cecl_ops[CECL_OP_START].name, request, NULL, stream);
}

CECL_API ceclResult_t ceclStartOnSignal(ceclRequest_t request, uint32_t *word, uint32_t value,
                                        ceclStream_t stream)
{
    CECL_PUBLIC;
    const struct cecl_start_signal signal = {word, value};
    return start(CECL_START_ON_SIGNAL, request, &signal, stream);
}

CECL_API ceclResult_t ceclGetDeviceChunks(ceclRequest_t request, ceclDeviceChunks_t *chunks)
{
    CECL_PUBLIC;
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
    CECL_PUBLIC;
    const char *name = "ceclWaitChunk";
    CECL_TRY(cecl_request_check(request));
    ceclComm_t comm = request->comm;
    CECL_TRY(cecl_comm_check(comm));
    if (cecl_group_is_open())
        return cecl_group_refuse(
            cecl_group_check_outside(name, "; it cannot be carried out together with other calls"));
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
    CECL_PUBLIC;
    const char *name = cecl_ops[CECL_OP_READY].name;
    CECL_TRY(check_all(requests, count));
    if (cecl_group_is_open())
        return cecl_group_refuse(
            cecl_group_check_outside(name, "; it cannot be carried out together with other calls"));
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
    CECL_PUBLIC;
    return ceclReadyAll(&request, 1, stream);
}

CECL_API ceclResult_t ceclRequestFree(ceclRequest_t request)
{
    CECL_PUBLIC;
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
