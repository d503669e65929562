/* Small calls by a single exchange. Every rank has a slot for each sender. Slots have two halves,
 * between which calls alternate:
 *
 *     signal all | post my block for p into my slot at p, for all p | wait for the lines of all
 *     | my slots -> recvbuff, or reduced to it |
 *
 * A small call has these steps on every device (sm/small.h): data is posted line by line, and each line carries its
 * flag. The signals only tell the watchdogs that the rank is in the call. No rank waits for them.
 *
 * No barrier comes first, because calls alternate between two halves; the verifier shows that two halves are
 * enough. No other rank touches a rank's sendbuff and recvbuff. */
#include "ce/lowering.h"

static struct cecl_place slot_at(const struct cecl_part *part, int holder, int sender)
{
    const struct cecl_means *means = &part->means;
    const uint64_t slot = (uint64_t)means->half * (uint64_t)part->call.nranks + (uint64_t)sender;
    return cecl_place_at(CECL_AREA_STAGING, holder,
                         means->slots_offset + slot * CECL_SLOT_FACTOR * means->slot_bytes);
}

static void reduce_slots(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    struct cecl_place sources[CECL_SMALL_RANKS];
    for (int r = 0; r < part->call.nranks; r++)
        sources[r] = r == me ? cecl_sent(part, me, me).at : slot_at(part, me, r);
    cecl_plan_reduce(plan, cecl_received(part, me, me).at, sources, (uint32_t)part->call.nranks,
                     part->call.bytes);
}

static void take_slots(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    for (int r = 0; r < part->call.nranks; r++)
        if (r != me)
            cecl_plan_copy(plan, cecl_received(part, r, me).at, slot_at(part, me, r),
                           part->call.bytes);
        else if (!part->call.in_place)
            cecl_lower_block(part, plan, me, me);
}

ceclResult_t cecl_lower_small(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    cecl_plan_signal_all(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_plan_post(plan, peer, slot_at(part, peer, me), cecl_sent(part, me, peer).at,
                       part->call.bytes);
    }
    cecl_plan_wait_all(plan, CECL_COUNTER_SLOTS, 1);
    if (part->call.op->family == CECL_FAMILY_REDUCTION)
        reduce_slots(part, plan);
    else
        take_slots(part, plan);
    cecl_plan_say(plan, "small, one exchange through slots");
    return ceclSuccess;
}
