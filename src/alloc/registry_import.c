/* Carries out peers' messages about their windows: imports regions, and notes dropped windows. But a handle is opened
 * by the first call that needs it, unless its owner registered the memory before its first use: most are needed by no
 * call, and each that is open must be closed later.
 * Only the worker runs this code. It closes nothing, because closing may wait for the program's kernels. It holds the
 * lock while it changes the list of imports, but not while it imports, which may take long. Meanwhile a call on another
 * registry may take dropped imports, and imports of handles, out of the list: see registry_process.c. */
#include <stdlib.h>

#include "alloc/registry_internal.h"
#include "util/fds.h"

/* ---- regions */

/* What the import of one message's regions needs. */
struct work {
    struct cecl_registry *registry;
    struct cecl_import *import;
    struct registry_message *message;
};

/* *addr: [out] NULL if a handle was not opened: no call needs it yet, or the device refuses. */
static ceclResult_t open_region(const struct work *work, const struct cecl_region_export *exported,
                                void **addr)
{
    struct cecl_registry *registry = work->registry;
    const struct cecl_import *import = work->import;
    *addr = NULL;
    if (import->reserved)
        return registry->dev->ops->region_import(
            registry->dev, exported, import->mirror + (exported->base - import->home), addr);
    const ceclResult_t result =
        registry_try_open(registry, exported, work->message->kind == REGISTRY_OPEN ? addr : NULL);
    return result == ceclInProgress ? ceclSuccess : result;
}

static ceclResult_t import_region(const struct work *work,
                                  const struct cecl_region_export *exported)
{
    struct cecl_import *import = work->import;
    struct imported *region = calloc(1, sizeof(*region));
    void *addr;
    if (!region)
        return cecl_fail(ceclOutOfMemory, "no host memory for a region");
    const ceclResult_t result = open_region(work, exported, &addr);
    if (result != ceclSuccess) {
        free(region);
        return result;
    }
    *region = (struct imported){.exported = *exported};
    region->exported.fd = -1;
    CECL_LOCKED(&work->registry->lock);
    if (addr)
        registry_add_region(work->registry, import, region, addr);
    else
        import->unopened = region;
    return ceclSuccess;
}

/* Gives the device access to adjacent imported regions by one call, which takes little longer than for a single
 * region. */
static ceclResult_t open_regions(const struct work *work, struct addresses range)
{
    struct cecl_registry *registry = work->registry;
    if (range.low == range.high)
        return ceclSuccess;
    CECL_TRY(registry->dev->ops->region_access(
        registry->dev, work->import->mirror + (range.low - work->import->home),
        (size_t)(range.high - range.low)));
    CECL_LOCKED(&registry->lock);
    for (struct imported *region = work->import->regions; region; region = region->next)
        if (region->exported.base >= range.low && region->exported.base < range.high)
            region->open = true;
    pthread_cond_broadcast(&registry->news);
    return ceclSuccess;
}

/* Imports the regions of a message. `fds` has the descriptors of those regions that have one, in order. */
static ceclResult_t import_all(const struct work *work, const int *fds)
{
    struct registry_message *message = work->message;
    const bool reserved = work->import->reserved; /* read now: the import may be freed below */
    /* adjacent regions that are imported but not open yet, as a range of the peer's addresses */
    struct addresses beside = {0};
    ceclResult_t result = ceclSuccess;
    char words[CECL_MESSAGE_BYTES];
    for (uint32_t i = 0, f = 0; i < message->count && result == ceclSuccess; i++) {
        struct cecl_region_export *exported = &message->regions[i];
        exported->fd = exported->kind == CECL_REGION_FILE ? fds[f++] : -1;
        if (reserved && beside.high != exported->base) {
            result = open_regions(work, beside);
            beside = addresses_of(exported->base, 0);
        }
        if (result == ceclSuccess)
            result = import_region(work, exported);
        if (result == ceclSuccess && reserved)
            beside.high += exported->bytes;
    }
    cecl_keep_message(words);
    /* opens regions even after a failure, because some calls need only regions before the one that failed */
    const ceclResult_t opened = open_regions(work, beside);
    return result != ceclSuccess ? cecl_fail_with(result, words) : opened;
}

