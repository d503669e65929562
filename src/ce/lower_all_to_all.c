/* All-to-all. Block p of rank r's sendbuff becomes block r of rank p's recvbuff.
 *
 *     push:  | barrier 1 | my block p -> slot r at p, for all p; my own block here | barrier 2 |
 *     pull:  | barrier 1 | block r at p -> my slot p, for all p; my own block here | barrier 2 |
 *
 *     my own block, where it is copied here, may go on the side lane, beside all others
 *
 *     without a local copy, in as many rounds as staging asks for, whose halves then take turns:
 *            | barrier | for each round:
 *            | piece i of my own block -> staging of the i-th rank after me;
 *            | a part of my block p -> slot r at p, for all p;
 *            | the pieces of the round before, in my staging -> their owners | barrier |
 *            | the pieces of the last round -> their owners | barrier |
 *
 * Pull reads the peers' sendbuffs, which must then be symmetric. In place, a block's home is taken
 * by the block that is to leave it, so blocks pass through staging at the receiver, in chunks that
 * fit there:
 *
 *     for each chunk:
 *     | barrier | my block p -> staging place r at p | barrier | staging -> my blocks |
 *
 * and without SMs, where staging has two halves and a block comes home from its receiver first:
 *     | barrier | for each chunk:
 *     | my block p -> first half at p | barrier | what is in my first half -> second half of its owner
 *     | barrier | my block p, in my second half -> its place at p | and a barrier at last |
 *
 * The first barrier of a chunk says "my staging is free": it stands behind the copies out of it in
 * stream order. The second says "yours is there"; that my own blocks were read before they are
 * overwritten is stream order too, for it was this rank that sent them. */
#include <inttypes.h>

#include "ce/lowering.h"

#define CHUNK_ALIGN 256u

static void copy_own_block(const struct cecl_call *call, struct cecl_plan *plan)
{
    const int me = call->rank;
    cecl_lower_copy(call, plan, cecl_recv_block(call, me, me), cecl_send_block(call, me, me), 0,
                    call->bytes);
}

static void out_of_place(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->side_copy) {
        cecl_begin_side(plan);
        copy_own_block(call, plan);
        cecl_end_side(plan);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int me = call->rank, peer = cecl_peer_after(call, i);
        const int from = call->direction == CECL_PUSH ? me : peer;
        const int to = call->direction == CECL_PUSH ? peer : me;
        cecl_lower_copy(call, plan, cecl_recv_block(call, to, from),
                        cecl_send_block(call, from, to), 0, call->bytes);
    }
    if (call->side_copy)
        cecl_plan_after_other(plan);
    else
        copy_own_block(call, plan);
    cecl_plan_barrier(plan);
}

/* Bytes of a block from byte `from` on, in staging. */
static struct cecl_view staging_at(const struct cecl_call *call, int rank, uint64_t offset,
                                   uint64_t from)
{
    return (struct cecl_view){.at = cecl_staging_at(call, rank, offset), .from = from};
}

/* A part of every block, to its receiver. */
static void push_parts(const struct cecl_call *call, struct cecl_plan *plan, uint64_t low,
                       uint64_t high)
{
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(call, plan, cecl_recv_block(call, peer, call->rank),
                        cecl_send_block(call, call->rank, peer), low, high - low);
    }
}

static ceclResult_t staging_too_small(const struct cecl_call *call, uint64_t least)
{
    return cecl_fail(ceclInvalidUsage,
                     "stagingBytes (CECL_STAGING_BYTES) %" PRIu64 ": %s all-to-all among %d ranks "
                     "needs %" PRIu64 " at least",
                     call->staging_bytes, call->in_place ? "an in-place" : "an", call->nranks,
                     least);
}

/* The rounds in which a rank's own block goes by way of its peers. */
struct rounds {
    struct cecl_pieces pieces;
    uint64_t bytes; /* of a round */
    uint64_t half;  /* of staging, where rounds take turns; 0: one round has all of it */
};

static struct rounds rounds_of(const struct cecl_call *call)
{
    struct rounds rounds = {.pieces = cecl_pieces_of(call, call->bytes, call->staging_bytes)};
    rounds.bytes = (uint64_t)rounds.pieces.count * rounds.pieces.bytes;
    if (rounds.bytes < call->bytes) {
        rounds.half = call->staging_bytes / 2;
        rounds.pieces = cecl_pieces_of(call, call->bytes, rounds.half);
        rounds.bytes = (uint64_t)rounds.pieces.count * rounds.pieces.bytes;
    }
    return rounds;
}

/* Which byte of a block piece `i` of round `n` begins with. */
static uint64_t piece_at(const struct rounds *rounds, uint64_t n, int i)
{
    return n * rounds->bytes + (uint64_t)i * rounds->pieces.bytes;
}

/* It, in the staging of whoever returns it. */
static struct cecl_view staged(const struct cecl_call *call, const struct rounds *rounds,
                               int holder, uint64_t n, int i)
{
    return staging_at(call, holder, n % 2 * rounds->half + (uint64_t)i * rounds->pieces.bytes,
                      piece_at(rounds, n, i));
}

