/* The peers' windows: importing what peers tell of, finding it, and closing what they drop. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alloc/registry_internal.h"

/* How long a wait sleeps before it asks go_on again. */
#define ASK_MS 2
#define MAKE_WAY_TRIES 1000 /* of 0.1 ms each */
/* Allocations that are smaller share a block of so many bytes with others. */
#define BLOCK_BYTES UINT64_C(0x200000)

struct imported {
    struct cecl_region_export exported;
    void *addr;
    struct imported *next;
};

struct cecl_import {
    uint64_t number, home, bytes; /* as the peer has them */
    char *mirror;                 /* where `home` lies for this rank */
    bool reserved;                /* the mirror is a reservation of this rank's */
    bool dropped;
    bool used;
    uint32_t last_use; /* the flags' `done` after the last call that used it */
    struct imported *regions;
    struct cecl_import *next;
};

static struct cecl_import *find(const struct cecl_peer_windows *peer, uint64_t number)
{
    struct cecl_import *import = peer->imports;
    while (import && import->number != number)
        import = import->next;
    return import;
}

/* ---- closing */

static void close_import(struct cecl_registry *registry, struct cecl_import *import)
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
    free(import);
}

void registry_close_peers(struct cecl_registry *registry)
{
    for (int r = 0; r < registry->nranks; r++)
        while (registry->peers[r].imports) {
            struct cecl_import *import = registry->peers[r].imports;
            registry->peers[r].imports = import->next;
            close_import(registry, import);
        }
}

/* A stretch of a peer's addresses. */
struct addresses {
    uint64_t low, high;
};
static const struct addresses everywhere = {0, UINT64_MAX};

static bool overlaps(const struct cecl_import *import, struct addresses range)
{
    return import->home < range.high && range.low < import->home + import->bytes;
}

/* Whether a dropped import is out of use. Its owner drops it after the calls that name it, so no call
 * that is being made names it. */
static bool is_unused(const struct cecl_registry *registry, const struct cecl_import *import)
{
    const struct cecl_registry_clock *clock = &registry->clock;
    return !import->used || clock->reached(clock->context, import->last_use);
}

/* Takes a peer's dropped imports out of its list, so that they are closed without the lock. *busy:
 * some are still in use. */
static struct cecl_import *take_dropped(struct cecl_registry *registry, int rank,
                                        struct addresses range, bool *busy)
{
    struct cecl_import *dropped = NULL, **at = &registry->peers[rank].imports;
    pthread_mutex_lock(&registry->lock);
    while (*at) {
        struct cecl_import *import = *at;
        const bool wanted = import->dropped && overlaps(import, range),
                   unused = wanted && is_unused(registry, import);
        *busy = *busy || (wanted && !unused);
        if (!unused) {
            at = &import->next;
            continue;
        }
        *at = import->next;
        import->next = dropped;
        dropped = import;
    }
    pthread_mutex_unlock(&registry->lock);
    return dropped;
}

/* Closes what `rank` dropped in a range of its addresses. Returns false if some is in use. */
static bool close_dropped(struct cecl_registry *registry, int rank, struct addresses range)
{
    bool busy = false;
    struct cecl_import *dropped = take_dropped(registry, rank, range, &busy);
    while (dropped) {
        struct cecl_import *import = dropped;
        dropped = import->next;
        close_import(registry, import);
    }
    return !busy;
}

void cecl_registry_sweep(struct cecl_registry *registry)
{
    for (int r = 0; r < registry->nranks; r++)
        close_dropped(registry, r, everywhere);
}

/* CUDA opens no memory at addresses of the owner's that another import still holds. The calls that
 * used it are over for the owner, and so they end here at once. */
static void make_way(struct cecl_registry *registry, int rank,
                     const struct registry_message *message)
{
    const struct addresses range = {message->home / BLOCK_BYTES * BLOCK_BYTES,
                                    (message->home + message->bytes + BLOCK_BYTES - 1) /
                                        BLOCK_BYTES * BLOCK_BYTES};
    for (int i = 0; i < MAKE_WAY_TRIES && !close_dropped(registry, rank, range); i++) {
        const struct timespec pause = {.tv_nsec = 100000};
        nanosleep(&pause, NULL);
    }
}

/* ---- importing */

