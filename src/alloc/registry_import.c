/* Carries out peers' messages about their windows: imports regions, and notes dropped windows. Only the
 * worker runs this code. It closes nothing, because that may wait for the program's kernels. It holds the lock
 * while it changes the list of imports, but not while it imports, because the driver may take long. A call on
 * another registry may take an import out of the list if it is of a handle, or dropped: see registry_process.c. */
#include <stdlib.h>
#include <unistd.h>

#include "alloc/registry_internal.h"
#include "util/fds.h"
#include "util/fork.h"

/* ---- regions */

/* The import of the regions of one message. */
struct work {
    struct cecl_registry *registry;
    struct cecl_peer_windows *peer;
    struct cecl_import *import;
    struct registry_message *message;
    uint64_t left; /* a bit for each region that is not imported yet */
    /* the peer's addresses of adjacent regions that are imported, but not accessible yet; they become
     * accessible together */
    struct addresses beside;
};
_Static_assert(REGISTRY_REGIONS <= 64, "a word has a bit for each region of a message");

/* Memory of this same process is not opened, so former memory cannot prevent that. ceclInProgress: former memory
 * prevents it. */
static ceclResult_t open_region(const struct work *work, const struct cecl_region_export *exported,
                                void *at, void **addr)
{
    struct cecl_device *dev = work->registry->dev;
    return exported->kind == CECL_REGION_HANDLE && exported->process != cecl_fork_process()
               ? registry_try_open(work->registry, exported, &work->import->refused, addr)
               : dev->ops->region_import(dev, exported, at, addr);
}

static ceclResult_t import_region(struct work *work, const struct cecl_region_export *exported)
{
    struct cecl_import *import = work->import;
    struct imported *region = calloc(1, sizeof(*region));
    const uint64_t offset = exported->base - import->home;
    void *addr = NULL;
    if (!region)
        return cecl_fail(ceclOutOfMemory, "no host memory for a region");
    const ceclResult_t result =
        open_region(work, exported, import->reserved ? import->mirror + offset : NULL, &addr);
    if (result != ceclSuccess && result != ceclInProgress) {
        free(region);
        return result;
    }
    *region = (struct imported){.exported = *exported};
    region->exported.fd = -1;
    pthread_mutex_lock(&work->registry->lock);
    if (result == ceclInProgress)
        import->blocked = region;
    else
        registry_add_region(work->registry, import, region, addr);
    pthread_mutex_unlock(&work->registry->lock);
    return ceclSuccess;
}

/* Gives the device access to the adjacent regions in work->beside. */
static ceclResult_t open_regions(struct work *work)
{
    struct cecl_registry *registry = work->registry;
    const struct addresses range = work->beside;
    work->beside = (struct addresses){0};
    if (range.low == range.high)
        return ceclSuccess;
    CECL_TRY(registry->dev->ops->region_access(
        registry->dev, work->import->mirror + (range.low - work->import->home),
        (size_t)(range.high - range.low)));
    pthread_mutex_lock(&registry->lock);
    for (struct imported *region = work->import->regions; region; region = region->next)
        if (region->exported.base >= range.low && region->exported.base < range.high)
            region->open = true;
    pthread_cond_broadcast(&registry->news);
    pthread_mutex_unlock(&registry->lock);
    return ceclSuccess;
}

/* The peer's addresses in this window for which a call waits. */
static struct addresses wanted_of(const struct work *work)
{
    const struct cecl_import *import = work->import;
    pthread_mutex_lock(&work->registry->lock);
    const struct cecl_stretch wanted = work->peer->wanted;
    pthread_mutex_unlock(&work->registry->lock);
    return wanted.number == import->number
               ? (struct addresses){import->home + wanted.low, import->home + wanted.high}
               : (struct addresses){0};
}

static struct addresses region_of(const struct cecl_region_export *exported)
{
    return addresses_of(exported->base, exported->bytes);
}

/* The next region to import: one for which a call waits, if there is one. */
static uint32_t choose(const struct work *work, struct addresses wanted)
{
    const uint32_t first = (uint32_t)__builtin_ctzll(work->left);
    for (uint32_t i = first; i < work->message->count; i++)
        if ((work->left >> i & 1) != 0 &&
            addresses_overlap(region_of(&work->message->regions[i]), wanted))
            return i;
    return first;
}