static void lend_pieces(const struct cecl_call *call, struct cecl_plan *plan,
                        const struct rounds *rounds, uint64_t n)
{
    for (int i = 0; i < rounds->pieces.count; i++)
        cecl_lower_copy(call, plan, staged(call, rounds, cecl_peer_after(call, i + 1), n, i),
                        cecl_send_block(call, call->rank, call->rank), piece_at(rounds, n, i),
                        cecl_piece_bytes(&rounds->pieces, call->bytes, n * rounds->bytes, i));
}

static void return_pieces(const struct cecl_call *call, struct cecl_plan *plan,
                          const struct rounds *rounds, uint64_t n)
{
    for (int i = 0; i < rounds->pieces.count; i++) {
        const int owner = cecl_peer_before(call, i + 1);
        cecl_lower_copy(call, plan, cecl_recv_block(call, owner, owner),
                        staged(call, rounds, call->rank, n, i), piece_at(rounds, n, i),
                        cecl_piece_bytes(&rounds->pieces, call->bytes, n * rounds->bytes, i));
    }
}

static ceclResult_t push_and_return(const struct cecl_call *call, struct cecl_plan *plan)
{
    const struct rounds rounds = rounds_of(call);
    if (rounds.bytes == 0)
        return staging_too_small(call, 2 * (uint64_t)rounds.pieces.count);
    const uint64_t count = (call->bytes + rounds.bytes - 1) / rounds.bytes;
    cecl_plan_barrier(plan);
    for (uint64_t n = 0; n < count; n++) {
        const uint64_t first = n * rounds.bytes, left = call->bytes - first;
        lend_pieces(call, plan, &rounds, n);
        push_parts(call, plan, first, first + (left < rounds.bytes ? left : rounds.bytes));
        if (n > 0)
            return_pieces(call, plan, &rounds, n - 1);
        cecl_plan_barrier(plan);
    }
    return_pieces(call, plan, &rounds, count - 1);
    cecl_plan_barrier(plan);
    return ceclSuccess;
}

static void move_chunk(const struct cecl_call *call, struct cecl_plan *plan, uint64_t chunk,
                       uint64_t done, uint64_t bytes)
{
    const int me = call->rank;
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(call, plan,
                        staging_at(call, peer, cecl_sender_place(me, peer, chunk), done),
                        cecl_recv_block(call, me, peer), done, bytes);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(call, plan, cecl_recv_block(call, me, peer),
                        staging_at(call, me, cecl_sender_place(peer, me, chunk), done), done,
                        bytes);
    }
    cecl_plan_close_batch(plan);
}

/* No copy stays on one GPU: first half and second half of staging, see above. */
static void move_chunk_without_sm(const struct cecl_call *call, struct cecl_plan *plan,
                                  uint64_t chunk, uint64_t done, uint64_t bytes)
{
    const int me = call->rank;
    const uint64_t half = call->staging_bytes / 2;
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(call, plan,
                        staging_at(call, peer, cecl_sender_place(me, peer, chunk), done),
                        cecl_recv_block(call, me, peer), done, bytes);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(
            call, plan, staging_at(call, peer, half + cecl_sender_place(me, peer, chunk), done),
            staging_at(call, me, cecl_sender_place(peer, me, chunk), done), done, bytes);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < call->nranks; i++) {
        const int peer = cecl_peer_after(call, i);
        cecl_lower_copy(call, plan, cecl_recv_block(call, peer, me),
                        staging_at(call, me, half + cecl_sender_place(peer, me, chunk), done), done,
                        bytes);
    }
    cecl_plan_close_batch(plan);
}

static ceclResult_t in_place(const struct cecl_call *call, struct cecl_plan *plan)
{
    const uint64_t peers = (uint64_t)call->nranks - 1, halves = call->no_sm ? 2 : 1;
    uint64_t chunk = call->staging_bytes / halves / peers;

    if (chunk == 0)
        return staging_too_small(call, halves * peers);
    const uint64_t align = call->shape.width ? call->shape.width : CHUNK_ALIGN;
    if (chunk > align)
        chunk -= chunk % align;
    if (chunk > call->bytes)
        chunk = call->bytes;
    if (call->no_sm)
        cecl_plan_barrier(plan);
    for (uint64_t done = 0; done < call->bytes; done += chunk) {
        const uint64_t bytes = call->bytes - done < chunk ? call->bytes - done : chunk;
        if (call->no_sm)
            move_chunk_without_sm(call, plan, chunk, done, bytes);
        else
            move_chunk(call, plan, chunk, done, bytes);
    }
    if (call->no_sm)
        cecl_plan_barrier(plan);
    return ceclSuccess;
}

ceclResult_t cecl_lower_all_to_all(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->nranks > 1 && call->in_place)
        return in_place(call, plan);
    if (call->nranks > 1 && call->no_sm)
        return push_and_return(call, plan);
    if (call->nranks > 1)
        out_of_place(call, plan);
    else if (!call->in_place)
        copy_own_block(call, plan);
    return ceclSuccess;
}
