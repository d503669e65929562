/* Which calls are captured, and whether all ranks can capture them; see captured.h. */
#include "nccl/captured.h"

#include "nccl/agree.h"
#include "nccl/gpu.h"
#include "nccl/host_stream.h"
#include "nccl/library.h"
#include "nccl/serve.h"

static bool is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                        bool *is_sound)
{
    *is_sound = true;
    return comm->ordinal >= 0 ? cecl_nccl_gpu_captures(call->stream, is_sound)
                              : cecl_nccl_host_stream(comm->ours, call->stream) != NULL;
}

bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm)
{
    bool is_sound;
    return is_captured(call, comm, &is_sound);
}

/* Whether cecl can capture the calls on this rank, as one group on one stream. Describes and registers their
 * buffers, as making the calls would, and enqueues nothing. */
static bool can_capture(const struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                        int count)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    ceclExplanation_t told;
    bool is_sound;
    if (!is_captured(calls, comm, &is_sound) || !is_sound || count > comm->limits.groupCalls ||
        cecl->ceclGroupStart() != ceclSuccess)
        return false;
    for (int i = 0; i < count; i++) /* the group's end returns their errors */
        (void)!cecl_nccl_serve_enqueue(&calls[i], comm, calls[i].stream);
    return cecl->ceclGroupExplain(comm->ours, &told) == ceclSuccess;
}

void cecl_nccl_captured_tell(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *calls,
                             int count, bool may)
{
    cecl_nccl_agree_tell(comm, may && can_capture(comm, calls, count));
}

ceclResult_t cecl_nccl_captured_await(struct cecl_nccl_comm *comm, int count, bool *serves)
{
    CECL_TRY(cecl_nccl_agree_await(comm, "a graph captures a call", serves));
    if (*serves)
        cecl_nccl_agree_note_calls(comm, count);
    return ceclSuccess;
}
