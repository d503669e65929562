/* All registries of this process, and how their imports are closed. A process with several communicators may have
 * opened a peer's memory once for each of them. If the peer frees the memory and allocates new memory at the same
 * addresses, it announces the new memory only on the communicator that uses it. CUDA opens the new memory although the
 * old is open, with one exception: if both are small parts of blocks of the driver, CUDA may refuse until the old
 * memory is closed on all communicators. */
#include <inttypes.h>
#include <stdatomic.h>

#include "alloc/registry_internal.h"
#include "util/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cecl_registry *all; /* a list */

/* A forked child starts with an empty list, because it cannot use its parent's registries. It also initialises the lock
 * again, because a thread that only the parent has may hold it. */
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
    CECL_LOCKED(&lock);
    registry->next = all;
    all = registry;
}

void registry_delist(struct cecl_registry *registry)
{
    CECL_LOCKED(&lock);
    struct cecl_registry **at = &all;
    while (*at && *at != registry)
        at = &(*at)->next;
    if (*at)
        *at = registry->next;
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

/* ---- memory that was replaced */

/* How an import relates to the memory that is about to be opened. */
enum standing { APART, OLDER, NEWER };

/* If two regions share addresses, the one that was exported first is older: it was freed before the other was
 * allocated. The order in which messages about them come says nothing, because they may come on two communicators. A
 * region that only lies near `exported` may be of the same block, or of a former block at the same addresses (see
 * REGISTRY_BLOCK_BYTES). If CUDA has refused to open `exported`, such regions that were open then (up to number
 * `before`) count as parts of a former block. */
static enum standing standing_of(const struct cecl_import *import,
                                 const struct cecl_region_export *exported, uint64_t before)
{
    /* memory shared as a file never makes CUDA refuse; an import without regions has nothing open yet */
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

/* What a search looks for, and what it finds. */
struct search {
    /* not NULL: looks for former memory at the addresses of this region; NULL: for imports that peers have dropped */
    const struct cecl_region_export *exported;
    uint64_t before;
    bool takes;                /* takes out of their lists the matching imports that no call uses */
    struct cecl_import *taken; /* the imports that were taken out */
    bool left, outdated;       /* matching imports are still in lists; newer memory was found */
};

static enum standing standing_in(const struct search *search, const struct cecl_import *import)
{
    if (search->exported)
        return standing_of(import, search->exported, search->before);
    return import->state == IMPORT_DROPPED ? OLDER : APART;
}

static void search_imports(struct cecl_registry *registry, struct cecl_import **at,
                           struct search *search)
{
    while (*at) {
        struct cecl_import *import = *at;
        const enum standing standing = standing_in(search, import);
        /* the owner has freed former memory, although it may not have said so yet on this import's communicator */
        if (standing == OLDER && search->exported && search->before == 0 &&
            import->state == IMPORT_VALID)
            registry_note_dropped(import);
        const bool stays =
            standing == OLDER && (!search->takes || registry_is_in_use(registry, import));
        search->outdated = search->outdated || standing == NEWER;
        search->left = search->left || stays;
        if (standing != OLDER || stays) {
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
    CECL_LOCKED(&registry->lock);
    for (int i = 0; i < registry->nranks * CECL_IMPORT_LISTS; i++)
        search_imports(registry,
                       &registry->peers[i / CECL_IMPORT_LISTS].imports[i % CECL_IMPORT_LISTS],
                       search);
}

/* Searches all registries of the GPU. Closes the imports that it took out only after it has released the lock, because
 * closing may take long. By then an import's registry may have ended. So this function uses the device of `by`: all
 * devices of one GPU share its context. */
static void search_all(struct cecl_registry *by, struct search *search)
{
    pthread_mutex_lock(&lock);
    for (struct cecl_registry *registry = all; registry; registry = registry->next)
        if (registry->dev->kind == by->dev->kind && registry->dev->ordinal == by->dev->ordinal)
            search_registry(registry, search);
    pthread_mutex_unlock(&lock);
    while (search->taken) {
        struct cecl_import *import = search->taken;
        search->taken = import->next;
        registry_close_import(by, import);
    }
}

ceclResult_t registry_try_open(struct cecl_registry *registry,
                               const struct cecl_region_export *exported, void **addr)
{
    struct search search = {.exported = exported};
    search_all(registry, &search);
    if (search.outdated)
        return cecl_fail(ceclInvalidUsage,
                         "memory at %#" PRIx64 " was freed before it was opened here",
                         exported->base);
    return addr ? registry->dev->ops->region_import(registry->dev, exported, NULL, addr)
                : ceclSuccess;
}

/* ---- closing
 *
 * CUDA closes a handle only when the GPU has no work. Until then the close holds up other threads of the process. So
 * workers close nothing; only threads of the program do, after they have waited until the GPU's work is done. A close
 * still waits for work that other threads enqueue later. */

/* How long a thread waits for the GPU: until the deadline, or until go_on ends the waits of its call. */
struct patience {
    const struct cecl_registry_asks *asks; /* NULL: no call is being made */
    int64_t deadline;
};

static bool lasts(void *context)
{
    const struct patience *patience = context;
    return cecl_ms_left(patience->deadline) != 0 &&
           (!patience->asks || patience->asks->go_on(patience->asks->context));
}

/* How long a call waits for memory that the device refuses to open, if the communicator has no time limit. */
#define OPEN_MS 30000

/* Waits until the GPU has no work, then closes former memory that was open up to import number `before`. If the GPU
 * cannot be asked, closes at once, as the program's own cudaFree would. Does not ask in a captured call, because the
 * question would invalidate the capture. */
static void make_way(struct cecl_registry *registry, const struct cecl_region_export *exported,
                     uint64_t before, struct patience *patience)
{
    struct cecl_device *dev = registry->dev;
    struct search search = {.exported = exported, .before = before, .takes = true};
    if (registry->asks.captures(registry->asks.context) ||
        dev->ops->quiet(dev, lasts, patience) != ceclInProgress)
        search_all(registry, &search);
    if (search.left) /* calls that use former memory must end first */
        cecl_pause_us(100);
}

ceclResult_t registry_open_handle(struct cecl_registry *registry, struct cecl_import *import)
{
    const int64_t bound = registry->timeout_ms > 0 ? registry->timeout_ms : OPEN_MS;
    struct patience patience = {&registry->asks, cecl_deadline(bound)};
    struct imported *region = import->unopened;
    uint64_t before = atomic_load(&imports);
    void *addr = NULL;
    ceclResult_t result;
    import->call = registry->call; /* so the import stays */
    pthread_mutex_unlock(&registry->lock);
    while ((result = registry_try_open(registry, &region->exported, &addr)) == ceclInProgress &&
           lasts(&patience)) {
        make_way(registry, &region->exported, before, &patience);
        before = atomic_load(&imports);
    }
    pthread_mutex_lock(&registry->lock);
    if (result == ceclInProgress)
        return cecl_fail(
            ceclTimeout,
            "memory at %#" PRIx64
            " of a peer cannot be opened: earlier memory of its block is still open here, and CUDA "
            "closes that only when the GPU has no work. Does a kernel wait for this thread? "
            "(Allocations of 2 MiB and more, and those of ceclMemAlloc, need no such wait)",
            region->exported.base);
    if (result == ceclSuccess) {
        registry_add_region(registry, import, region, addr);
        import->unopened = NULL;
    } else {
        cecl_keep_message(import->words);
        import->failed = result;
    }
    return ceclSuccess; /* an error is kept with the import */
}

/* Bytes of all dropped imports that are still open, plus one block for each. */
static _Atomic uint64_t dropped;
/* If `dropped` exceeds `bearable`, a call waits until the GPU has ended its work, and closes dropped imports. The wait
 * is bounded, because a kernel may wait for the host. Then `bearable` becomes twice what is still dropped, so that all
 * waits together take only a few times as long as one wait. */
#define DROPPED_BYTES (UINT64_C(256) << 20)
static _Atomic uint64_t bearable = DROPPED_BYTES;

#define NOW_MS 1
#define LONG_MS 5000 /* longer than the work that programs enqueue ahead */

void registry_note_dropped(struct cecl_import *import)
{
    import->state = IMPORT_DROPPED;
    import->weight = REGISTRY_BLOCK_BYTES;
    for (const struct imported *region = import->regions; region; region = region->next)
        import->weight += region->exported.bytes;
    atomic_fetch_add(&dropped, import->weight);
}

void registry_note_closed(uint64_t weight)
{
    atomic_fetch_sub(&dropped, weight);
}

/* Closes dropped imports once the GPU has no work. Returns false, and closes none, unless the GPU ended in time. */
static bool close_dropped(struct cecl_registry *by, struct patience patience)
{
    struct search search = {.takes = true};
    if (by->dev->ops->quiet(by->dev, lasts, &patience) != ceclSuccess)
        return false;
    search_all(by, &search);
    return true;
}

static void bear_twice_what_is_left(void)
{
    const uint64_t left = atomic_load(&dropped);
    atomic_store(&bearable, left > DROPPED_BYTES / 2 ? 2 * left : DROPPED_BYTES);
}

void cecl_registry_close_dropped(struct cecl_registry *registry)
{
    const struct patience patience = {NULL, cecl_deadline(NOW_MS)};
    if (atomic_load(&dropped) > 0 && close_dropped(registry, patience))
        bear_twice_what_is_left();
}

void registry_bound_dropped(struct cecl_registry *registry)
{
    const struct patience patience = {&registry->asks, cecl_deadline(LONG_MS)};
    if (atomic_load(&dropped) <= atomic_load(&bearable) ||
        registry->asks.captures(registry->asks.context))
        return;
    (void)close_dropped(registry, patience);
    bear_twice_what_is_left();
}
