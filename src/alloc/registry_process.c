/* All registries of this process. A process with several communicators may have a peer's memory open once
 * for each of them. If the peer frees the memory and allocates new memory at the same addresses, it tells
 * this rank about the new memory only on the communicator that uses it. But CUDA opens the new memory only
 * when the old memory is closed on all communicators. */
#include <inttypes.h>
#include <stdatomic.h>

#include "alloc/registry_internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cecl_registry *all; /* a list */

/* A forked child starts with an empty list, because it cannot use its parent's registries. It also makes
 * the lock anew, because a thread of the parent may have held it, and the child does not have that thread. */
static void forget_all(void)
{
    pthread_mutex_init(&lock, NULL);
    all = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_all);
}

void registry_enlist(struct cecl_registry *registry)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    registry->next = all;
    all = registry;
    pthread_mutex_unlock(&lock);
}

void registry_delist(struct cecl_registry *registry)
{
    pthread_mutex_lock(&lock);
    struct cecl_registry **at = &all;
    while (*at && *at != registry)
        at = &(*at)->next;
    if (*at)
        *at = registry->next;
    pthread_mutex_unlock(&lock);
}

bool registry_all_idle(void)
{
    bool idle = true;
    pthread_mutex_lock(&lock);
    for (const struct cecl_registry *registry = all; registry && idle; registry = registry->next)
        idle = registry->asks.idle(registry->asks.context);
    pthread_mutex_unlock(&lock);
    return idle;
}

uint64_t registry_stamp(void)
{
    static _Atomic uint64_t stamps;
    return atomic_fetch_add(&stamps, 1);
}

static _Atomic uint64_t imports;

uint64_t registry_next_import(void)
{
    return atomic_fetch_add(&imports, 1) + 1;
}

uint64_t registry_last_import(void)
{
    return atomic_load(&imports);
}

/* ---- memory that was replaced */

/* How an import relates to the memory that is about to be opened. */
enum standing { APART, OLDER, NEWER };

/* Messages of several communicators come in any order. But memory is exported while it exists. So of two
 * regions at the same addresses, the one that was exported first was also freed first.
 *
 * An import near `exported` may be of the same block, or of a former one at the same addresses. If CUDA
 * has refused to open `exported`, the imports that were open at that time are of a former block (see
 * REGISTRY_BLOCK_BYTES). */
static enum standing standing_of(const struct cecl_import *import,
                                 const struct cecl_region_export *exported, uint64_t before)
{
    /* files never prevent opening; an import without regions has nothing open yet */
    if (import->reserved || !import->regions)
        return APART;
    const struct cecl_region_export *other = &import->regions->exported;
    const struct addresses range = addresses_of(exported->base, exported->bytes),
                           place = addresses_of(other->base, other->bytes);
    if (other->process != exported->process || other->ordinal != exported->ordinal ||
        other->id == exported->id)
        return APART;
    if (!addresses_overlap(place, range) && (before == 0 || import->regions->opened > before ||
                                             !addresses_overlap(place, addresses_of_blocks(range))))
        return APART;
    return other->stamp < exported->stamp ? OLDER : NEWER;
}

/* What registry_close_stale looks for, and what it finds. */
struct search {
    const struct cecl_region_export *exported;
    uint64_t before;
    struct cecl_import *taken; /* older imports, taken out of their lists */
    bool busy, outdated;
};

static void search_imports(struct cecl_registry *registry, struct cecl_import **at,
                           struct search *search)
{
    while (*at) {
        struct cecl_import *import = *at;
        const enum standing standing = standing_of(import, search->exported, search->before);
        const bool busy = standing == OLDER && !registry_claim(registry, import);
        search->outdated = search->outdated || standing == NEWER;
        search->busy = search->busy || busy;
        if (standing != OLDER || busy) {
            at = &import->next;
            continue;
        }
        (void)registry_take_import(at);
        import->next = search->taken;
        search->taken = import;
    }
}

static void search_registry(struct cecl_registry *registry, struct search *search)
{
    pthread_mutex_lock(&registry->lock);
    for (int i = 0; i < registry->nranks * CECL_IMPORT_LISTS; i++)
        search_imports(registry,
                       &registry->peers[i / CECL_IMPORT_LISTS].imports[i % CECL_IMPORT_LISTS],
                       search);
    pthread_mutex_unlock(&registry->lock);
}

/* Closes without the lock, because closing may take long. Uses the caller's device, because other
 * registries may end meanwhile; all devices of one GPU share its context. */
ceclResult_t registry_close_stale(struct cecl_registry *by,
                                  const struct cecl_region_export *exported, uint64_t before)
{
    struct search search = {.exported = exported, .before = before};
    pthread_mutex_lock(&lock);
    for (struct cecl_registry *registry = all; registry; registry = registry->next)
        if (registry->dev->kind == by->dev->kind && registry->dev->ordinal == by->dev->ordinal)
            search_registry(registry, &search);
    pthread_mutex_unlock(&lock);
    while (search.taken) {
        struct cecl_import *import = search.taken;
        search.taken = import->next;
        registry_close_import(by, import);
    }
    if (search.outdated)
        return cecl_fail(ceclInvalidUsage,
                         "memory at %#" PRIx64 " was freed before it was opened here",
                         exported->base);
    return search.busy ? ceclInProgress : ceclSuccess;
}
