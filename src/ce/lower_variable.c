/* The all-to-all of blocks of different sizes, the gather (each rank sends a block to the root), and the scatter (only
 * the root sends). Every rank knows where its blocks belong in the other ranks' recvbuffs:
 *
 *     | barrier 1 | my block p -> its place at p, for all p; my own block locally | barrier 2 |
 *
 * Without SMs, `right` is the rank after me, whose staging only I use in this call:
 *
 *     | barrier 1 | my block p -> its place at p, all p; round 0 of own block -> right's staging
 *     | round 1 -> the other half there; round 0 -> its place in my recvbuff
 *     | round 2 -> the first half; round 1 -> its place in my recvbuff | ... | barrier 2 |
 *
 * Only the owner knows the size of its own block, so the owner itself both sends the block and fetches it back. Both
 * copies are on the owner's stream, so no flag is needed between them, and all ranks have two barriers whatever the
 * sizes of their blocks. Barrier 1 says "my recvbuff and my staging may be written", barrier 2 "my data is with you".
 * Blocks for peers are always pushed, because a sendbuff may be memory that peers cannot reach. */
#include <inttypes.h>

#include "ce/lowering.h"

static uint64_t own_bytes(const struct cecl_part *part)
{
    return cecl_call_block(&part->call, part->call.rank, part->call.rank).bytes;
}

/* Where byte `at` of the own block lies. */
static struct cecl_place own_at(struct cecl_extent own, uint64_t at)
{
    own.at.offset += at;
    return own.at;
}

/* The rounds in which a rank's own block goes to the next rank's staging and back. */
struct rounds {
    uint64_t bytes; /* bytes of the own block in one round */
    uint64_t count; /* 0: the own block does not go to the next rank */
    /* bytes of half of staging, which a round uses; 0: the only round uses all of staging */
    uint64_t half;
};

static struct rounds rounds_of(const struct cecl_part *part)
{
    const uint64_t own = part->call.in_place ? 0 : own_bytes(part);
    if (own <= part->means.staging_bytes)
        return (struct rounds){.bytes = own, .count = own > 0};
    uint64_t half = part->means.staging_bytes / 2;
    if (half > CECL_PIECE_ALIGN)
        half -= half % CECL_PIECE_ALIGN;
    return (struct rounds){.bytes = half, .count = (own + half - 1) / half, .half = half};
}

static uint64_t round_bytes(const struct cecl_part *part, const struct rounds *rounds, uint64_t n)
{
    const uint64_t left = own_bytes(part) - n * rounds->bytes;
    return left < rounds->bytes ? left : rounds->bytes;
}

static struct cecl_place lent(const struct cecl_part *part, const struct rounds *rounds, uint64_t n)
{
    return cecl_staging_at(part, cecl_part_peer(part, 1), n % 2 * rounds->half);
}

static void lend(const struct cecl_part *part, struct cecl_plan *plan, const struct rounds *rounds,
                 uint64_t n)
{
    cecl_plan_copy(plan, lent(part, rounds, n),
                   own_at(cecl_sent(part, part->call.rank, part->call.rank), n * rounds->bytes),
                   round_bytes(part, rounds, n));
}

static void fetch(const struct cecl_part *part, struct cecl_plan *plan, const struct rounds *rounds,
                  uint64_t n)
{
    cecl_plan_copy(plan,
                   own_at(cecl_received(part, part->call.rank, part->call.rank), n * rounds->bytes),
                   lent(part, rounds, n), round_bytes(part, rounds, n));
}

static void push_to_peers(const struct cecl_part *part, struct cecl_plan *plan)
{
    for (int i = 1; i < part->call.nranks; i++)
        cecl_lower_block(part, plan, part->call.rank, cecl_part_peer(part, i));
}

static void push_and_lend(const struct cecl_part *part, struct cecl_plan *plan)
{
    const struct rounds rounds = rounds_of(part);
    if (rounds.count > 0)
        lend(part, plan, &rounds, 0);
    push_to_peers(part, plan);
    for (uint64_t n = 0; n < rounds.count; n++) {
        cecl_plan_next_wave(plan); /* the next batch begins once these bytes have arrived */
        if (n + 1 < rounds.count)
            lend(part, plan, &rounds, n + 1);
        fetch(part, plan, &rounds, n);
    }
}

ceclResult_t cecl_lower_per_rank(const struct cecl_part *part, struct cecl_plan *plan)
{
    const bool lends = part->way.move.no_sm;
    if (part->call.nranks == 1) {
        cecl_lower_alone(part, plan);
        return ceclSuccess;
    }
    /* Either all ranks must refuse the call, or none. So the refusal does not depend on whether this rank has a
     * block for itself. */
    if (lends && part->means.staging_bytes < 2)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": a rank's own block needs 2 at least",
                         part->means.staging_bytes);
    cecl_plan_barrier(plan);
    if (lends)
        push_and_lend(part, plan);
    else
        push_to_peers(part, plan);
    if (!lends && !part->call.in_place)
        cecl_lower_block(part, plan, part->call.rank, part->call.rank);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "push%s", lends ? ", own block by way of the next rank" : ", one batch");
    return ceclSuccess;
}