/* Imports one region. Before that, makes the regions in work->beside accessible if this region is not
 * adjacent to them, or if a call waits for them and not for this region. */
static ceclResult_t import_beside(struct work *work)
{
    const struct addresses wanted = wanted_of(work);
    const uint32_t next = choose(work, wanted);
    const struct cecl_region_export *exported = &work->message->regions[next];
    const struct addresses range = region_of(exported);
    if (work->beside.high != range.low ||
        (addresses_overlap(work->beside, wanted) && !addresses_overlap(range, wanted)))
        CECL_TRY(open_regions(work));
    work->left &= ~(UINT64_C(1) << next);
    CECL_TRY(import_region(work, exported));
    work->beside.low = work->beside.high == range.low ? work->beside.low : range.low;
    work->beside.high = range.high;
    return ceclSuccess;
}

/* Imports the regions of a message. `fds` are the descriptors of those regions that have one, in order. */
static ceclResult_t import_all(struct work *work, const int *fds)
{
    struct registry_message *message = work->message;
    char words[CECL_MESSAGE_BYTES];
    for (uint32_t i = 0, f = 0; i < message->count; i++)
        message->regions[i].fd = message->regions[i].kind == CECL_REGION_FILE ? fds[f++] : -1;
    if (!work->import->reserved) {
        for (uint32_t i = 0; i < message->count; i++)
            CECL_TRY(import_region(work, &message->regions[i]));
        return ceclSuccess;
    }
    work->left = message->count < 64 ? (UINT64_C(1) << message->count) - 1 : UINT64_MAX;
    ceclResult_t result = ceclSuccess;
    while (work->left != 0 && result == ceclSuccess)
        result = import_beside(work);
    if (result == ceclSuccess)
        return open_regions(work);
    cecl_keep_message(words);
    (void)!open_regions(work); /* calls that need only these regions can go on */
    return cecl_fail_with(result, words);
}

/* ---- messages */

/* Checks a message of a peer. Only processes of the same user can send one, but a peer may be
 * broken. */
static ceclResult_t check(const struct registry_message *message, size_t bytes, int nfds)
{
    uint64_t files = 0;
    if (bytes < sizeof(*message) || message->count > REGISTRY_REGIONS ||
        bytes != sizeof(*message) + message->count * sizeof(message->regions[0]) ||
        (message->kind != REGISTRY_ADD && message->kind != REGISTRY_DROP))
        return cecl_fail(ceclInternalError, "a message about memory is invalid (%zu bytes)", bytes);
    for (uint32_t i = 0; i < message->count; i++) {
        const struct cecl_region_export *exported = &message->regions[i];
        files += exported->kind == CECL_REGION_FILE;
        if (exported->kind != message->regions[0].kind || exported->base < message->home ||
            exported->bytes > message->bytes ||
            exported->base - message->home > message->bytes - exported->bytes)
            return cecl_fail(ceclInternalError, "a message about memory outside its window");
    }
    if (message->count > 1 && message->regions[0].kind == CECL_REGION_HANDLE)
        return cecl_fail(ceclInternalError, "a message about %u allocations in one window",
                         message->count);
    if (files != (uint64_t)nfds)
        return cecl_fail(ceclInternalError, "a message about memory brings %d descriptors, not %d",
                         nfds, (int)files);
    return ceclSuccess;
}

/* Adds an import without regions to the peer's list. NULL: no host memory. */
static struct cecl_import *new_import(struct cecl_registry *registry, int rank,
                                      const struct registry_message *message)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    struct cecl_import *import = calloc(1, sizeof(*import));
    if (!import)
        return NULL;
    *import = (struct cecl_import){
        .number = message->number, .home = message->home, .bytes = message->bytes, .references = 1};
    struct cecl_import **list = &peer->imports[message->number % CECL_IMPORT_LISTS];
    pthread_mutex_lock(&registry->lock);
    import->next = *list;
    *list = import;
    pthread_mutex_unlock(&registry->lock);
    return import;
}

