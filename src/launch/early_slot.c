/* Slots of requests that can be made ready; see early.c. */
#include <stdlib.h>

#include "ce/bound.h"
#include "flags/early.h"
#include "launch/launcher.h"
#include "launch/request.h"

bool cecl_early_gathers(const struct cecl_launch *launch)
{
    bool all = launch->ncalls > 0;
    for (uint32_t i = 0; i < launch->ncalls; i++) {
        const struct cecl_op *op = launch->calls[i].op;
        all = all && op->family == CECL_FAMILY_GATHERED && !op->rooted;
    }
    return all;
}

void cecl_early_begin(ceclRequest_t request)
{
    struct cecl_launch *launch = request->collectives;
    struct cecl_early_part *early = &request->early;
    early->slot = CECL_EARLY_NONE;
    /* ranks of other nodes have no words in this host's memory */
    if (launch->comm->nranks > 1 && !launch->comm->nodes && launch->nfull > 0 &&
        cecl_early_gathers(launch) && !request->messages)
        early->slot = cecl_early_take(&launch->comm->engine.flags, &early->value);
    launch->slot = (uint64_t)early->slot << 32 | early->value;
}

ceclResult_t cecl_early_read(ceclRequest_t request)
{
    const struct cecl_launch *launch = request->collectives;
    const int nranks = launch->comm->nranks;
    struct cecl_early_part *early = &request->early;
    if (early->slot == CECL_EARLY_NONE)
        return ceclSuccess;
    early->slots = calloc(3 * (size_t)nranks, sizeof(*early->slots));
    if (!early->slots)
        return cecl_fail(ceclOutOfMemory, "no host memory for a request among %d ranks", nranks);
    early->given = early->slots + nranks;
    early->may = true;
    for (int r = 0; r < nranks; r++) {
        early->slots[r] = r == launch->comm->rank ? launch->slot : launch->send_at[r];
        early->may = early->may && early->slots[r] >> 32 < cecl_hosted_slots(nranks);
    }
    return ceclSuccess;
}

void cecl_early_end(ceclRequest_t request, bool frees_slot)
{
    struct cecl_early_part *early = &request->early;
    cecl_bound_free(early->signals);
    cecl_bound_free(early->program);
    free(early->slots);
    if (frees_slot && request->collectives && early->slot != CECL_EARLY_NONE)
        cecl_early_give(&request->comm->engine.flags, early->slot, early->value);
    *early = (struct cecl_early_part){.slot = CECL_EARLY_NONE};
}