/* Makes an import without regions. */
static ceclResult_t begin_import(struct cecl_registry *registry,
                                 const struct registry_message *message, bool by_file,
                                 struct cecl_import **made)
{
    struct cecl_import *import = calloc(1, sizeof(*import));
    void *mirror = NULL;
    if (!import)
        return cecl_fail(ceclOutOfMemory, "no host memory for a window");
    *import = (struct cecl_import){
        .number = message->number, .home = message->home, .bytes = message->bytes};
    if (by_file) {
        const ceclResult_t result =
            registry->dev->ops->reserve(registry->dev, (size_t)message->bytes, &mirror);
        if (result != ceclSuccess) {
            free(import);
            return result;
        }
        import->mirror = mirror;
        import->reserved = true;
    }
    *made = import;
    return ceclSuccess;
}

static ceclResult_t import_region(struct cecl_registry *registry, struct cecl_import *import,
                                  const struct cecl_region_export *exported)
{
    struct cecl_device *dev = registry->dev;
    struct imported *region = calloc(1, sizeof(*region));
    const uint64_t offset = exported->base - import->home;
    void *addr = NULL;
    if (!region)
        return cecl_fail(ceclOutOfMemory, "no host memory for a region");
    const ceclResult_t result = dev->ops->region_import(
        dev, exported, import->reserved ? import->mirror + offset : NULL, &addr);
    if (result != ceclSuccess) {
        free(region);
        return result;
    }
    if (!import->reserved) /* its only region */
        import->mirror = (char *)addr - offset;
    *region = (struct imported){.exported = *exported, .addr = addr, .next = import->regions};
    region->exported.fd = -1;
    import->regions = region;
    return ceclSuccess;
}

/* Checks a message of a peer. Another user's process cannot send one, and a peer's may be broken. */
static ceclResult_t check(const struct registry_message *message, size_t bytes, int nfds)
{
    uint64_t files = 0;
    if (bytes < sizeof(*message) || message->count > REGISTRY_REGIONS ||
        bytes != sizeof(*message) + message->count * sizeof(message->regions[0]) ||
        (message->kind != REGISTRY_ADD && message->kind != REGISTRY_DROP))
        return cecl_fail(ceclInternalError, "a message about memory of %zu bytes is none", bytes);
    for (uint32_t i = 0; i < message->count; i++) {
        const struct cecl_region_export *exported = &message->regions[i];
        files += exported->kind == CECL_REGION_FILE;
        if (exported->kind != message->regions[0].kind || exported->base < message->home ||
            exported->bytes > message->bytes ||
            exported->base - message->home > message->bytes - exported->bytes)
            return cecl_fail(ceclInternalError, "a message about memory outside its window");
    }
    if (files != (uint64_t)nfds)
        return cecl_fail(ceclInternalError, "a message about memory brings %d descriptors, not %d",
                         nfds, (int)files);
    return ceclSuccess;
}

/* Regions that lie side by side, and that are to be made accessible together. */
struct stretch {
    char *begin;
    size_t bytes;
};

static ceclResult_t end_stretch(struct cecl_registry *registry, struct stretch *stretch)
{
    const struct stretch whole = *stretch;
    *stretch = (struct stretch){0};
    return whole.bytes == 0
               ? ceclSuccess
               : registry->dev->ops->region_access(registry->dev, whole.begin, whole.bytes);
}

/* Imports a region of a window that lies in a reservation of this rank's. */
static ceclResult_t import_beside(struct cecl_registry *registry, struct cecl_import *import,
                                  const struct cecl_region_export *exported,
                                  struct stretch *stretch)
{
    char *at = import->mirror + (exported->base - import->home);
    if (stretch->begin + stretch->bytes != at)
        CECL_TRY(end_stretch(registry, stretch));
    CECL_TRY(import_region(registry, import, exported));
    stretch->begin = stretch->bytes > 0 ? stretch->begin : at;
    stretch->bytes += exported->bytes;
    return ceclSuccess;
}

static ceclResult_t import_all(struct cecl_registry *registry, struct cecl_import *import,
                               struct registry_message *message, const int *fds)
{
    struct stretch stretch = {0};
    for (uint32_t i = 0, f = 0; i < message->count; i++) {
        struct cecl_region_export *exported = &message->regions[i];
        exported->fd = exported->kind == CECL_REGION_FILE ? fds[f++] : -1;
        CECL_TRY(import->reserved ? import_beside(registry, import, exported, &stretch)
                                  : import_region(registry, import, exported));
    }
    return end_stretch(registry, &stretch);
}

