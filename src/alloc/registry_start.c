/* What the start of a request checks of registered memory. A start takes no lock. For this rank's windows it
 * asks the device for the ids of their regions. For each peer's window it reads one atomic.
 *
 * A peer's window that a request uses is pinned. It may be closed nevertheless, because the peer's later
 * memory at the same addresses could not be opened otherwise. But it is not closed while a start is being
 * made or is pending. registry_claim has the other side of this protocol. */
#include "alloc/registry_internal.h"

ceclResult_t cecl_registry_is_same(const struct cecl_registry *registry,
                                   const struct cecl_window *window, const struct cecl_use *use,
                                   bool *same)
{
    struct cecl_device *dev = registry->dev;
    uint64_t at = (uint64_t)(uintptr_t)use->buffer;
    *same = !window->gone;
    for (size_t i = 0; i < window->nregions && at < use->high && *same; i++) {
        const struct cecl_registered *region = &window->regions[i];
        const uint64_t end = region->base + region->bytes;
        struct cecl_use part = *use;
        uint64_t id;
        if (end <= at)
            continue;
        part.low = use->low > at ? use->low : at;
        part.high = use->high < end ? use->high : end;
        CECL_TRY(dev->ops->region_id(dev, (void *)(uintptr_t)at,
                                     part.low < part.high ? &part : NULL, &id));
        *same = region->base <= at && id == region->id;
        at = end;
    }
    return ceclSuccess;
}

bool registry_starts_are_done(const struct cecl_registry *registry)
{
    const struct cecl_registry_asks *asks = &registry->asks;
    if (atomic_load(&registry->starting)) /* read before the target */
        return false;
    return !atomic_load(&registry->has_started) ||
           asks->reached(asks->context, atomic_load(&registry->started_until));
}

void cecl_imports_pin(struct cecl_registry *registry, const struct cecl_imports *imports)
{
    pthread_mutex_lock(&registry->lock);
    for (uint32_t i = 0; i < imports->count; i++)
        imports->list[i]->pins++;
    pthread_mutex_unlock(&registry->lock);
}

void cecl_imports_unpin(struct cecl_registry *registry, const struct cecl_imports *imports)
{
    pthread_mutex_lock(&registry->lock);
    for (uint32_t i = 0; i < imports->count; i++)
        imports->list[i]->pins--;
    pthread_mutex_unlock(&registry->lock);
}

/* registry_claim may set `closed` for a moment, under the lock, and clear it when it finds this start. So
 * if `closed` is set, it is read again under the lock. */
static bool is_closed(struct cecl_registry *registry, const struct cecl_import *import)
{
    if (!atomic_load(&import->closed))
        return false;
    pthread_mutex_lock(&registry->lock);
    const bool closed = atomic_load(&import->closed);
    pthread_mutex_unlock(&registry->lock);
    return closed;
}

bool cecl_imports_begin(struct cecl_registry *registry, const struct cecl_imports *imports)
{
    if (imports->count == 0)
        return true;
    atomic_store(&registry->starting, true);
    for (uint32_t i = 0; i < imports->count; i++)
        if (is_closed(registry, imports->list[i])) {
            atomic_store(&registry->starting, false);
            return false;
        }
    return true;
}

void cecl_imports_end(struct cecl_registry *registry, const struct cecl_imports *imports,
                      uint32_t target)
{
    if (imports->count == 0)
        return;
    atomic_store(&registry->started_until, target);
    atomic_store(&registry->has_started, true);
    atomic_store(&registry->starting, false);
}
