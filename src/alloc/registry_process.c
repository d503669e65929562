/* What the registries of this process know of each other. A process that has several communicators with
 * one peer may have the peer's memory open for each. When the peer frees the memory and allocates anew
 * at the same addresses, it tells of that by the communicator on which it uses the new memory. CUDA
 * opens the new memory only once the old one is closed, on all of them. */
#include "alloc/registry_internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cecl_registry *all; /* a list */

/* A forked child begins with none: it cannot use its parent's, and may have lost their memory. Their
 * lock may have been held by a thread that the child does not have. */
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

/* Whether an import is of memory that lay where `exported` lies now, and is gone. Of memory in the same
 * block as `exported` that is certain once CUDA has `refused` to open that: see addresses_of_blocks. */
static bool is_stale(const struct cecl_import *import, const struct cecl_region_export *exported,
                     bool refused)
{
    if (import->reserved || !import->regions) /* files do no harm; or it is not open yet */
        return false;
    const struct cecl_region_export *old = &import->regions->exported;
    const struct addresses range = addresses_of(exported->base, exported->bytes);
    return old->process == exported->process && old->ordinal == exported->ordinal &&
           old->id != exported->id &&
           addresses_overlap(addresses_of(old->base, old->bytes),
                             refused ? addresses_of_blocks(range) : range);
}

/* Takes stale imports of one registry out of its lists, and puts them before *taken. Returns false if
 * a pending call uses some. */
static bool take_stale(struct cecl_registry *registry, const struct cecl_region_export *exported,
                       bool refused, struct cecl_import **taken)
{
    bool all_taken = true;
    pthread_mutex_lock(&registry->lock);
    for (int r = 0; r < registry->nranks; r++)
        for (struct cecl_import **at = &registry->peers[r].imports; *at;) {
            struct cecl_import *import = *at;
            const bool stale = is_stale(import, exported, refused);
            if (stale && registry_is_unused(registry, import)) {
                *at = import->next;
                import->next = *taken;
                *taken = import;
            } else {
                all_taken = all_taken && !stale;
                at = &import->next;
            }
        }
    pthread_mutex_unlock(&registry->lock);
    return all_taken;
}

/* Closing may take long, so it is done without the lock, by the caller's device: other registries may
 * end meanwhile. Devices of one GPU share its context. */
bool registry_close_stale(struct cecl_registry *by, const struct cecl_region_export *exported,
                          bool refused)
{
    struct cecl_import *taken = NULL;
    bool all_taken = true;
    pthread_mutex_lock(&lock);
    for (struct cecl_registry *registry = all; registry; registry = registry->next)
        if (registry->dev->kind == by->dev->kind && registry->dev->ordinal == by->dev->ordinal)
            all_taken = take_stale(registry, exported, refused, &taken) && all_taken;
    pthread_mutex_unlock(&lock);
    while (taken) {
        struct cecl_import *import = taken;
        taken = import->next;
        registry_close_import(by, import);
    }
    return all_taken;
}
