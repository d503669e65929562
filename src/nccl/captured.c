/* Finds which calls are captured, and whether cecl can capture them on all ranks; see captured.h. */
#include "nccl/captured.h"

#include "nccl/gpu.h"
#include "nccl/library.h"
#include "nccl/serve.h"

bool cecl_nccl_is_captured(const struct cecl_nccl_call *call, const struct cecl_nccl_comm *comm,
                           bool *is_sound)
{
    *is_sound = true;
    return comm->ordinal >= 0 ? cecl_nccl_gpu_captures(call->stream, is_sound)
                              : cecl_nccl_host_stream(comm->ours, call->stream) != NULL;
}

/* The captured calls on one communicator. */
struct part {
    struct cecl_nccl_kept
        *kept; /* the first call; kept->comm: its communicator, which this thread has entered */
    int count; /* number of the group's calls from `kept` on, on all communicators */
    int collectives;
    bool may;     /* false: this rank needs NCCL to make the collectives */
    bool decides; /* ranks must agree; false: all ranks pass the collectives to NCCL */
};

static bool is_in(const struct part *part, int index)
{
    const struct cecl_nccl_call *call = &part->kept[index].call;
    return call->way.is_captured && call->comm == part->kept->call.comm;
}

static bool is_collective_in(const struct part *part, int index)
{
    return is_in(part, index) && !cecl_nccl_is_message(part->kept[index].call.op);
}

/* If the calls of a part are on several streams, its collectives go to NCCL, because cecl captures no order among
 * streams. */
static struct part part_of(struct cecl_nccl_kept *kept, int count)
{
    struct part part = {.kept = kept, .count = count, .may = true};
    for (int i = 0; i < count; i++) {
        const struct cecl_nccl_call *call = &kept[i].call;
        part.may = part.may && (!is_in(&part, i) || call->stream == kept->call.stream);
        if (!is_collective_in(&part, i))
            continue;
        part.collectives++;
        part.may = part.may && cecl_nccl_is_served(call);
        part.decides = part.decides || cecl_nccl_is_served(call);
    }
    return part;
}

/* Whether cecl can capture the collectives on this rank, as one group on one stream. Makes the calls in a group that
 * ends with ceclGroupExplain, which checks and registers their buffers but enqueues nothing. */
static bool can_capture(const struct part *part)
{
    const struct cecl_nccl_library *cecl = cecl_nccl_library();
    struct cecl_nccl_comm *comm = part->kept->comm;
    ceclExplanation_t told;
    bool is_sound;
    if (!part->may || !cecl_nccl_is_captured(&part->kept->call, comm, &is_sound) || !is_sound ||
        part->collectives > comm->limits.groupCalls || cecl->ceclGroupStart() != ceclSuccess)
        return false;
    for (int i = 0; i < part->count; i++) /* ceclGroupExplain returns the calls' errors */
        if (is_collective_in(part, i))
            (void)!cecl_nccl_serve(&part->kept[i].call, comm, part->kept[i].call.stream);
    return cecl->ceclGroupExplain(comm->ours, &told) == ceclSuccess;
}

/* Tells the peers whether this rank can capture the collectives of a part. */
static void tell_peers(const struct part *part)
{
    part->kept->comm = cecl_nccl_comm_enter_made(part->kept->call.comm);
    if (part->kept->comm && part->decides)
        cecl_nccl_agree_tell(part->kept->comm, can_capture(part));
}

/* Waits for the peers' answers. If a part's communicator was aborted, its calls go to NCCL, which returns the error. */
static ncclResult_t await_peers(const struct part *part)
{
    struct cecl_nccl_comm *comm = part->kept->comm;
    bool serves = false;
    if (comm && part->decides) {
        const ceclResult_t result = cecl_nccl_agree_await(comm, &serves);
        if (result != ceclSuccess)
            return cecl_nccl_comm_own_result(comm, result);
    }
    if (serves)
        cecl_nccl_agree_note_calls(comm, part->collectives);
    for (int i = 0; i < part->count && !serves; i++)
        if (is_in(part, i) && cecl_nccl_is_served(&part->kept[i].call))
            part->kept[i].call.way.reason = CECL_NCCL_CAPTURED;
    return ceclSuccess;
}

static bool begins_part(const struct cecl_nccl_kept *kept, int index)
{
    for (int i = 0; i < index && kept[index].call.way.is_captured; i++)
        if (kept[i].call.way.is_captured && kept[i].call.comm == kept[index].call.comm)
            return false;
    return kept[index].call.way.is_captured;
}

/* Tells the peers this rank's answers for all parts before it waits for theirs: this thread may have several ranks of
 * one communicator, and must not wait for itself. */
ncclResult_t cecl_nccl_captured_decide(struct cecl_nccl_kept *kept, int count)
{
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < count; i++)
        if (begins_part(kept, i)) {
            const struct part part = part_of(&kept[i], count - i);
            tell_peers(&part);
        }
    for (int i = 0; i < count; i++)
        if (begins_part(kept, i)) {
            const struct part part = part_of(&kept[i], count - i);
            if (result == ceclSuccess)
                result = await_peers(&part);
            if (kept[i].comm)
                cecl_nccl_comm_leave(kept[i].comm);
        }
    return result;
}
