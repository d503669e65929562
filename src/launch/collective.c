/* Makes public calls from their arguments. This file does not know what a collective does. */
#include "launch/collective.h"

#include "comm/trace.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/make.h"
#include "launch/plan.h"

/* Ends the trace of a call. The trace does not use the description of a refused call, because that
 * description may be incomplete. */
static void trace_end(const struct cecl_traced *traced, const struct cecl_call *call,
                      const char *path, ceclResult_t result)
{
    uint64_t send_bytes = 0, recv_bytes = 0;
    if (!traced->trace)
        return;
    if (result == ceclSuccess)
        cecl_call_sizes(call, &send_bytes, &recv_bytes);
    cecl_trace_end(traced, send_bytes, recv_bytes, path, result);
}

/* Makes a lone call, or keeps a call of a group. `path`: how the call is carried out, for the trace. */
static ceclResult_t call_entered(const struct cecl_args *args, ceclComm_t comm, ceclStream_t stream,
                                 struct cecl_call *call)
{
    const struct cecl_traced traced = cecl_trace_begin(comm, call->op->name);
    const char *path = "refused";
    if (cecl_group_is_open()) {
        const ceclResult_t kept = cecl_group_add(comm, args, stream, call);
        trace_end(&traced, call, kept == ceclSuccess ? "kept for the group's end" : path, kept);
        return kept;
    }
    struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call->op), stream);
    ceclResult_t result = ceclOutOfMemory;
    if (launch)
        result = cecl_launch_make(launch, call, cecl_launch_describe(launch, args, call));
    if (result == ceclSuccess)
        path = cecl_launch_path(launch);
    trace_end(&traced, call, path, result);
    cecl_launch_drop(launch);
    return result;
}

ceclResult_t cecl_collective(enum cecl_op_index index, const struct cecl_args *args,
                             ceclComm_t comm, ceclStream_t stream)
{
    struct cecl_call call = {.op = &cecl_ops[index]};
    const bool is_grouped = cecl_group_is_open();
    if (is_grouped)
        cecl_group_count();
    ceclResult_t result = cecl_comm_check(comm);
    if (result == ceclSuccess)
        result = cecl_comm_enter(comm, call.op->name);
    if (result != ceclSuccess) /* in a group, the whole group is refused */
        return is_grouped ? cecl_group_refuse_call(comm, result) : result;
    return cecl_comm_left(comm, call_entered(args, comm, stream, &call));
}

ceclResult_t cecl_collective_explain(enum cecl_op_index index, const struct cecl_args *args,
                                     ceclComm_t comm, ceclExplanation_t *explanation)
{
    struct cecl_call call = {.op = &cecl_ops[index]};
    CECL_TRY(cecl_comm_enter(comm, "ceclExplain"));
    struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call.op), NULL);
    ceclResult_t result = launch ? cecl_launch_describe(launch, args, &call) : ceclOutOfMemory;
    if (result == ceclSuccess)
        result = cecl_launches_explain(launch, explanation);
    cecl_launch_drop(launch);
    return cecl_comm_left(comm, result);
}