/* ---- messages */

/* Checks a message of a peer. Only processes of the same user can send messages, but a peer may be broken. */
static ceclResult_t check(const struct registry_message *message, size_t bytes, int nfds)
{
    uint64_t files = 0;
    if (bytes < sizeof(*message) || message->count > REGISTRY_REGIONS ||
        bytes != sizeof(*message) + message->count * sizeof(message->regions[0]) ||
        message->kind < REGISTRY_ADD || message->kind > REGISTRY_OPEN)
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
    CECL_LOCKED(&registry->lock);
    import->next = *list;
    *list = import;
    return import;
}

/* Reserves a range of addresses for a window whose regions are files, so that regions have the same distances as at the
 * peer. */
static ceclResult_t reserve(struct cecl_registry *registry, struct cecl_import *import)
{
    void *mirror = NULL;
    CECL_TRY(registry->dev->ops->reserve(registry->dev, (size_t)import->bytes, &mirror));
    CECL_LOCKED(&registry->lock);
    import->mirror = mirror;
    import->reserved = true;
    return ceclSuccess;
}

static void note_failure(struct cecl_registry *registry, struct cecl_import *import,
                         ceclResult_t result)
{
    CECL_LOCKED(&registry->lock);
    cecl_keep_message(import->words);
    import->failed = result;
}

/* Imports the regions of a message. If that fails, keeps the error with the import and succeeds, because perhaps no
 * call here needs this memory. Returns an error only for a wrong message, or if there is no host memory for a window;
 * then no later message of the peer is carried out. */
static ceclResult_t add(struct cecl_registry *registry, int rank, struct registry_message *message,
                        const int *fds)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    const bool by_file = message->count > 0 && message->regions[0].kind == CECL_REGION_FILE;
    /* locks, because a call on another registry may close an import of a handle */
    pthread_mutex_lock(&registry->lock);
    struct cecl_import *import = *registry_find_import(peer, message->number);
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
    const struct work work = {registry, import, message};
    if (result == ceclSuccess && import->failed == ceclSuccess)
        result = import_all(&work, fds);
    if (result != ceclSuccess)
        note_failure(registry, import, result);
    return ceclSuccess;
}

static void drop(struct cecl_registry *registry, struct cecl_peer_windows *peer, uint64_t number)
{
    CECL_LOCKED(&registry->lock);
    struct cecl_import **at = registry_find_import(peer, number);
    if (!*at || (*at)->state != IMPORT_VALID)
        return;
    if ((*at)->unopened && (*at)->call != registry->call)
        registry_close_import(registry, registry_take_import(at)); /* no call has opened it */
    else
        registry_note_dropped(*at);
}

static void carry_out(struct cecl_registry *registry, const struct cecl_letter *letter,
                      struct registry_message *message)
{
    struct cecl_peer_windows *peer = &registry->peers[letter->rank];
    ceclResult_t result =
        peer->failed != ceclSuccess ? peer->failed : check(message, letter->bytes, letter->nfds);
    if (result == ceclSuccess && message->kind != REGISTRY_DROP)
        result = add(registry, letter->rank, message, letter->fds);
    else if (result == ceclSuccess)
        drop(registry, peer, message->number);
    for (int i = 0; i < letter->nfds; i++)
        cecl_fds_close(letter->fds[i]);
    CECL_LOCKED(&registry->lock);
    if (result == ceclSuccess) {
        peer->taken = message->message;
    } else if (peer->failed == ceclSuccess) {
        peer->failed = result;
        cecl_keep_message(peer->words);
    }
    pthread_cond_broadcast(&registry->news);
}

ceclResult_t cecl_registry_take(struct cecl_registry *registry, bool *any)
{
    union {
        struct registry_message message;
        char room[CECL_INBOX_BYTES];
    } u;
    struct cecl_letter letter;
    const ceclResult_t result = cecl_mesh_take(registry->mesh, u.room, sizeof(u.room), &letter);
    *any = result == ceclSuccess;
    if (*any)
        carry_out(registry, &letter, &u.message);
    return result == ceclInProgress ? ceclSuccess : result;
}
