/* All-to-all. Block p of rank r's sendbuff becomes block r of rank p's recvbuff.
 *
 *     push:  | barrier 1 | my block p -> slot r at p, for all p; my own block here | barrier 2 |
 *     pull:  | barrier 1 | block r at p -> my slot p, for all p; my own block here | barrier 2 |
 *
 * Pull reads the peers' sendbuffs, which must then be symmetric. In place, a block's home is taken
 * by the block that is to leave it, so blocks pass through staging at the receiver, in chunks that
 * fit there:
 *
 *     for each chunk:
 *     | barrier | my block p -> staging place r at p | barrier | staging -> my blocks |
 *
 * The first barrier of a chunk says "my staging is free": it stands behind the copies out of it in
 * stream order. The second says "yours is there"; that my own blocks were read before they are
 * overwritten is stream order too, for it was this rank that sent them. */
#include <inttypes.h>

#include "ce/lowering.h"

#define CHUNK_ALIGN 256u

static void copy_own_block(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t block = (uint64_t)call->rank * call->bytes;
    cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, block),
                   cecl_place_at(CECL_WINDOW_SEND, call->rank, block), call->bytes);
}

static void out_of_place(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t mine = (uint64_t)call->rank * call->bytes;
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        const uint64_t theirs = (uint64_t)peer * call->bytes;
        if (call->direction == CECL_PUSH)
            cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, peer, mine),
                           cecl_place_at(CECL_WINDOW_SEND, call->rank, theirs), call->bytes);
        else
            cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, theirs),
                           cecl_place_at(CECL_WINDOW_SEND, peer, mine), call->bytes);
    }
    copy_own_block(call, plan);
    cecl_plan_barrier(plan);
}

/* The place of `sender` in a receiver's staging: ranks but the receiver, in order. */
static uint64_t staging_place(int sender, int receiver, uint64_t chunk)
{
    return (uint64_t)(sender - (sender > receiver)) * chunk;
}

static void move_chunk(const struct cecl_call *call, struct cecl_plan *plan, uint64_t chunk,
                       uint64_t done, uint64_t bytes)
{
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_plan_copy(
            plan, cecl_place_at(CECL_WINDOW_STAGING, peer, staging_place(call->rank, peer, chunk)),
            cecl_place_at(CECL_WINDOW_RECV, call->rank, (uint64_t)peer * call->bytes + done),
            bytes);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_plan_copy(
            plan, cecl_place_at(CECL_WINDOW_RECV, call->rank, (uint64_t)peer * call->bytes + done),
            cecl_place_at(CECL_WINDOW_STAGING, call->rank, staging_place(peer, call->rank, chunk)),
            bytes);
    }
    cecl_plan_close_batch(plan);
}

static ceclResult_t in_place(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t peers = (uint64_t)call->nranks - 1;
    uint64_t chunk = call->staging_bytes / peers;

    if (chunk == 0)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": an in-place all-to-all among %d "
                         "ranks needs %" PRIu64 " at least",
                         call->staging_bytes, call->nranks, peers);
    if (chunk > CHUNK_ALIGN)
        chunk -= chunk % CHUNK_ALIGN;
    if (chunk > call->bytes)
        chunk = call->bytes;
    for (uint64_t done = 0; done < call->bytes; done += chunk)
        move_chunk(call, plan, chunk, done,
                   call->bytes - done < chunk ? call->bytes - done : chunk);
    return ceclSuccess;
}

ceclResult_t cecl_lower_all_to_all(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->nranks > 1 && call->in_place)
        return in_place(call, plan);
    if (call->nranks > 1)
        out_of_place(call, plan);
    else if (!call->in_place)
        copy_own_block(call, plan);
    return ceclSuccess;
}
