/* From the arguments of a public call to a launch; see describe.h. */
#include "launch/describe.h"

#include "launch/carry.h"
#include "launch/launcher.h"
#include "launch/settle.h"

struct cecl_scope cecl_comm_scope(ceclComm_t comm)
{
    return (struct cecl_scope){comm->rank, comm->nranks, &comm->windows, comm->options,
                               comm->launcher->layout};
}

/* Describes a call, and repeats that until settling its buffers changes no window. */
static ceclResult_t describe(ceclComm_t comm, const struct cecl_args *args, struct cecl_call *call)
{
    const struct cecl_scope scope = cecl_comm_scope(comm);
    const struct cecl_op *op = call->op;
    bool changed = true;
    while (changed) {
        CECL_TRY(cecl_call_describe(op, &scope, args, call));
        CECL_TRY(cecl_settle(comm, call, &changed));
    }
    return ceclSuccess;
}

static ceclResult_t describe_in(struct cecl_launch *launch, const struct cecl_args *args,
                                struct cecl_call *call)
{
    uint32_t index;
    CECL_TRY(describe(launch->comm, args, call));
    CECL_TRY(cecl_launch_add(launch, call, &index));
    return cecl_carry_replace(launch, index);
}

ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call)
{
    const ceclResult_t result = describe_in(launch, args, call);
    if (result != ceclSuccess) /* the registry may have forgotten the windows */
        call->send = call->recv = (struct cecl_buffer){NULL, 0};
    return result;
}
