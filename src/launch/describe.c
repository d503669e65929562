/* Describes calls; see describe.h. */
#include "launch/describe.h"

#include "launch/by_nccl.h"
#include "launch/carry.h"
#include "launch/launcher.h"
#include "launch/settle.h"

struct cecl_scope cecl_comm_scope(ceclComm_t comm)
{
    return (struct cecl_scope){.rank = comm->rank,
                               .nranks = comm->nranks,
                               .windows = &comm->windows,
                               .options = comm->options,
                               .layout = comm->launcher->layout};
}

/* Describes a call. Settling the call's buffers may change windows; then the call is described again, until
 * no window changes. */
static ceclResult_t describe(const struct cecl_launch *launch, const struct cecl_args *args,
                             struct cecl_call *call)
{
    ceclComm_t comm = launch->comm;
    struct cecl_scope scope = cecl_comm_scope(comm);
    const struct cecl_op *op = call->op;
    bool changed = true;
    scope.captured = launch->is_captured;
    while (changed) {
        CECL_TRY(cecl_call_describe(op, &scope, args, call));
        if (comm->net) /* no peer opens this rank's memory */
            return cecl_by_nccl_check_call(launch, call);
        CECL_TRY(cecl_settle(comm, call, &changed));
    }
    return ceclSuccess;
}

ceclResult_t cecl_launch_describe(struct cecl_launch *launch, const struct cecl_args *args,
                                  struct cecl_call *call)
{
    uint32_t index;
    CECL_TRY(describe(launch, args, call));
    CECL_TRY(cecl_launch_add(launch, call, &index));
    return launch->comm->net ? ceclSuccess : cecl_carry_replace(launch, index);
}
