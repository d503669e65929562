/* Bounce buffers; see launcher.h. */
#include "launch/steps.h"

#include <stdlib.h>

#include "util/grow.h"

#define ALIGN 512u

struct cecl_bounce {
    char *base;
    size_t bytes;
    struct cecl_mem mem;
    /* a newer buffer has replaced this one; calls that are not enqueued yet may still use this one */
    bool replaced;
    uint32_t last_use; /* value of `done` after its last use; set once no lease is left */
    struct cecl_bounce *next;
};

static void free_bounce(ceclComm_t comm, struct cecl_bounce *bounce)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    ops->mem_unmap(comm->dev, bounce->base, bounce->bytes);
    ops->mem_release(comm->dev, &bounce->mem);
    ops->unreserve(comm->dev, bounce->base, bounce->bytes);
    free(bounce);
}

void cecl_bounces_close(ceclComm_t comm)
{
    struct cecl_bounces *bounces = &comm->launcher->bounces;
    while (bounces->memory) {
        struct cecl_bounce *first = bounces->memory;
        bounces->memory = first->next;
        free_bounce(comm, first);
    }
}

static ceclResult_t create_memory(ceclComm_t comm, struct cecl_bounce *bounce)
{
    const struct cecl_device_ops *ops = comm->dev->ops;
    void *base = NULL;
    CECL_TRY(ops->reserve(comm->dev, bounce->bytes, &base));
    bounce->base = base;
    ceclResult_t result = ops->mem_create(comm->dev, bounce->bytes, &bounce->mem);
    if (result == ceclSuccess) {
        result = ops->mem_map(comm->dev, base, &bounce->mem);
        if (result != ceclSuccess)
            ops->mem_release(comm->dev, &bounce->mem);
    }
    if (result != ceclSuccess)
        ops->unreserve(comm->dev, base, bounce->bytes);
    return result;
}

static ceclResult_t free_replaced(ceclComm_t comm)
{
    struct cecl_bounce **at = &comm->launcher->bounces.memory;
    if (comm->launcher->captured) /* a replay may use replaced buffers again */
        return ceclSuccess;
    while (*at && (*at)->next) {
        struct cecl_bounce *old = (*at)->next;
        if (old->replaced || !cecl_flags_is_over(&comm->engine.flags, old->last_use)) {
            at = &old->next;
            continue;
        }
        CECL_TRY(cecl_registry_forget(&comm->registry, old->base));
        (*at)->next = old->next;
        free_bounce(comm, old);
    }
    return ceclSuccess;
}

/* Makes a bounce buffer of `wanted` bytes, or of `bytes` if there is no memory for `wanted` bytes. */
static ceclResult_t make_bounce(ceclComm_t comm, uint64_t bytes, uint64_t wanted,
                                struct cecl_bounce **made)
{
    const uint64_t unit = comm->dev->granularity;
    struct cecl_bounce *bounce = calloc(1, sizeof(*bounce));
    if (!bounce)
        return cecl_fail(ceclOutOfMemory, "no host memory for a bounce buffer");
    bounce->bytes = (size_t)cecl_round_up(wanted, unit);
    ceclResult_t result = create_memory(comm, bounce);
    if (result != ceclSuccess && wanted > bytes) { /* tries again with fewer bytes */
        bounce->bytes = (size_t)cecl_round_up(bytes, unit);
        result = create_memory(comm, bounce);
    }
    if (result != ceclSuccess) {
        free(bounce);
        return cecl_fail(result,
                         "%.300s; a buffer in memory that peers cannot reach takes its size a "
                         "second time: register the buffer, or allocate it by ceclMemAlloc",
                         cecl_message());
    }
    result = cecl_registry_forget(&comm->registry, bounce->base);
    if (result == ceclSuccess) {
        const struct cecl_use all = cecl_use_all(bounce->base, bounce->bytes, "bounce");
        result = cecl_registry_settle(&comm->registry, &all, true);
    }
    if (result != ceclSuccess) {
        char words[CECL_MESSAGE_BYTES];
        result = cecl_comm_cause(comm, result);
        cecl_keep_message(words);
        free_bounce(comm, bounce);
        return cecl_fail_with(result, words);
    }
    *made = bounce;
    return ceclSuccess;
}

/* Puts a new bounce buffer of at least `bytes` bytes first in the list. */
static ceclResult_t grow_bounces(ceclComm_t comm, uint64_t bytes)
{
    struct cecl_bounces *bounces = &comm->launcher->bounces;
    const uint64_t before = bounces->memory ? bounces->memory->bytes : 0;
    struct cecl_bounce *bounce;
    CECL_TRY(make_bounce(comm, bytes, bytes > 2 * before ? bytes : 2 * before, &bounce));
    if (bounces->memory)
        bounces->memory->replaced = true;
    bounce->next = bounces->memory;
    bounces->memory = bounce;
    bounces->used = 0;
    return ceclSuccess;
}

ceclResult_t cecl_bounce_lease(struct cecl_launch *launch, uint64_t bytes,
                               struct cecl_buffer *bounce)
{
    ceclComm_t comm = launch->comm;
    struct cecl_bounces *bounces = &comm->launcher->bounces;
    struct cecl_leases *leases = &launch->leases;
    const uint64_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!bounces->memory || rounded > bounces->memory->bytes - bounces->used)
        CECL_TRY(grow_bounces(comm, rounded));
    if (!leases->has_bounce) {
        leases->has_bounce = true;
        leases->first = bounces->used;
        bounces->leases++;
    }
    *bounce = cecl_window_find(&comm->windows, bounces->memory->base + bounces->used);
    bounces->used += rounded;
    leases->behind = bounces->used;
    return ceclSuccess;
}

/* Called when no lease is left. Frees replaced buffers that no pending call uses; a later call of this function frees
 * the rest. In a failed communicator frees none: peers may still use the buffer of a call that failed on this rank. */
static void end_last(ceclComm_t comm)
{
    struct cecl_bounces *bounces = &comm->launcher->bounces;
    for (struct cecl_bounce *bounce = bounces->memory; bounce; bounce = bounce->next)
        if (bounce->replaced) {
            bounce->replaced = false;
            bounce->last_use = cecl_flags_done_target(&comm->engine.flags);
        }
    if (bounces->memory->next && atomic_load(&comm->async_result) == ceclSuccess)
        (void)!free_replaced(comm);
    bounces->used = 0;
}

/* Whether a buffer was replaced since the oldest lease, so that leases may lie in several buffers. */
static bool has_grown(const struct cecl_bounces *bounces)
{
    return bounces->memory->next && bounces->memory->next->replaced;
}

/* While other launches have leases (another thread's group), gives back only bytes at the end of the used part. */
void cecl_bounce_end(struct cecl_launch *launch)
{
    struct cecl_bounces *bounces = &launch->comm->launcher->bounces;
    struct cecl_leases *leases = &launch->leases;
    if (!leases->has_bounce)
        return;
    leases->has_bounce = false;
    if (--bounces->leases == 0)
        end_last(launch->comm);
    else if (bounces->used == leases->behind && !has_grown(bounces))
        bounces->used = leases->first;
}
