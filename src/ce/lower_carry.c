/* Carries bytes between a rank's private memory and memory that peers reach, both on this rank.
 *
 * A copy within one GPU needs SMs. So the bytes go to a part of the next rank's staging that only this rank
 * uses, and come back, in chunks that alternate between the halves of that part:
 *
 *     | chunk 0 -> the first half there | chunk 1 -> the second half there; chunk 0 -> its place
 *     here | chunk 2 -> the first half; ...
 *
 * This rank makes all copies itself, and its batches run in stream order. So no flag is needed, and peers need not know
 * of the copies. Under CECL_SM_ALLOW, or if there is one rank, a single local copy replaces all these steps. */
#include "ce/lowering.h"

static struct cecl_extent lent(const struct cecl_part *part, uint64_t chunk, uint64_t n)
{
    return (struct cecl_extent){.at = cecl_staging_at(part, cecl_part_peer(part, 1),
                                                      n % 2 * (part->means.staging_bytes / 2)),
                                .from = n * chunk};
}

/* Bytes of a chunk: whole rows, if a row fits in half of the part. 0: there is no staging. */
static uint64_t chunk_of(const struct cecl_part *part)
{
    const uint64_t half = part->means.staging_bytes / 2, width = part->call.view.shape.width,
                   unit = width > 0 && width <= half ? width : half;
    return unit > 0 ? half / unit * unit : 0;
}

static uint64_t bytes_of(const struct cecl_part *part, uint64_t chunk, uint64_t n)
{
    const uint64_t left = part->call.bytes - n * chunk;
    return left < chunk ? left : chunk;
}

ceclResult_t cecl_lower_carry(const struct cecl_part *part, struct cecl_plan *plan)
{
    const int me = part->call.rank;
    const uint64_t chunk = chunk_of(part);
    if (part->call.nranks == 1 || !part->way.move.no_sm || chunk == 0) {
        cecl_lower_block(part, plan, me, me);
        cecl_plan_say(plan, "private memory: local copy");
        return ceclSuccess;
    }
    const uint64_t count = (part->call.bytes + chunk - 1) / chunk;
    for (uint64_t n = 0; n <= count; n++) {
        if (n < count)
            cecl_lower_copy(part, plan, lent(part, chunk, n), cecl_sent(part, me, me), n * chunk,
                            bytes_of(part, chunk, n));
        if (n > 0)
            cecl_lower_copy(part, plan, cecl_received(part, me, me), lent(part, chunk, n - 1),
                            (n - 1) * chunk, bytes_of(part, chunk, n - 1));
        cecl_plan_next_wave(plan);
    }
    cecl_plan_say(plan, "private memory: by way of the next rank");
    return ceclSuccess;
}
