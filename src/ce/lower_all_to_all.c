/* A block from each rank for each rank: all-to-all. Block p of rank r's sendbuff becomes block r of rank p's recvbuff.
 *
 *     push: | barrier 1 | my block p -> block r at p, for all p; own block locally | barrier 2 |
 *     pull: | barrier 1 | block r at p -> my block p, for all p; own block locally | barrier 2 |
 *
 *     a local copy of my own block may go on the side lane, at the same time as the other copies
 *
 *     without a local copy, in as many rounds as staging requires, which alternate
 *     between its halves:
 *            | barrier | for each round:
 *            | piece i of my own block -> staging of the i-th rank after me;
 *            | a chunk of my block p -> block r at p, for all p;
 *            | the pieces of the round before, in my staging -> their owners | barrier |
 *            | the pieces of the last round -> their owners | barrier |
 *
 * Pull reads the peers' sendbuffs, so every rank must be able to reach them. In place, the block that is to leave still
 * lies where the arriving block belongs. So blocks pass through staging at the receiver, in chunks that fit there:
 *
 *     for each chunk:
 *     | barrier | my block p -> staging place r at p | barrier | staging -> my blocks |
 *
 * Without SMs, staging has two halves. The receiver sends a block from its first half back to the owner's
 * second half, and from there the owner sends the block to its place:
 *     | barrier | for each chunk:
 *     | my block p -> first half at p | barrier | my first half -> second half at the owners
 *     | barrier | my block p, in my second half -> its place at p | at last: barrier |
 *
 * The first barrier of a chunk says "my staging is free": in stream order it follows the copies that read staging. The
 * second barrier says "your data is there". Each rank sends its blocks before the second barrier; only after that
 * barrier do the arriving blocks overwrite them. */
#include <inttypes.h>

#include "ce/lowering.h"

#define CHUNK_ALIGN 256u

static void copy_own_block(const struct cecl_part *part, struct cecl_plan *plan)
{
    cecl_lower_block(part, plan, part->call.rank, part->call.rank);
}

static void out_of_place(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->way.move.beside) {
        cecl_begin_side(plan);
        copy_own_block(part, plan);
        cecl_end_side(plan);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int me = part->call.rank, peer = cecl_part_peer(part, i);
        const int from = part->way.move.direction == CECL_PUSH ? me : peer;
        const int to = part->way.move.direction == CECL_PUSH ? peer : me;
        cecl_lower_block(part, plan, from, to);
    }
    if (part->way.move.beside)
        cecl_plan_after_other(plan);
    else
        copy_own_block(part, plan);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "%s, one batch", part->way.move.direction == CECL_PUSH ? "push" : "pull");
}

/* Bytes of a block that lie in staging, from byte `from` of the block on. */
static struct cecl_extent staging_at(const struct cecl_part *part, int rank, uint64_t offset,
                                     uint64_t from)
{
    return (struct cecl_extent){.at = cecl_staging_at(part, rank, offset), .from = from};
}

/* Sends bytes [low, high) of every block to the block's receiver. */
static void push_parts(const struct cecl_part *part, struct cecl_plan *plan, uint64_t low,
                       uint64_t high)
{
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, part->call.rank, peer),
                        cecl_sent(part, part->call.rank, peer), low, high - low);
    }
}

static ceclResult_t staging_too_small(const struct cecl_part *part, uint64_t least)
{
    return cecl_fail(ceclInvalidUsage,
                     "stagingBytes (CECL_STAGING_BYTES) %" PRIu64 ": %s all-to-all among %d ranks "
                     "needs %" PRIu64 " at least",
                     part->means.staging_bytes, part->call.in_place ? "an in-place" : "an",
                     part->call.nranks, least);
}

/* The rounds in which a rank's own block goes through its peers' staging. */
struct rounds {
    struct cecl_pieces pieces;
    uint64_t bytes; /* bytes of the own block in one round */
    /* bytes of half of staging, which a round uses; 0: the only round uses all of staging */
    uint64_t half;
};

static struct rounds rounds_of(const struct cecl_part *part)
{
    struct rounds rounds = {.pieces =
                                cecl_pieces_of(part, part->call.bytes, part->means.staging_bytes)};
    rounds.bytes = (uint64_t)rounds.pieces.count * rounds.pieces.bytes;
    if (rounds.bytes < part->call.bytes) {
        rounds.half = part->means.staging_bytes / 2;
        rounds.pieces = cecl_pieces_of(part, part->call.bytes, rounds.half);
        rounds.bytes = (uint64_t)rounds.pieces.count * rounds.pieces.bytes;
    }
    return rounds;
}

/* The byte of the block at which piece `i` of round `n` begins. */
static uint64_t piece_at(const struct rounds *rounds, uint64_t n, int i)
{
    return n * rounds->bytes + (uint64_t)i * rounds->pieces.bytes;
}

/* Where piece `i` of round `n` lies in the staging of the peer that returns it. */
static struct cecl_extent staged(const struct cecl_part *part, const struct rounds *rounds,
                                 int holder, uint64_t n, int i)
{
    return staging_at(part, holder, n % 2 * rounds->half + (uint64_t)i * rounds->pieces.bytes,
                      piece_at(rounds, n, i));
}

static void lend_pieces(const struct cecl_part *part, struct cecl_plan *plan,
                        const struct rounds *rounds, uint64_t n)
{
    for (int i = 0; i < rounds->pieces.count; i++)
        cecl_lower_copy(part, plan, staged(part, rounds, cecl_part_peer(part, i + 1), n, i),
                        cecl_sent(part, part->call.rank, part->call.rank), piece_at(rounds, n, i),
                        cecl_piece_bytes(&rounds->pieces, part->call.bytes, n * rounds->bytes, i));
}

