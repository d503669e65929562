/* Makes public calls from their arguments. This file does not know what a collective does. */
#include "launch/collective.h"

#include "device/nvtx.h"
#include "launch/describe.h"
#include "launch/group.h"
#include "launch/make.h"

/* Makes a lone call, or keeps a call of a group. */
static ceclResult_t call_entered(const struct cecl_args *args, ceclComm_t comm, ceclStream_t stream,
                                 struct cecl_call *call)
{
    const bool range = cecl_nvtx_begin(comm->has_ranges, call->op->name);
    ceclResult_t result = ceclOutOfMemory;
    if (cecl_group_is_open()) {
        result = cecl_group_add(comm, args, stream, call);
    } else {
        struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call->op), stream);
        if (launch)
            result = cecl_launch_make(launch, call, cecl_launch_describe(launch, args, call));
        cecl_launch_drop(launch);
    }
    cecl_nvtx_end(range);
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
