/* Calls through memory of the host. Each rank has a part of that memory, and no other rank writes to that
 * part. Calls alternate between the two halves of the part:
 *
 *     my blocks -> my half | signal all | wait for all | halves of the peers -> my recvbuff
 *
 * One copy engine of a GPU makes all copies to and from other GPUs, one after the other, so a small copy waits
 * behind large ones. Copies to and from the host have engines of their own. (docs/measurements.md, "Small calls
 * beside bulk copies")
 *
 * A call is not cut into overlapping chunks, because a stream loses 11 us each time it changes from one engine to
 * another: a call of 1 MiB took longer in 2 or 4 chunks.
 *
 * No barrier comes first, because calls alternate between two halves; the verifier shows that two halves are enough.
 * Calls through slots (lower_small.c) take part in the alternation: one counter selects the half for both kinds. No
 * rank touches a peer's buffers. */
#include "ce/lowering.h"

/* Where the block from rank `from` to rank `to` lies in memory of the host. */
static struct cecl_extent hosted(const struct cecl_part *part, int from, int to)
{
    const uint64_t half = part->means.half * part->means.host_bytes,
                   at = part->call.op->to == CECL_TO_EACH ? (uint64_t)to * part->call.bytes : 0;
    return (struct cecl_extent){.at = cecl_place_at(CECL_AREA_HOST, from, half + at)};
}

/* How many bytes of a block must be moved: in place, none of the own block. */
static uint64_t bytes_of(const struct cecl_part *part, int from, int to)
{
    const bool is_there = from == to && part->call.in_place;
    return is_there ? 0 : cecl_call_block(&part->call, from, to).bytes;
}

/* Copies this rank's blocks to its half. A block that goes to all ranks is copied only once. */
static void send(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    for (int to = 0; to < part->call.nranks; to++) {
        const uint64_t bytes = bytes_of(part, me, to);
        cecl_lower_copy(part, plan, hosted(part, me, to), cecl_sent(part, me, to), 0, bytes);
        if (bytes > 0 && part->call.op->to != CECL_TO_EACH)
            return;
    }
}

static void take(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    for (int i = 1; i <= part->call.nranks; i++) {
        const int from = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, from, me), hosted(part, from, me), 0,
                        bytes_of(part, from, me));
    }
}

ceclResult_t cecl_lower_host(const struct cecl_part *part, struct cecl_plan *plan)
{
    send(part, plan);
    cecl_plan_wait_all(plan, CECL_LANE_MAIN, cecl_plan_signal_all(plan));
    take(part, plan);
    cecl_plan_say(plan, "urgent, through host memory");
    return ceclSuccess;
}
