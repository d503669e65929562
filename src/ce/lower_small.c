/* Small calls by a single exchange. Every rank has slots for what each rank sends to it, two halves of
 * them that take turns from call to call:
 *
 *     my block for p -> my slot at p, for all p | barrier | slots here -> recvbuff, or reduced to it
 *
 * There is no barrier in front: who writes a slot for call k + 2 has passed the barrier of call k + 1,
 * to which every rank comes when it is through with the slots of call k. Nobody but a rank itself
 * touches its sendbuff and recvbuff.
 *
 * On a GPU all of it is one kernel, whose data carry their flags (sm/small.h). */
#include "ce/lowering.h"

static struct cecl_place slot_at(const struct cecl_call *call, int holder, int sender)
{
    const uint64_t slot = (uint64_t)call->turn * (uint64_t)call->nranks + (uint64_t)sender;
    return cecl_place_at(CECL_WINDOW_STAGING, holder,
                         call->slots_offset + slot * CECL_SLOT_FACTOR * call->slot_bytes);
}

/* What this rank has for `peer`. */
static struct cecl_place input_at(const struct cecl_call *call, int peer)
{
    const bool one = call->op == ceclOpAllGather || call->op == ceclOpAllReduce;
    const uint64_t own =
        call->op == ceclOpAllGather && call->in_place ? (uint64_t)call->rank * call->bytes : 0;
    return cecl_place_at(call->in_place ? CECL_WINDOW_RECV : CECL_WINDOW_SEND, call->rank,
                         one ? own : (uint64_t)peer * call->bytes);
}

static void reduce_slots(const struct cecl_call *call, struct cecl_plan *plan, uint64_t bytes)
{
    const bool among = call->op == ceclOpReduceScatter && call->in_place;
    const uint64_t at = among ? (uint64_t)call->rank * call->bytes : 0;
    struct cecl_place sources[CECL_SMALL_RANKS];
    for (int r = 0; r < call->nranks; r++)
        sources[r] = r == call->rank ? input_at(call, r) : slot_at(call, call->rank, r);
    cecl_plan_reduce(plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, at), sources,
                     (uint32_t)call->nranks, bytes);
}

static void move_slots(const struct cecl_call *call, struct cecl_plan *plan)
{
    for (int r = 0; r < call->nranks; r++) {
        const bool own = r == call->rank;
        if (!own || !call->in_place)
            cecl_plan_copy(plan,
                           cecl_place_at(CECL_WINDOW_RECV, call->rank, (uint64_t)r * call->bytes),
                           own ? input_at(call, r) : slot_at(call, call->rank, r), call->bytes);
    }
}

void cecl_lower_small(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t bytes = cecl_small_bytes(call);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_plan_copy(plan, slot_at(call, peer, call->rank), input_at(call, peer), bytes);
    }
    cecl_plan_barrier(plan);
    if (cecl_op_reduces(call->op))
        reduce_slots(call, plan, bytes);
    else
        move_slots(call, plan);
}