/* Reserves a range of addresses for a window whose regions are files, so that they keep their distances. */
static ceclResult_t reserve(struct cecl_registry *registry, struct cecl_import *import)
{
    void *mirror = NULL;
    CECL_TRY(registry->dev->ops->reserve(registry->dev, (size_t)import->bytes, &mirror));
    pthread_mutex_lock(&registry->lock);
    import->mirror = mirror;
    import->reserved = true;
    pthread_mutex_unlock(&registry->lock);
    return ceclSuccess;
}

static void note_failure(struct cecl_registry *registry, struct cecl_import *import,
                         ceclResult_t result)
{
    pthread_mutex_lock(&registry->lock);
    cecl_keep_message(import->words);
    import->failed = result;
    pthread_mutex_unlock(&registry->lock);
}

/* Imports the regions of a message. If that fails, the error is kept with the window, because the owner
 * may have freed memory that no call here needs. Other errors are returned: they show that the peer is
 * broken, and none of its later messages is carried out. */
static ceclResult_t add(struct cecl_registry *registry, int rank, struct registry_message *message,
                        const int *fds)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    const bool by_file = message->count > 0 && message->regions[0].kind == CECL_REGION_FILE;
    /* locked, because calls on other registries may close imports of handles */
    pthread_mutex_lock(&registry->lock);
    struct cecl_import *import = registry_find_import(peer, message->number);
    const bool fits =
        !import || (message->home == import->home && message->bytes == import->bytes && by_file &&
                    (import->failed != ceclSuccess || import->reserved));
    pthread_mutex_unlock(&registry->lock);
    ceclResult_t result = ceclSuccess;
    if (!import) {
        import = new_import(registry, rank, message);
        if (!import)
            return cecl_fail(ceclOutOfMemory, "no host memory for a window");
        result = by_file ? reserve(registry, import) : ceclSuccess;
    } else if (!fits) {
        return cecl_fail(ceclInternalError,
                         "a message about a window does not fit the window of that number");
    }
    struct work work = {.registry = registry, .peer = peer, .import = import, .message = message};
    if (result == ceclSuccess && import->failed == ceclSuccess)
        result = import_all(&work, fds);
    if (result != ceclSuccess)
        note_failure(registry, import, result);
    return ceclSuccess;
}

static void drop(struct cecl_registry *registry, struct cecl_peer_windows *peer, uint64_t number)
{
    pthread_mutex_lock(&registry->lock);
    struct cecl_import *import = registry_find_import(peer, number);
    if (import && import->state == IMPORT_VALID)
        registry_note_dropped(import);
    pthread_mutex_unlock(&registry->lock);
}

static void carry_out(struct cecl_registry *registry, int rank, struct registry_message *message,
                      size_t bytes, const int *fds, int nfds)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    ceclResult_t result = peer->failed != ceclSuccess ? peer->failed : check(message, bytes, nfds);
    if (result == ceclSuccess && message->kind == REGISTRY_ADD)
        result = add(registry, rank, message, fds);
    else if (result == ceclSuccess)
        drop(registry, peer, message->number);
    for (int i = 0; i < nfds; i++)
        cecl_fds_close(fds[i]);
    pthread_mutex_lock(&registry->lock);
    if (result == ceclSuccess) {
        peer->taken = message->message;
    } else if (peer->failed == ceclSuccess) {
        peer->failed = result;
        cecl_keep_message(peer->words);
    }
    pthread_cond_broadcast(&registry->news);
    pthread_mutex_unlock(&registry->lock);
}

ceclResult_t cecl_registry_take(struct cecl_registry *registry, bool *any)
{
    union {
        struct registry_message message;
        char room[CECL_MESH_POST_BYTES];
    } u;
    int fds[CECL_MESH_POST_FDS], nfds, rank;
    size_t bytes;
    const ceclResult_t result =
        cecl_mesh_take(registry->mesh, &rank, u.room, sizeof(u.room), &bytes, fds, &nfds);
    *any = result == ceclSuccess;
    if (*any)
        carry_out(registry, rank, &u.message, bytes, fds, nfds);
    return result == ceclInProgress ? ceclSuccess : result;
}
