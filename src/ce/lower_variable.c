/* All-to-all whose blocks differ; gather, to which every rank sends but one block, and scatter, of
 * which only the root sends. Every rank knows where its blocks belong at the others:
 *
 *     | barrier 1 | my block p -> its place at p, for all p; my own block here | barrier 2 |
 *
 * and without SMs, where right is the rank after me, whose staging serves me alone in this call:
 *
 *     | barrier 1 | my block p -> its place at p, for all p; round 0 of my own block -> right's staging
 *     | round 1 -> the other half there; round 0 -> its place here
 *     | round 2 -> the first half; round 1 -> its place here | ... | barrier 2 |
 *
 * Nobody but its owner knows of an own block, so it is the owner that lends and fetches it. Between
 * two batches of one rank stands the order of its stream; no flag is needed, and so all ranks have two
 * barriers, whatever the sizes of their blocks. Barrier 1 says "my recvbuff and my staging may be
 * written", barrier 2 "my data is with you". Always pushed: sendbuff may be any memory. */
#include <inttypes.h>

#include "ce/lowering.h"
#include "plan/layout.h"

/* The rounds in which a rank's own block goes to its neighbour and back. */
struct rounds {
    uint64_t bytes; /* of a round */
    uint64_t count; /* 0: there is no block to lend */
    uint64_t half;  /* of staging, where rounds take turns; 0: one round has all of it */
};

static struct rounds rounds_of(const struct cecl_call *call)
{
    const uint64_t own = call->in_place ? 0 : cecl_sent_bytes(call, call->rank);
    if (own <= call->staging_bytes)
        return (struct rounds){.bytes = own, .count = own > 0};
    uint64_t half = call->staging_bytes / 2;
    if (half > CECL_PIECE_ALIGN)
        half -= half % CECL_PIECE_ALIGN;
    return (struct rounds){.bytes = half, .count = (own + half - 1) / half, .half = half};
}

static uint64_t round_bytes(const struct cecl_call *call, const struct rounds *rounds, uint64_t n)
{
    const uint64_t left = cecl_sent_bytes(call, call->rank) - n * rounds->bytes;
    return left < rounds->bytes ? left : rounds->bytes;
}

static struct cecl_place lent(const struct cecl_call *call, const struct rounds *rounds, uint64_t n)
{
    return cecl_staging_at(call, cecl_peer_after(call, 1), n % 2 * rounds->half);
}

static void lend(const struct cecl_call *call, struct cecl_plan *plan, const struct rounds *rounds,
                 uint64_t n)
{
    cecl_plan_copy(plan, lent(call, rounds, n),
                   cecl_place_at(CECL_WINDOW_SEND, call->rank,
                                 cecl_sent_offset(call, call->rank) + n * rounds->bytes),
                   round_bytes(call, rounds, n));
}

static void fetch(const struct cecl_call *call, struct cecl_plan *plan, const struct rounds *rounds,
                  uint64_t n)
{
    cecl_plan_copy(plan,
                   cecl_place_at(CECL_WINDOW_RECV, call->rank,
                                 cecl_target_offset(call, call->rank) + n * rounds->bytes),
                   lent(call, rounds, n), round_bytes(call, rounds, n));
}

static void push_block(const struct cecl_call *call, struct cecl_plan *plan, int to)
{
    if (cecl_sent_bytes(call, to) > 0)
        cecl_plan_copy(plan, cecl_place_at(CECL_WINDOW_RECV, to, cecl_target_offset(call, to)),
                       cecl_place_at(CECL_WINDOW_SEND, call->rank, cecl_sent_offset(call, to)),
                       cecl_sent_bytes(call, to));
}

static void push_to_peers(const struct cecl_call *call, struct cecl_plan *plan)
{
    for (int i = 1; i < call->nranks; i++)
        push_block(call, plan, cecl_peer_after(call, i));
}

static void push_and_lend(const struct cecl_call *call, struct cecl_plan *plan)
{
    const struct rounds rounds = rounds_of(call);
    if (rounds.count > 0)
        lend(call, plan, &rounds, 0);
    push_to_peers(call, plan);
    for (uint64_t n = 0; n < rounds.count; n++) {
        cecl_plan_close_batch(plan); /* what was lent is there */
        if (n + 1 < rounds.count)
            lend(call, plan, &rounds, n + 1);
        fetch(call, plan, &rounds, n);
    }
}

ceclResult_t cecl_lower_variable(const struct cecl_call *call, struct cecl_plan *plan)
{
    if (call->nranks == 1) {
        if (!call->in_place)
            push_block(call, plan, call->rank);
        return ceclSuccess;
    }
    /* Refused by all or by none, so whether this rank has a block of its own counts not. */
    if (call->no_sm && call->staging_bytes < 2)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": a rank's own block needs 2 at least",
                         call->staging_bytes);
    cecl_plan_barrier(plan);
    if (call->no_sm) {
        push_and_lend(call, plan);
    } else {
        push_to_peers(call, plan);
        if (!call->in_place)
            push_block(call, plan, call->rank);
    }
    cecl_plan_barrier(plan);
    return ceclSuccess;
}
