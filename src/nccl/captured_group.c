/* The end of a group with captured calls; see captured.h. Whether captured calls are passed is known only
 * at the group's end, when ranks have decided. The group's other calls are kept, too (group.h). */
#include <stdlib.h>

#include "nccl/captured.h"
#include "nccl/group.h"
#include "nccl/passed.h"

/* The calls on one communicator. */
struct part {
    struct cecl_nccl_call *calls; /* [count]; collectives come first */
    int count, collectives;
    struct cecl_nccl_comm *comm; /* this thread has entered it; NULL: it was aborted */
    bool decides; /* ranks decide together; otherwise all ranks pass the collectives */
};

static void move_up(struct cecl_nccl_call *calls, int from, int to)
{
    const struct cecl_nccl_call call = calls[from];
    for (int i = from; i > to; i--)
        calls[i] = calls[i - 1];
    calls[to] = call;
}

/* Sorts the calls by communicator, and collectives before messages, and otherwise keeps their order. Returns how
 * many parts there are. */
static int divide(struct cecl_nccl_call *calls, int count, struct part *parts)
{
    int nparts = 0;
    for (int first = 0, end; first < count; first = end) {
        end = first + 1;
        for (int i = end; i < count; i++)
            if (calls[i].comm == calls[first].comm)
                move_up(calls, i, end++);
        int messages = first; /* the first message */
        for (int i = first; i < end; i++)
            if (!cecl_nccl_is_message(calls[i].op))
                move_up(calls, i, messages++);
        parts[nparts++] = (struct part){
            .calls = &calls[first], .count = end - first, .collectives = messages - first};
    }
    return nparts;
}

/* Tells the peers whether this rank can serve the collectives of a part. They are passed if the part is on
 * several streams, because cecl does not capture the order among streams. */
static void tell(struct part *part)
{
    const struct cecl_nccl_call *calls = part->calls;
    struct cecl_nccl_comm *comm = cecl_nccl_comm_find(calls->comm);
    bool may = true;
    for (int i = 0; i < part->count; i++)
        may = may && calls[i].stream == calls->stream;
    for (int i = 0; i < part->collectives; i++) {
        const bool is_wanted = calls[i].reason == CECL_NCCL_NO_REASON;
        may = may && is_wanted;
        part->decides = part->decides || is_wanted;
    }
    part->comm = comm && cecl_nccl_comm_enter(comm, calls->comm, CECL_NCCL_MADE) ? comm : NULL;
    if (part->comm && part->decides)
        cecl_nccl_captured_tell(comm, calls, part->collectives, may);
}

static ncclResult_t pass(const struct cecl_nccl_call *call)
{
    cecl_nccl_group_passed(call->comm);
    return cecl_nccl_pass(call);
}

static ncclResult_t settle_one(const struct cecl_nccl_call *call, struct cecl_nccl_comm *comm,
                               bool serves)
{
    enum cecl_nccl_reason reason = call->reason;
    ncclResult_t result = ceclSuccess;
    if (reason == CECL_NCCL_NO_REASON && !serves)
        reason = CECL_NCCL_CAPTURED;
    return cecl_nccl_settle(call, comm, reason, &result) ? result : pass(call);
}

static ncclResult_t settle(const struct part *part)
{
    struct cecl_nccl_comm *comm = part->comm ? part->comm : cecl_nccl_comm_find(part->calls->comm);
    ncclResult_t result = ceclSuccess;
    bool serves = false;
    if (part->comm && part->decides)
        result = cecl_nccl_comm_own_result(
            part->comm, cecl_nccl_captured_await(part->comm, part->collectives, &serves));
    for (int i = 0; i < part->count && result == ceclSuccess; i++)
        result = settle_one(&part->calls[i], comm, serves);
    return result;
}

/* This rank's bits for all parts are told before it waits for any part, because this thread may have
 * several ranks of one communicator. */
ncclResult_t cecl_nccl_captured_end_group(void)
{
    struct cecl_nccl_captured *kept = cecl_nccl_captured_kept();
    if (kept->count == 0)
        return ceclSuccess;
    struct part *parts = calloc((size_t)kept->count, sizeof(*parts));
    const int nparts = parts ? divide(kept->calls, kept->count, parts) : 0;
    ncclResult_t result = parts ? ceclSuccess : ceclSystemError;
    for (int i = 0; i < nparts; i++)
        tell(&parts[i]);
    for (int i = 0; i < nparts; i++) {
        if (result == ceclSuccess)
            result = settle(&parts[i]);
        if (parts[i].comm)
            cecl_nccl_comm_leave(parts[i].comm);
    }
    free(parts);
    cecl_nccl_captured_forget();
    return result;
}

ncclResult_t cecl_nccl_captured_pass_all(void)
{
    const struct cecl_nccl_captured *kept = cecl_nccl_captured_kept();
    ncclResult_t result = ceclSuccess;
    for (int i = 0; i < kept->count && result == ceclSuccess; i++)
        result = pass(&kept->calls[i]);
    cecl_nccl_captured_forget();
    return result;
}
