/* See settled.h. */
#include "nccl/settled.h"

#include <stdlib.h>

#include "nccl/call.h"
#include "nccl/depth.h"
#include "nccl/learning.h"

static bool is_equal(const struct cecl_nccl_settled_call *expected,
                     const struct cecl_nccl_call *call)
{
    return expected->count == call->count && expected->op == (int)call->op &&
           expected->type == call->datatype && expected->redop == call->redop &&
           expected->root == call->root;
}

bool cecl_nccl_settled_passes(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    if (settled->left == 0 || !is_equal(&settled->calls[settled->next], call) ||
        cecl_nccl_group_depth() > 0 || !cecl_nccl_life_is(&comm->life, CECL_NCCL_SET(READY)))
        return false;
    settled->left--;
    settled->next = settled->next + 1 < settled->length ? settled->next + 1 : 0;
    return true;
}

/* Before the first missed call, learning had heard of the first call of a period. */
void cecl_nccl_settled_catch_up(struct cecl_nccl_comm *comm)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    struct cecl_nccl_learn *learn = comm->learn;
    const uint64_t missed = settled->most - settled->left;
    if (settled->most == 0)
        return;
    cecl_trial_skip(&learn->trial, (uint32_t)(missed / settled->length));
    cecl_period_repeat(&learn->period, missed);
    for (uint64_t i = missed < settled->length ? missed : settled->length; i > 0; i--) {
        const uint64_t at = (missed + 1 - i) % settled->length;
        const bool reduces = settled->calls[at].reduces;
        *(reduces ? &learn->reduced : &learn->moved) = learn->period.calls - i + 1;
    }
    cecl_nccl_settled_forget(settled);
}

/* Returns false if there is no host memory. */
static bool make_room(struct cecl_nccl_settled *settled, uint32_t length)
{
    if (length <= settled->room)
        return true;
    void *calls = realloc(settled->calls, length * sizeof(*settled->calls));
    if (!calls)
        return false;
    settled->calls = calls;
    settled->room = length;
    return true;
}

/* A whole period was noted, and the next one begins with `call`. */
static void settle(struct cecl_nccl_settled *settled, struct cecl_nccl_learn *learn)
{
    settled->length = learn->period.length;
    settled->most = (uint64_t)cecl_trial_rests(&learn->trial) * settled->length;
    settled->left = settled->most;
    settled->next = 1 % settled->length;
}

void cecl_nccl_settled_note(struct cecl_nccl_comm *comm, const struct cecl_nccl_call *call,
                            bool passes)
{
    struct cecl_nccl_settled *settled = &comm->settled;
    struct cecl_nccl_learn *learn = comm->learn;
    const struct cecl_period *period = &learn->period;
    const uint64_t at = period->calls - 1 - period->begun; /* the call's place in its period */
    if (!passes || at >= period->length || !make_room(settled, period->length)) {
        settled->noted = 0;
        return;
    }
    if (at == 0 && settled->noted == period->length && is_equal(&settled->calls[0], call)) {
        settle(settled, learn);
        return;
    }
    settled->noted = at == 0 || at == settled->noted ? (uint32_t)at + 1 : 0;
    settled->calls[at] = (struct cecl_nccl_settled_call){.count = call->count,
                                                         .op = (int)call->op,
                                                         .reduces = call->reduces,
                                                         .type = call->datatype,
                                                         .redop = call->redop,
                                                         .root = call->root};
}
