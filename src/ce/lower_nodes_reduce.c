/* Reduce-scatter, all-reduce and reduce over several nodes.
 *
 * A reduce-scatter is one fold (lower_nodes_fold.c). An all-reduce is a reduce-scatter of equal shares, and then an
 * all-gather of these shares. A reduce gathers the shares at the root, in parts if staging is too small for a
 * share. */
#include "ce/lower_nodes.h"

#include <inttypes.h>

#include "util/round.h"

/* The smallest number of bytes that a share can have if equal shares hold `total` bytes. */
static uint64_t share_of(const struct cecl_part *part, uint64_t total)
{
    const uint64_t n = (uint64_t)part->call.nranks;
    const uint64_t least = (total / part->call.element + n - 1) / n * part->call.element;
    return least < CECL_CHUNK_ALIGN ? least : cecl_round_up(least, CECL_CHUNK_ALIGN);
}

static struct cecl_place recv_share(const struct cecl_part *part, const struct cecl_shares *shares)
{
    return cecl_place_at(CECL_AREA_RECV, part->call.rank,
                         shares->base + (uint64_t)part->call.rank * shares->each);
}

static ceclResult_t scatter(struct cecl_rails *rails, struct cecl_plan *plan)
{
    const struct cecl_part *part = rails->part;
    const int me = rails->me;
    const struct cecl_shares blocks = {.each = part->call.bytes,
                                       .total = part->call.bytes * (uint64_t)part->call.nranks};
    return cecl_rails_fold(
        rails, plan, &blocks,
        cecl_place_at(CECL_AREA_RECV, me, cecl_call_block(&part->call, me, me).recv_offset));
}

static ceclResult_t to_all(struct cecl_rails *rails, struct cecl_plan *plan)
{
    const struct cecl_part *part = rails->part;
    const struct cecl_shares shares = {.each = share_of(part, part->call.bytes),
                                       .total = part->call.bytes};
    CECL_TRY(cecl_rails_fold(rails, plan, &shares, recv_share(part, &shares)));
    cecl_rails_gather(rails, plan, &shares);
    return ceclSuccess;
}

/* Staging is divided: a half for the reductions, a quarter for this rank's share of the result, and a
 * quarter for the shares that the root's node receives. */
static ceclResult_t to_root(struct cecl_rails *rails, struct cecl_plan *plan)
{
    const struct cecl_part *part = rails->part;
    const uint64_t quarter = part->means.staging_bytes / 4, all = part->call.bytes,
                   most = cecl_rails_aligned(rails, quarter), share = share_of(part, all),
                   each = share < most ? share : most;
    if (each == 0)
        return cecl_rails_too_small(rails, 4 * (uint64_t)part->call.element);
    for (uint64_t base = 0; base < all; base += each * (uint64_t)part->call.nranks) {
        struct cecl_rails now = *rails;
        const struct cecl_shares shares = {base, each, all - base};
        const struct cecl_place result = rails->me == part->call.root
                                             ? recv_share(part, &shares)
                                             : cecl_staging_at(part, rails->me, 2 * quarter);
        now.staging_at = 0;
        now.staging_bytes = 2 * quarter;
        CECL_TRY(cecl_rails_fold(&now, plan, &shares, result));
        now.staging_at = 3 * quarter;
        now.staging_bytes = quarter;
        CECL_TRY(cecl_rails_to_root(&now, plan, &shares, result, NULL));
        rails->awaited = now.awaited;
    }
    return ceclSuccess;
}

ceclResult_t cecl_lower_nodes_reduction(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    rails.staging_at = 0;
    rails.staging_bytes = part->means.staging_bytes;
    CECL_TRY(part->call.op->to == CECL_TO_EACH  ? scatter(&rails, plan)
             : part->call.op->to == CECL_TO_ALL ? to_all(&rails, plan)
                                                : to_root(&rails, plan));
    cecl_plan_say(plan, "%d nodes, reduced within first, %" PRIu32 " exchange%s",
                  rails.nodes->count, plan->nexchanges, cecl_plural(plan->nexchanges));
    return ceclSuccess;
}
