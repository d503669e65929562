/* See rails.h. */
#include "nccl/rails.h"

#include "nccl/gpu.h"
#include "nccl/process.h"

/* ---- the split */

static int split(void *context, void *config, void **split)
{
    struct cecl_nccl_comm *entry = context;
    struct cecl_nccl_rails *rails = &entry->rails;
    ceclResult_t result = cecl_nccl_exchange_split(rails->exchange, config, &rails->split);
    *split = result == ceclSuccess ? rails->split : NULL;
    if (result == ceclSuccess && entry->ordinal >= 0)
        result = cecl_nccl_gpu_make_events(entry->ordinal, &rails->event, 1);
    rails->exist = result == ceclSuccess;
    return (int)result;
}

void cecl_nccl_rails_close(struct cecl_nccl_comm *entry)
{
    struct cecl_nccl_rails *rails = &entry->rails;
    rails->exist = false;
    if (rails->event)
        cecl_nccl_gpu_free_events(entry->ordinal, &rails->event, 1);
    rails->event = NULL;
}

/* ---- the order. The host device needs no events, because calls of the stand-in for NCCL and served calls
 * are complete when they return. */

ceclResult_t cecl_nccl_rails_before(struct cecl_nccl_rails *rails, cudaStream_t stream)
{
    return rails->event && rails->has_event ? cecl_nccl_gpu_await(rails->event, stream)
                                            : ceclSuccess;
}

ceclResult_t cecl_nccl_rails_behind(struct cecl_nccl_rails *rails, cudaStream_t stream)
{
    if (!rails->event)
        return ceclSuccess;
    if (!cecl_nccl_gpu_note(rails->event, stream))
        return cecl_fail(ceclUnhandledCudaError, "no event could be recorded after a call of NCCL");
    rails->has_event = true;
    return ceclSuccess;
}

static int order(void *context, ceclStream_t stream, int is_before)
{
    struct cecl_nccl_comm *entry = context;
    return (int)(is_before ? cecl_nccl_rails_before(&entry->rails, stream)
                           : cecl_nccl_rails_behind(&entry->rails, stream));
}

ceclNcclNet_t cecl_nccl_rails_lend(struct cecl_nccl_comm *entry,
                                   struct cecl_nccl_exchange *exchange)
{
    entry->rails.exchange = exchange;
    return (ceclNcclNet_t){.context = entry,
                           .library = cecl_nccl_process()->real.handle,
                           .split = split,
                           .order = order};
}
