/* Starts that a graph captures: the request's calls are described once more, and captured as if the program made
 * them there. The graph holds the launches that are made here, and uses nothing of the request. */
#include "launch/captured.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/make.h"
#include "launch/plan.h"
#include "launch/request.h"

/* Refuses a start that cannot be captured. Peers may write once to the buffers of a request that was made ready, but
 * a graph is launched any number of times. */
static ceclResult_t check(ceclRequest_t request, const struct cecl_start_signal *signal,
                          ceclStream_t stream)
{
    if (signal)
        return cecl_fail(ceclInvalidUsage,
                         "stream %p: captures a graph, and " CECL_START_ON_SIGNAL
                         " cannot be captured, because it waits for one value of its word; capture "
                         "ceclStart",
                         (void *)stream);
    if (request->is_ready)
        return cecl_fail(ceclInvalidUsage,
                         "request %p: made ready, and stream %p captures a graph; start the "
                         "request once on a stream that captures nothing, or capture it before "
                         "ceclReady",
                         (void *)request, (void *)stream);
    return cecl_captured_check_thread(
        request->comm, cecl_ops[CECL_OP_START].name,
        "capture their calls in one group instead of starts of requests");
}

/* Describes the request's calls of one kind in *launch, if it has such calls. `local`: the result of this rank's
 * checks so far. After an error the launch has no calls, but ranks that compare calls still exchange it. */
static ceclResult_t describe(const struct cecl_launch *kept, ceclStream_t stream,
                             ceclResult_t local, struct cecl_launch **launch)
{
    if (!kept)
        return local;
    *launch = cecl_launch_take(kept->comm, (enum cecl_launch_kind)kept->kind, stream);
    if (!*launch)
        return ceclOutOfMemory;
    return local == ceclSuccess ? cecl_launch_describe_again(*launch, kept) : local;
}

/* Goes the way of the plain call, or of a group's end. */
static ceclResult_t make(ceclRequest_t request, struct cecl_launch *first, ceclResult_t local)
{
    const struct cecl_launch *kept =
        request->collectives ? request->collectives : request->messages;
    if (!first) /* no host memory */
        return local;
    return request->is_grouped ? cecl_group_carry_out_list(first, local)
                               : cecl_launch_make(first, &kept->calls[0], local);
}

ceclResult_t cecl_request_capture(ceclRequest_t request, const struct cecl_start_signal *signal,
                                  ceclStream_t stream, ceclResult_t local, const char **path)
{
    struct cecl_launch *collectives = NULL, *messages = NULL;
    if (local == ceclSuccess)
        local = check(request, signal, stream);
    local = describe(request->collectives, stream, local, &collectives);
    local = describe(request->messages, stream, local, &messages);
    if (collectives)
        collectives->next = messages;
    struct cecl_launch *first = collectives ? collectives : messages;
    const ceclResult_t result = make(request, first, local);
    if (result == ceclSuccess)
        *path = cecl_launch_path(first);
    cecl_launch_drop(collectives);
    cecl_launch_drop(messages);
    return result;
}
