/* What the lowerings over several nodes share: see lower_nodes.h. */
#include <inttypes.h>

#include "ce/lower_nodes.h"

struct cecl_rails cecl_rails_of(const struct cecl_part *part, struct cecl_part *inner)
{
    const struct cecl_nodes *nodes = part->means.nodes;
    const int me = part->call.rank, node = nodes->node[me];
    const uint64_t half = part->means.staging_bytes / 2,
                   mine = half > CECL_PIECE_ALIGN ? half - half % CECL_PIECE_ALIGN : half;
    *inner = *part;
    inner->means.staging_bytes = mine;
    inner->way.move.spread = 0; /* a broadcast in pieces is only for calls on one node */
    return (struct cecl_rails){.part = part,
                               .nodes = nodes,
                               .me = me,
                               .node = node,
                               .local = nodes->local[me],
                               .size = cecl_node_size(nodes, node),
                               .wave = part->way.net.wave < 2 ? 2 : (int)part->way.net.wave & ~1,
                               .chunk = part->way.net.chunk ? part->way.net.chunk : UINT64_MAX,
                               .staging_at = mine,
                               .staging_bytes = part->means.staging_bytes - mine};
}

uint64_t cecl_rails_aligned(const struct cecl_rails *rails, uint64_t bytes)
{
    return bytes -
           bytes % (bytes >= CECL_CHUNK_ALIGN ? CECL_CHUNK_ALIGN : rails->part->call.element);
}

ceclResult_t cecl_rails_too_small(const struct cecl_rails *rails, uint64_t least)
{
    char words[CECL_NODES_WORDS];
    return cecl_fail(ceclInvalidUsage,
                     "stagingBytes (CECL_STAGING_BYTES) %" PRIu64 ": %s over %s needs %" PRIu64
                     " at least",
                     rails->part->means.staging_bytes, rails->part->call.op->name,
                     cecl_nodes_words(rails->nodes, words), least);
}

void cecl_rails_follow(struct cecl_plan *plan)
{
    const int lane = plan->lane;
    cecl_plan_on(plan, CECL_LANE_NET);
    cecl_plan_after(plan, lane);
    cecl_plan_on(plan, lane);
}

void cecl_rails_await(struct cecl_rails *rails, struct cecl_plan *plan, uint32_t k)
{
    if (k > rails->awaited)
        cecl_plan_after_exchange(plan, k);
    rails->awaited = k > rails->awaited ? k : rails->awaited;
}
