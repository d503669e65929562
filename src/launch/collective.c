/* Makes calls from the arguments of public functions. This file does not know what a collective does. */
#include "launch/make.h"

#include "device/nvtx.h"
#include "launch/group.h"
#include "launch/steps.h"

/* Makes a lone call: a list of one launch. */
static ceclResult_t make_alone(const struct cecl_args *args, ceclComm_t comm, ceclStream_t stream,
                               struct cecl_call *call)
{
    struct cecl_launches one;
    struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call->op), stream);
    if (!launch)
        return ceclOutOfMemory;
    cecl_launches_begin(&one, call->op);
    one.first = launch;
    (void)!cecl_launches_note(&one, comm, cecl_launch_describe(launch, args, call));
    const ceclResult_t result = cecl_launches_make(&one);
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
    if (result != ceclSuccess) /* in a group this refuses the whole group */
        return is_grouped ? cecl_group_refuse_call(comm, result) : result;
    CECL_NVTX_RANGE(comm->has_ranges, call.op->name);
    return cecl_comm_left(comm, is_grouped ? cecl_group_add(comm, args, stream, &call)
                                           : make_alone(args, comm, stream, &call));
}

ceclResult_t cecl_collective_explain(enum cecl_op_index index, const struct cecl_args *args,
                                     ceclComm_t comm, ceclExplanation_t *explanation)
{
    struct cecl_call call = {.op = &cecl_ops[index]};
    CECL_INSIDE(comm, "ceclExplain");
    struct cecl_launch *launch = cecl_launch_take(comm, cecl_launch_kind_of(call.op), NULL);
    ceclResult_t result = launch ? cecl_launch_describe(launch, args, &call) : ceclOutOfMemory;
    if (result == ceclSuccess)
        result = cecl_launches_explain(launch, explanation);
    cecl_launch_drop(launch);
    return result;
}
