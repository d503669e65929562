/* Decides which library makes a call. Makes a call of cecl's at once, or keeps it for the end of its group. */
#include "nccl/call.h"

#include "nccl/captured.h"
#include "nccl/decide.h"
#include "nccl/group.h"
#include "nccl/serve.h"
#include "util/thread.h"

/* If `call` is captured, decides together with all ranks which library makes it. Fails if the ranks could not agree. */
static ncclResult_t decide_captured(struct cecl_nccl_call *call)
{
    if (!call->way.is_captured)
        return ceclSuccess;
    struct cecl_nccl_kept alone = {.call = *call};
    const ncclResult_t result = cecl_nccl_captured_decide(&alone, 1);
    call->way = alone.call.way;
    return result;
}

/* While the thread decides and makes cecl's call, it is inside the communicator's entry, so that no other thread frees
 * parts of the entry. It leaves the entry before NCCL's call: an abort waits until no thread is inside, and only then
 * ends NCCL's call. If an abort has begun, the call goes to NCCL, which returns the error. */
bool cecl_nccl_take(struct cecl_nccl_call *call, const void *caller, ncclResult_t *result)
{
    const struct cecl_nccl_process *process = cecl_nccl_process();
    if (cecl_nccl_is_own(process, caller))
        return false;
    CECL_UNCANCELLED;
    cecl_nccl_last_error_clear();
    struct cecl_nccl_group *group = cecl_nccl_group();
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(call->comm);
    const bool is_inside = comm && cecl_nccl_comm_enter(comm, call->comm, CECL_NCCL_MADE);
    bool is_taken = true;
    call->way = cecl_nccl_decide(process, call, comm, is_inside, group);
    if (group->depth > 0) {
        is_taken = cecl_nccl_group_take(group, call, comm, result);
    } else if ((*result = decide_captured(call)) == ceclSuccess &&
               !cecl_nccl_is_refused(process, call, comm, result)) {
        is_taken = cecl_nccl_is_served(call);
        if (is_taken) {
            cecl_nccl_note_served(comm, call);
            ceclResult_t served = cecl_nccl_serve(call, comm, call->stream);
            if (served == ceclSuccess)
                served = cecl_nccl_serve_complete(call, comm);
            *result = cecl_nccl_comm_result(comm, served);
        }
    }
    if (is_inside)
        cecl_nccl_comm_leave(comm);
    return is_taken;
}
