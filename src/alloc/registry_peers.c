/* How calls use peers' windows: finding a window's import, waiting for it, and closing it. */
#include <inttypes.h>
#include <stdlib.h>

#include "alloc/registry_internal.h"
#include "util/clock.h"
#include "util/grow.h"

/* How long a wait sleeps, in ms, before it calls go_on again. */
#define ASK_MS 2

struct cecl_import **registry_find_import(struct cecl_peer_windows *peer, uint64_t number)
{
    struct cecl_import **at = &peer->imports[number % CECL_IMPORT_LISTS];
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* ---- opening and closing */

void registry_add_region(struct cecl_registry *registry, struct cecl_import *import,
                         struct imported *region, void *addr)
{
    region->addr = addr;
    region->opened = registry_next_import();
    if (!import->reserved) { /* the window of a handle, which has only one region */
        import->mirror = (char *)addr - (region->exported.base - import->home);
        region->open = true;
        pthread_cond_broadcast(&registry->news);
    }
    region->next = import->regions;
    import->regions = region;
}

static void drop_reference(struct cecl_import *import)
{
    if (atomic_fetch_sub(&import->references, 1) == 1)
        free(import);
}

struct cecl_import *registry_take_import(struct cecl_import **at)
{
    struct cecl_import *import = *at;
    *at = import->next;
    import->next = NULL;
    atomic_store(&import->state, IMPORT_CLOSED);
    return import;
}

void registry_close_import(struct cecl_registry *registry, struct cecl_import *import)
{
    struct cecl_device *dev = registry->dev;
    while (import->regions) {
        struct imported *region = import->regions;
        import->regions = region->next;
        dev->ops->region_close(dev, &region->exported, region->addr);
        free(region);
    }
    if (import->reserved)
        dev->ops->unreserve(dev, import->mirror, (size_t)import->bytes);
    free(import->unopened);
    registry_note_closed(import->weight);
    drop_reference(import);
}

void registry_close_peers(struct cecl_registry *registry)
{
    for (int r = 0; r < registry->nranks; r++)
        for (int i = 0; i < CECL_IMPORT_LISTS; i++)
            while (registry->peers[r].imports[i])
                registry_close_import(registry,
                                      registry_take_import(&registry->peers[r].imports[i]));
}

/* The call that is being made counts as a use, because in a failed communicator an owner may drop memory that this call
 * names. (Otherwise an owner drops or replaces memory only after the calls that name it.) */
bool registry_is_in_use(const struct cecl_registry *registry, const struct cecl_import *import)
{
    const struct cecl_registry_asks *asks = &registry->asks;
    return import->call == registry->call || import->holds > 0 ||
           (import->used && !asks->reached(asks->context, import->last_use));
}

void cecl_registry_made(struct cecl_registry *registry)
{
    CECL_LOCKED(&registry->lock);
    registry->call++;
}

/* ---- using */

void cecl_registry_promised(struct cecl_registry *registry, int peer, uint64_t messages)
{
    if (registry->peers[peer].promised < messages)
        registry->peers[peer].promised = messages;
}

static bool has_import(const struct cecl_imports *imports, const struct cecl_import *import)
{
    for (uint32_t i = 0; i < imports->count; i++)
        if (imports->list[i] == import)
            return true;
    return false;
}

ceclResult_t cecl_imports_add(struct cecl_registry *registry, int peer, uint64_t number,
                              struct cecl_imports *imports)
{
    if (number < CECL_WINDOW_FIRST)
        return ceclSuccess;
    if (!CECL_HAS_ROOM(imports->list, imports->count, imports->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for %u windows of peers",
                         imports->count + 1);
    CECL_LOCKED(&registry->lock);
    struct cecl_import *import = *registry_find_import(&registry->peers[peer], number);
    if (import && !has_import(imports, import)) {
        atomic_fetch_add(&import->references, 1);
        imports->list[imports->count++] = import;
    }
    return ceclSuccess;
}

void cecl_imports_drop(struct cecl_imports *imports)
{
    while (imports->count > 0)
        drop_reference(imports->list[--imports->count]);
}

bool cecl_imports_name(struct cecl_registry *registry, const struct cecl_imports *imports)
{
    bool open = true;
    if (imports->count == 0)
        return true;
    CECL_LOCKED(&registry->lock);
    for (uint32_t i = 0; i < imports->count; i++) {
        imports->list[i]->call = registry->call;
        open = open && atomic_load(&imports->list[i]->state) != IMPORT_CLOSED;
    }
    return open;
}

void cecl_imports_used(struct cecl_registry *registry, const struct cecl_imports *imports,
                       uint32_t target)
{
    if (imports->count == 0)
        return;
    CECL_LOCKED(&registry->lock);
    for (uint32_t i = 0; i < imports->count; i++) {
        imports->list[i]->used = true;
        imports->list[i]->last_use = target;
    }
    registry->call++;
}

void cecl_imports_hold(struct cecl_registry *registry, const struct cecl_imports *imports,
                       bool hold)
{
    CECL_LOCKED(&registry->lock);
    for (uint32_t i = 0; i < imports->count; i++)
        imports->list[i]->holds += hold ? 1u : UINT32_MAX;
}

bool cecl_imports_are_dropped(const struct cecl_imports *imports)
{
    bool dropped = false;
    for (uint32_t i = 0; i < imports->count; i++)
        dropped = dropped || atomic_load(&imports->list[i]->state) != IMPORT_VALID;
    return dropped;
}

static const struct imported *region_at(const struct cecl_import *import, uint64_t address)
{
    const struct imported *region = import->regions;
    while (region && (address < region->exported.base ||
                      address - region->exported.base >= region->exported.bytes))
        region = region->next;
    return region;
}

/* A range of bytes of a peer's window. */
struct stretch {
    uint64_t number, low, high;
};

/* Whether all bytes of a range in a peer's window may be used. */
static bool is_open(const struct cecl_import *import, const struct stretch *stretch)
{
    uint64_t at = import->home + stretch->low;
    const uint64_t end = import->home + stretch->high;
    if (stretch->high > import->bytes)
        return false;
    while (at < end) {
        const struct imported *region = region_at(import, at);
        if (!region || !region->open)
            return false;
        at = region->exported.base + region->exported.bytes;
    }
    return true;
}

/* Returns ceclSuccess if this rank may use a range of bytes in a peer's window, ceclInProgress if the range is not
 * imported yet, or the error of its import. The caller holds the lock. */
static ceclResult_t state_of(const struct cecl_registry *registry, int rank,
                             const struct stretch *stretch, void **at)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    struct cecl_import *import = *registry_find_import(peer, stretch->number);
    if (import && is_open(import, stretch)) {
        import->call = registry->call;
        *at = import->mirror + stretch->low;
        return ceclSuccess;
    }
    if (import && import->failed != ceclSuccess)
        return cecl_fail(import->failed, "memory of rank %d: %s", rank, import->words);
    if (import && import->unopened)
        return ceclInProgress;
    if (peer->failed != ceclSuccess)
        return cecl_fail(peer->failed, "memory of rank %d: %s", rank, peer->words);
    if (peer->taken < peer->promised)
        return ceclInProgress;
    return cecl_fail(ceclInternalError,
                     "rank %d named bytes %" PRIu64 " to %" PRIu64 " of window %" PRIu64
                     ", which its peer does not know",
                     rank, stretch->low, stretch->high, stretch->number);
}

ceclResult_t cecl_registry_reach(struct cecl_registry *registry, int rank, uint64_t number,
                                 uint64_t offset, uint64_t bytes, void **at)
{
    const struct stretch stretch = {number, offset, offset + bytes};
    const struct cecl_registry_asks *asks = &registry->asks;
    ceclResult_t result;
    registry_bound_dropped(registry);
    CECL_LOCKED(&registry->lock);
    while ((result = state_of(registry, rank, &stretch, at)) == ceclInProgress) {
        struct cecl_import *import = *registry_find_import(&registry->peers[rank], number);
        if (import && import->unopened) {
            CECL_TRY(registry_open_handle(registry, import));
            continue;
        }
        if (!asks->go_on(asks->context))
            return cecl_fail(ceclTimeout,
                             "memory that rank %d named was not opened by its peer in time", rank);
        const struct timespec until = cecl_time_in(ASK_MS);
        pthread_cond_timedwait(&registry->news, &registry->lock, &until);
    }
    return result;
}
