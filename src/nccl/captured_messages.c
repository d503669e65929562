/* Captured messages: whether both ranks can capture them; see captured.h. */
#include <stdlib.h>

#include "nccl/agree.h"
#include "nccl/captured.h"
#include "nccl/kept.h"

/* Whether this rank can capture the messages of a communicator, as one group. */
static bool can_capture(const struct cecl_nccl_comm *comm, const struct cecl_nccl_kept *kept,
                        int count)
{
    struct cecl_nccl_call *calls = calloc((size_t)count, sizeof(*calls));
    int n = 0;
    bool can = calls != NULL;
    for (int i = 0; i < count && can; i++)
        if (kept[i].comm == comm) {
            calls[n++] = kept[i].call;
            can = kept[i].call.reason == CECL_NCCL_NO_REASON;
        }
    can = can && cecl_nccl_captured_can(comm, calls, n);
    free(calls);
    return can;
}

static void tell(struct cecl_nccl_kept *kept)
{
    if (!kept->comm)
        kept->answer = CECL_NCCL_TO_SERVE; /* it will be dropped */
    else if (kept->call.root == kept->comm->rank)
        kept->answer = kept->can ? CECL_NCCL_TO_SERVE : CECL_NCCL_TO_PASS;
    else {
        kept->told = cecl_nccl_agree_tell_message(kept->comm, &kept->call, kept->can);
        kept->answer = kept->told > 0 ? CECL_NCCL_UNDECIDED : CECL_NCCL_TO_PASS;
    }
}

void cecl_nccl_messages_tell(struct cecl_nccl_kept *kept, int count)
{
    for (int i = 0, first; i < count; i++) {
        for (first = 0; kept[first].comm != kept[i].comm; first++)
            ;
        kept[i].can =
            first < i ? kept[first].can : kept[i].comm && can_capture(kept[i].comm, kept, count);
        tell(&kept[i]);
    }
}

/* Notes what peers have told. Returns how many messages are decided. Later messages come first, because a
 * peer may tell of several ones meanwhile: a message must not be decided before an earlier one. */
static int look(struct cecl_nccl_kept *kept, int count)
{
    int decided = 0;
    for (int i = count - 1; i >= 0; i--) {
        bool can = false;
        if (kept[i].answer == CECL_NCCL_UNDECIDED && !kept[i].comm)
            kept[i].answer = CECL_NCCL_TO_SERVE;
        else if (kept[i].answer == CECL_NCCL_UNDECIDED &&
                 cecl_nccl_agree_has_told(kept[i].comm, &kept[i].call, kept[i].told, &can))
            kept[i].answer = can && kept[i].can ? CECL_NCCL_TO_SERVE : CECL_NCCL_TO_PASS;
        decided += kept[i].answer != CECL_NCCL_UNDECIDED;
    }
    return decided;
}

static ncclResult_t check(struct cecl_nccl_kept *kept, int count, int64_t deadline)
{
    ceclResult_t result = ceclSuccess;
    for (int i = 0; i < count; i++) {
        result = cecl_nccl_agree_goes_on(kept[i].comm, &kept[i].call, kept[i].told, deadline);
        if (result != ceclSuccess)
            return cecl_nccl_comm_own_result(kept[i].comm, result);
    }
    return ceclSuccess;
}

ncclResult_t cecl_nccl_messages_await(struct cecl_nccl_kept *kept, int count)
{
    const int64_t deadline = cecl_nccl_agree_deadline();
    for (unsigned looks = 0; look(kept, count) == 0; looks++) {
        const ncclResult_t result =
            looks < CECL_NCCL_AGREE_SPINS ? ceclSuccess : check(kept, count, deadline);
        if (result != ceclSuccess)
            return result;
        cecl_nccl_agree_pause(looks);
    }
    return ceclSuccess;
}
