/* How reductions through staging are divided into chunks: see lower_staged.c. */
#include <inttypes.h>

#include "ce/reducing.h"
#include "util/grow.h"

/* offsets in staging are multiples of this; enough for elements of any type */
#define SLICE_ALIGN 16u

/* How many bytes a chunk has. There are as few chunks as the limit `most` allows, of about equal size, so the last
 * chunk is not small. */
static uint64_t even(const struct cecl_part *part, uint64_t most)
{
    const uint64_t count = (part->way.reduce.share + most - 1) / most, unit = unit_of(part, most);
    return cecl_round_up((part->way.reduce.share + count - 1) / count, unit);
}

/* Cuts the share into chunks. The last of several chunks is halved repeatedly, to make the last reduction
 * short, because the links are idle while it runs. */
static void cut(const struct cecl_part *part, struct cecl_chunks *chunks)
{
    const uint64_t share = part->way.reduce.share, least = part->way.reduce.halved;
    uint64_t begin, half, parts = 0;
    chunks->equal = (share - 1) / chunks->bytes;
    begin = chunks->equal * chunks->bytes;
    do {
        chunks->begin[parts++] = begin;
        half = aligned(part, (share - begin) / 2);
        begin += half;
    } while (chunks->equal > 0 && least > 0 && half >= least && parts <= CECL_HALVINGS);
    chunks->begin[parts] = share;
    chunks->count = chunks->equal + parts;
}

/* How many ranks' blocks a chunk's room in staging holds. */
static uint64_t places_of(const struct cecl_part *part)
{
    return (uint64_t)part->call.nranks - !(to_root(part) || part->call.op->has_tiles);
}

ceclResult_t cecl_chunks_of(const struct cecl_part *part, struct cecl_chunks *chunks)
{
    const uint64_t places = places_of(part);
    const uint64_t whole = part->means.staging_bytes / places,
                   room = part->means.staging_bytes / CECL_CHUNKS_IN_FLIGHT / places;
    uint64_t most = part->way.reduce.share;
    if (most > whole || most > part->way.reduce.chunk)
        most = aligned(part, room < part->way.reduce.chunk ? room : part->way.reduce.chunk);
    if (most == 0)
        return cecl_fail(ceclInvalidUsage,
                         "stagingBytes (CECL_STAGING_BYTES) %" PRIu64
                         ": a reduction among %d ranks needs %" PRIu64 " at least",
                         part->means.staging_bytes, part->call.nranks,
                         CECL_CHUNKS_IN_FLIGHT * places * part->call.element);
    chunks->bytes = most < part->way.reduce.share ? even(part, most) : part->way.reduce.share;
    cut(part, chunks);
    chunks->at = 0;
    chunks->room = places * chunks->bytes;
    chunks->own = ((uint64_t)part->call.nranks - 1) * chunks->bytes;
    return ceclSuccess;
}

uint64_t cecl_staged_slice(const struct cecl_part *part)
{
    const uint64_t bytes =
        part->means.staging_bytes / CECL_CHUNKS_IN_FLIGHT / (uint64_t)part->call.nranks;
    return bytes - bytes % (bytes < CECL_PIECE_ALIGN ? SLICE_ALIGN : CECL_PIECE_ALIGN);
}

bool cecl_staged_may_follow(const struct cecl_part *part)
{
    return !(to_root(part) && part->way.reduce.meet_first) && cecl_staged_slice(part) > 0;
}

void cecl_staged_follow(struct cecl_part *part, bool last)
{
    const uint64_t most = cecl_staged_slice(part);
    if (last) {
        part->way.reduce.chunk = part->way.reduce.chunk < most ? part->way.reduce.chunk : most;
        return;
    }
    part->way.reduce.chunk = most;
    part->way.reduce.halved = 0;
}
