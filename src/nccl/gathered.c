/* See gathered.h. */
#include "nccl/gathered.h"

#include <stdlib.h>
#include <string.h>

#include "nccl/depth.h"
#include "nccl/library.h"
#include "nccl/passed.h"
#include "util/log.h"

#define PART sizeof(struct cecl_trial_rank)

static size_t room_of(const struct cecl_nccl_comm *entry)
{
    return (size_t)(1 + entry->nranks) * PART;
}

static bool has_gpu(const struct cecl_nccl_gathered *gathered)
{
    return gathered->gpu.context != NULL;
}

ceclResult_t cecl_nccl_gathered_open(struct cecl_nccl_gathered *gathered,
                                     const struct cecl_nccl_comm *entry)
{
    gathered->shared = calloc(1, cecl_trial_bytes(entry->nranks));
    gathered->room = calloc(1, room_of(entry));
    if (!gathered->shared || !gathered->room)
        return cecl_fail(ceclSystemError, "no host memory for the trials of %d ranks",
                         entry->nranks);
    if (entry->ordinal < 0)
        return ceclSuccess;
    CECL_TRY(cecl_nccl_gpu_enter(&gathered->gpu, entry->ordinal));
    const ceclResult_t result = cecl_nccl_gpu_reserve(&gathered->gpu, room_of(entry));
    cecl_nccl_gpu_pause(&gathered->gpu);
    return result;
}

/* Does not free memory of the GPU during an abort, because freeing waits for all work on the GPU, which
 * may never end. */
void cecl_nccl_gathered_close(struct cecl_nccl_gathered *gathered, bool aborts)
{
    if (has_gpu(gathered) && cecl_nccl_gpu_return(&gathered->gpu)) {
        bool is_done = !gathered->is_pending && !aborts;
        if (!is_done && !aborts && cecl_nccl_gpu_is_done(&gathered->gpu, &is_done) != ceclSuccess)
            is_done = false;
        if (!is_done) {
            gathered->gpu.memory = 0;
            gathered->gpu.stream = NULL;
        }
        cecl_nccl_gpu_leave(&gathered->gpu);
    }
    free(gathered->shared);
    free(gathered->room);
    *gathered = (struct cecl_nccl_gathered){.shared = NULL};
}

static ceclResult_t failure_of(const struct cecl_nccl_comm *entry)
{
    ceclResult_t error = ceclSuccess;
    const ceclResult_t asked = cecl_nccl_library()->ceclCommGetAsyncError(entry->ours, &error);
    return asked == ceclSuccess && error == ceclSuccess
               ? ceclSuccess
               : cecl_fail(ceclRemoteError, "the communicator has failed");
}

/* Waits for the exchange that began one period before. Ends the wait if the communicator is aborted or has
 * failed: a peer may have died, and the program's call must return that error. */
static ceclResult_t await(struct cecl_nccl_gathered *gathered, const struct cecl_nccl_comm *entry)
{
    bool is_done = !has_gpu(gathered);
    while (!is_done) {
        CECL_TRY(cecl_nccl_gpu_is_done(&gathered->gpu, &is_done));
        if (!is_done && !cecl_nccl_life_is(&entry->life, CECL_NCCL_MADE))
            return cecl_fail(ceclInvalidUsage, "the communicator ends");
        if (!is_done)
            CECL_TRY(failure_of(entry));
        if (!is_done)
            cecl_nccl_pause_us(20);
    }
    return has_gpu(gathered) ? cecl_nccl_gpu_get(&gathered->gpu, PART, gathered->room + PART,
                                                 (size_t)entry->nranks * PART)
                             : ceclSuccess;
}

static ceclResult_t begin(struct cecl_nccl_gathered *gathered, struct cecl_nccl_comm *entry,
                          const struct cecl_trial_rank *mine)
{
    void *at = gathered->room;
    memcpy(gathered->room, mine, PART); /* no other thread publishes meanwhile */
    if (has_gpu(gathered)) {
        at = (void *)(uintptr_t)gathered->gpu.memory;
        CECL_TRY(cecl_nccl_gpu_put(&gathered->gpu, 0, gathered->room, PART));
    }
    const struct cecl_nccl_call call = {.op = CECL_NCCL_OP_ncclAllGather,
                                        .comm = atomic_load(&entry->nccl),
                                        .count = PART,
                                        .datatype = CECL_NCCL_INT8,
                                        .sendbuff = at,
                                        .recvbuff = (unsigned char *)at + PART,
                                        .stream = gathered->gpu.stream};
    const ncclResult_t result = cecl_nccl_pass_ordered(&call, entry, cecl_nccl_group_depth() == 0);
    gathered->is_pending = true;
    return result == ceclSuccess || result == ceclInProgress
               ? ceclSuccess
               : cecl_fail((ceclResult_t)result, "ncclAllGather returned %d", (int)result);
}

static ceclResult_t exchange(struct cecl_nccl_gathered *gathered, struct cecl_nccl_comm *entry,
                             const struct cecl_trial_rank *mine, struct cecl_trial_rank *all)
{
    if (gathered->is_pending) {
        CECL_TRY(await(gathered, entry));
        gathered->is_pending = false;
        memcpy(all, gathered->room + PART, (size_t)entry->nranks * PART);
    }
    return begin(gathered, entry, mine);
}

void cecl_nccl_gathered_exchange(struct cecl_nccl_gathered *gathered, struct cecl_nccl_comm *entry,
                                 const struct cecl_trial_rank *mine, struct cecl_trial_rank *all)
{
    if (gathered->has_failed)
        return;
    const bool is_here = !has_gpu(gathered) || cecl_nccl_gpu_return(&gathered->gpu);
    const ceclResult_t result =
        is_here ? exchange(gathered, entry, mine, all)
                : cecl_fail(ceclUnhandledCudaError, "the CUDA context could not be made current");
    if (has_gpu(gathered) && is_here)
        cecl_nccl_gpu_pause(&gathered->gpu);
    gathered->has_failed = result != ceclSuccess;
    if (!gathered->has_failed || !cecl_nccl_life_is(&entry->life, CECL_NCCL_MADE))
        return;
    cecl_log(CECL_LOG_WARN, entry->rank, "trials end: %s", cecl_message());
    /* the peers wait for this rank's part, and this rank can no longer decide as they do */
    cecl_nccl_library()->ceclCommRevoke(entry->ours);
}