static void return_pieces(const struct cecl_part *part, struct cecl_plan *plan,
                          const struct rounds *rounds, uint64_t n)
{
    for (int i = 0; i < rounds->pieces.count; i++) {
        const int owner = cecl_peer_before(part, i + 1);
        cecl_lower_copy(part, plan, cecl_received(part, owner, owner),
                        staged(part, rounds, part->call.rank, n, i), piece_at(rounds, n, i),
                        cecl_piece_bytes(&rounds->pieces, part->call.bytes, n * rounds->bytes, i));
    }
}

static ceclResult_t push_and_return(const struct cecl_part *part, struct cecl_plan *plan)
{
    const struct rounds rounds = rounds_of(part);
    if (rounds.bytes == 0)
        return staging_too_small(part, 2 * (uint64_t)rounds.pieces.count);
    const uint64_t count = (part->call.bytes + rounds.bytes - 1) / rounds.bytes;
    cecl_plan_barrier(plan);
    for (uint64_t n = 0; n < count; n++) {
        const uint64_t first = n * rounds.bytes, left = part->call.bytes - first;
        lend_pieces(part, plan, &rounds, n);
        push_parts(part, plan, first, first + (left < rounds.bytes ? left : rounds.bytes));
        if (n > 0)
            return_pieces(part, plan, &rounds, n - 1);
        cecl_plan_barrier(plan);
    }
    return_pieces(part, plan, &rounds, count - 1);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "push, own block by way of peers, %" PRIu64 " round%s", count,
                  cecl_plural(count));
    return ceclSuccess;
}

/* Pushes a chunk of each block to the receiver's staging (without SMs, to the first half). */
static void push_chunk(const struct cecl_part *part, struct cecl_plan *plan, uint64_t chunk,
                       uint64_t done, uint64_t bytes)
{
    const int me = part->call.rank;
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan,
                        staging_at(part, peer, cecl_sender_place(me, peer, chunk), done),
                        cecl_sent(part, me, peer), done, bytes);
    }
}

static void move_chunk(const struct cecl_part *part, struct cecl_plan *plan, uint64_t chunk,
                       uint64_t done, uint64_t bytes)
{
    const int me = part->call.rank;
    cecl_plan_barrier(plan);
    push_chunk(part, plan, chunk, done, bytes);
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, peer, me),
                        staging_at(part, me, cecl_sender_place(peer, me, chunk), done), done,
                        bytes);
    }
    cecl_plan_next_wave(plan);
}

/* Moves a chunk without a copy within one GPU: through the receiver's first half of staging and the owner's second half
 * (see above). */
static void move_chunk_without_sm(const struct cecl_part *part, struct cecl_plan *plan,
                                  uint64_t chunk, uint64_t done, uint64_t bytes)
{
    const int me = part->call.rank;
    const uint64_t half = part->means.staging_bytes / 2;
    push_chunk(part, plan, chunk, done, bytes);
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(
            part, plan, staging_at(part, peer, half + cecl_sender_place(me, peer, chunk), done),
            staging_at(part, me, cecl_sender_place(peer, me, chunk), done), done, bytes);
    }
    cecl_plan_barrier(plan);
    for (int i = 1; i < part->call.nranks; i++) {
        const int peer = cecl_part_peer(part, i);
        cecl_lower_copy(part, plan, cecl_received(part, me, peer),
                        staging_at(part, me, half + cecl_sender_place(peer, me, chunk), done), done,
                        bytes);
    }
    cecl_plan_next_wave(plan);
}

static ceclResult_t in_place(const struct cecl_part *part, struct cecl_plan *plan)
{
    const uint64_t peers = (uint64_t)part->call.nranks - 1, halves = part->way.move.no_sm ? 2 : 1;
    uint64_t chunk = part->means.staging_bytes / halves / peers;

    if (chunk == 0)
        return staging_too_small(part, halves * peers);
    const uint64_t align = part->call.view.shape.width ? part->call.view.shape.width : CHUNK_ALIGN;
    if (chunk > align)
        chunk -= chunk % align;
    if (chunk > part->call.bytes)
        chunk = part->call.bytes;
    if (part->way.move.no_sm)
        cecl_plan_barrier(plan);
    for (uint64_t done = 0; done < part->call.bytes; done += chunk) {
        const uint64_t bytes = part->call.bytes - done < chunk ? part->call.bytes - done : chunk;
        if (part->way.move.no_sm)
            move_chunk_without_sm(part, plan, chunk, done, bytes);
        else
            move_chunk(part, plan, chunk, done, bytes);
    }
    if (part->way.move.no_sm)
        cecl_plan_barrier(plan);
    const uint64_t chunks = (part->call.bytes + chunk - 1) / chunk;
    cecl_plan_say(plan, "push %s staging, %" PRIu64 " chunk%s",
                  part->way.move.no_sm ? "by way of peers'" : "through", chunks,
                  cecl_plural(chunks));
    return ceclSuccess;
}

ceclResult_t cecl_lower_exchanged(const struct cecl_part *part, struct cecl_plan *plan)
{
    if (part->call.nranks > 1 && part->call.in_place)
        return in_place(part, plan);
    if (part->call.nranks > 1 && part->way.move.no_sm)
        return push_and_return(part, plan);
    if (part->call.nranks > 1)
        out_of_place(part, plan);
    else
        cecl_lower_alone(part, plan);
    return ceclSuccess;
}