static ceclResult_t add(struct cecl_registry *registry, int rank, struct registry_message *message,
                        const int *fds)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    const bool by_file = message->count > 0 && message->regions[0].kind == CECL_REGION_FILE;
    struct cecl_import *import;
    pthread_mutex_lock(&registry->lock);
    import = find(peer, message->number);
    pthread_mutex_unlock(&registry->lock);
    const bool is_new = !import;
    if (is_new) {
        make_way(registry, rank, message);
        CECL_TRY(begin_import(registry, message, by_file, &import));
    }
    if (import->reserved != by_file || message->home != import->home ||
        message->bytes != import->bytes)
        return cecl_fail(ceclInternalError, "a message about another window of this number");
    const ceclResult_t result = import_all(registry, import, message, fds);
    if (is_new) { /* also after a failure: it is closed with the registry */
        pthread_mutex_lock(&registry->lock);
        import->next = peer->imports;
        peer->imports = import;
        pthread_mutex_unlock(&registry->lock);
    }
    return result;
}

static void drop(struct cecl_registry *registry, struct cecl_peer_windows *peer, uint64_t number)
{
    pthread_mutex_lock(&registry->lock);
    struct cecl_import *import = find(peer, number);
    if (import)
        import->dropped = true;
    pthread_mutex_unlock(&registry->lock);
}

static void carry_out(struct cecl_registry *registry, int rank, struct registry_message *message,
                      size_t bytes, const int *fds, int nfds)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    /* after a failure, no later message counts: windows would be there in part */
    ceclResult_t result = peer->failed != ceclSuccess ? peer->failed : check(message, bytes, nfds);
    if (result == ceclSuccess && message->kind == REGISTRY_ADD)
        result = add(registry, rank, message, fds);
    else if (result == ceclSuccess)
        drop(registry, peer, message->number);
    for (int i = 0; i < nfds; i++)
        close(fds[i]);
    pthread_mutex_lock(&registry->lock);
    if (result == ceclSuccess) {
        atomic_store(&peer->taken, message->message);
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
    *any = false;
    for (;;) {
        const ceclResult_t result =
            cecl_mesh_take(registry->mesh, &rank, u.room, sizeof(u.room), &bytes, fds, &nfds);
        if (result != ceclSuccess)
            return result == ceclInProgress ? ceclSuccess : result;
        *any = true;
        carry_out(registry, rank, &u.message, bytes, fds, nfds);
    }
}

/* ---- using */

void *cecl_registry_at(struct cecl_registry *registry, int peer, uint64_t number, uint64_t offset)
{
    pthread_mutex_lock(&registry->lock);
    const struct cecl_import *import = find(&registry->peers[peer], number);
    void *at = import && offset < import->bytes && import->mirror ? import->mirror + offset : NULL;
    pthread_mutex_unlock(&registry->lock);
    return at;
}

void cecl_registry_used(struct cecl_registry *registry, int peer, uint64_t number, uint32_t target)
{
    pthread_mutex_lock(&registry->lock);
    struct cecl_import *import = find(&registry->peers[peer], number);
    if (import) {
        import->used = true;
        import->last_use = target;
    }
    pthread_mutex_unlock(&registry->lock);
}

static void sleep_for_news(struct cecl_registry *registry)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ASK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&registry->news, &registry->lock, &until);
}

ceclResult_t cecl_registry_await(struct cecl_registry *registry, int rank, uint64_t messages,
                                 bool (*go_on)(void *), void *context)
{
    struct cecl_peer_windows *peer = &registry->peers[rank];
    ceclResult_t result = ceclSuccess;
    if (atomic_load(&peer->taken) >= messages)
        return ceclSuccess;
    pthread_mutex_lock(&registry->lock);
    while (atomic_load(&peer->taken) < messages && peer->failed == ceclSuccess &&
           result == ceclSuccess) {
        sleep_for_news(registry);
        if (!go_on(context))
            result = cecl_fail(ceclTimeout,
                               "memory that rank %d told of was not opened here in time", rank);
    }
    if (atomic_load(&peer->taken) < messages && peer->failed != ceclSuccess)
        result = cecl_fail(peer->failed, "memory of rank %d: %s", rank, peer->words);
    pthread_mutex_unlock(&registry->lock);
    return result;
}
