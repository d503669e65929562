/* What the lowerings share. Internal to src/ce. */
#ifndef CECL_CE_LOWERING_H
#define CECL_CE_LOWERING_H

#include "ce/lower.h"

void cecl_lower_all_gather(const struct cecl_call *call, struct cecl_plan *plan);
ceclResult_t cecl_lower_all_to_all(const struct cecl_call *call, struct cecl_plan *plan);

static inline struct cecl_place cecl_place_at(enum cecl_window window, int rank, uint64_t offset)
{
    return (struct cecl_place){
        .offset = offset, .window = (uint16_t)window, .rank = (uint16_t)rank};
}

/* The i-th rank after `rank`: each starts with its right neighbour, so no GPU is everyone's target
 * at once. */
static inline int cecl_peer_after(const struct cecl_call *call, int i)
{
    return (call->rank + i) % call->nranks;
}

#endif
