/* Chooses the lowering of a call over several nodes, and lowers a barrier. */
#include "ce/lower_nodes.h"

/* ---- barrier: the ranks of each node meet, then the first ranks of all nodes, then the ranks of each node
 *
 *     main | barrier |                                 after the last exchange | barrier |
 *     net            | to node + 1, from node - 1 | to node + 2, from node - 2 | + 4, - 4 | ...
 *
 * Each exchange sends one byte. After log2(nodes) exchanges each node knows that all others have come. */

#define BARRIER_BYTES 32u /* a byte for each exchange, and a byte to send */

static ceclResult_t lower_barrier(const struct cecl_part *part, struct cecl_plan *plan)
{
    struct cecl_part inner;
    struct cecl_rails rails = cecl_rails_of(part, &inner);
    const int count = rails.nodes->count;
    if (rails.staging_bytes < BARRIER_BYTES)
        return cecl_rails_too_small(&rails, 2 * BARRIER_BYTES);
    cecl_plan_barrier(plan);
    uint32_t last = 0;
    cecl_rails_follow(plan);
    for (int step = 1, t = 0; step < count && rails.local == 0; step *= 2, t++) {
        const int to = (rails.node + step) % count, from = (rails.node + count - step) % count;
        cecl_plan_send(plan, cecl_node_rank(rails.nodes, to, 0),
                       cecl_rails_staging(&rails, rails.me, BARRIER_BYTES - 1), 1);
        cecl_plan_receive(plan, cecl_node_rank(rails.nodes, from, 0),
                          cecl_rails_staging(&rails, rails.me, (uint64_t)t), 1);
        last = cecl_plan_close_exchange(plan);
    }
    cecl_rails_await(&rails, plan, last);
    cecl_plan_barrier(plan);
    cecl_plan_say(plan, "barrier of %d nodes", count);
    return ceclSuccess;
}

/* ---- all calls */

static cecl_lower_fn *const lowerings[CECL_FAMILIES] = {
    [CECL_FAMILY_GATHERED] = cecl_lower_nodes_gathered,
    [CECL_FAMILY_EXCHANGED] = cecl_lower_nodes_exchanged,
    [CECL_FAMILY_AT_ROOT] = cecl_lower_nodes_at_root,
    [CECL_FAMILY_OWN_LAYOUT] = cecl_lower_nodes_exchanged,
    [CECL_FAMILY_REDUCTION] = cecl_lower_nodes_reduction,
    [CECL_FAMILY_BARRIER] = lower_barrier,
    [CECL_FAMILY_SPLITS] = cecl_lower_nodes_splits,
    [CECL_FAMILY_CARRY] = cecl_lower_carry,
};

ceclResult_t cecl_lower_nodes(const struct cecl_part *part, struct cecl_plan *plan)
{
    const enum cecl_family family = part->call.op->family;
    if (part->call.view.shape.width > 0 && family != CECL_FAMILY_CARRY &&
        family != CECL_FAMILY_REDUCTION)
        return cecl_lower_nodes_rows(part, plan);
    return lowerings[family](part, plan);
}
