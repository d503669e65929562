/* This rank's own windows: making them, telling peers of them, noticing that their memory is
 * gone. */
#include "alloc/registry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/registry_internal.h"
#include "util/clock.h"
#include "util/thread.h"

#define POST_MS 10000 /* limit of a message to a peer where the communicator has none */

ceclResult_t cecl_registry_open(struct cecl_registry *registry, struct cecl_device *dev,
                                struct cecl_mesh *mesh, int rank, int nranks, int64_t timeout_ms,
                                const struct cecl_registry_asks *asks)
{
    *registry = (struct cecl_registry){.dev = dev,
                                       .mesh = mesh,
                                       .rank = rank,
                                       .nranks = nranks,
                                       .asks = *asks,
                                       .next_number = CECL_WINDOW_FIRST,
                                       .call = 1,
                                       .timeout_ms = timeout_ms};
    registry->peers = calloc((size_t)nranks, sizeof(*registry->peers));
    if (!registry->peers) {
        *registry = (struct cecl_registry){0};
        return cecl_fail(ceclOutOfMemory, "no host memory for the windows of %d ranks", nranks);
    }
    pthread_mutex_init(&registry->lock, NULL);
    cecl_cond_init(&registry->news);
    registry_enlist(registry);
    return ceclSuccess;
}

/* Takes a window out of the registry. It lives on while others have references to it. */
static void take_out(struct cecl_registry *registry, size_t at)
{
    struct cecl_window *window = registry->own[at];
    registry->nown--;
    memmove(&registry->own[at], &registry->own[at + 1],
            (registry->nown - at) * sizeof(registry->own[0]));
    registry->changes++;
    window->gone = true;
    cecl_window_drop_reference(window);
}

void cecl_registry_close(struct cecl_registry *registry)
{
    if (!registry->peers)
        return;
    registry_delist(registry);
    registry_close_peers(registry);
    while (registry->nown > 0)
        take_out(registry, registry->nown - 1);
    free(registry->own);
    free(registry->leaving);
    free(registry->peers);
    pthread_mutex_destroy(&registry->lock);
    pthread_cond_destroy(&registry->news);
    *registry = (struct cecl_registry){0};
}

void cecl_registry_lose(struct cecl_registry *registry)
{
    if (registry->peers && registry->dev->kind == CECL_KIND_HOST)
        registry_delist(registry);
}

/* ---- finding */

/* How many elements of the list begin at or before `address`. The list is in the order of
 * addresses. */
static size_t begin_up_to(const void *list, size_t count, uint64_t address,
                          uint64_t (*begin_of)(const void *list, size_t index))
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (begin_of(list, middle) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t begin_of_window(const void *list, size_t index)
{
    return ((struct cecl_window *const *)list)[index]->home;
}

static size_t windows_up_to(const struct cecl_registry *registry, uint64_t address)
{
    return begin_up_to(registry->own, registry->nown, address, begin_of_window);
}

/* Homes of windows do not overlap: see make_room_for. */
static struct cecl_window *window_of(const struct cecl_registry *registry, uint64_t address)
{
    const size_t count = windows_up_to(registry, address);
    struct cecl_window *window = count > 0 ? registry->own[count - 1] : NULL;
    return window && address - window->home < window->bytes ? window : NULL;
}

struct cecl_window *cecl_registry_find(struct cecl_registry *registry, const void *ptr)
{
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct cecl_found *found =
        &registry->found[(address * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (CECL_FOUND - 1)];
    if (found->ptr != ptr || found->changes != registry->changes)
        *found = (struct cecl_found){ptr, window_of(registry, address), registry->changes};
    return found->window;
}

static uint64_t begin_of_region(const void *list, size_t index)
{
    return ((const struct cecl_registered *)list)[index].base;
}

static size_t regions_up_to(const struct cecl_window *window, uint64_t address)
{
    return begin_up_to(window->regions, window->nregions, address, begin_of_region);
}

static bool has_region_at(const struct cecl_window *window, size_t index, uint64_t address)
{
    return index < window->nregions && window->regions[index].base <= address &&
           address - window->regions[index].base < window->regions[index].bytes;
}

/* The region that holds `address`, or NULL. Most often it is the region of the last look-up, or the
 * next one. */
static const struct cecl_registered *region_of(struct cecl_window *window, uint64_t address)
{
    if (!has_region_at(window, window->near, address))
        window->near++;
    if (!has_region_at(window, window->near, address)) {
        const size_t count = regions_up_to(window, address);
        window->near = count > 0 ? count - 1 : 0;
    }
    return has_region_at(window, window->near, address) ? &window->regions[window->near] : NULL;
}

/* ---- telling peers */

/* A peer that has left makes no further call, so it need not be told. */
static ceclResult_t post_to(struct cecl_registry *registry, int peer,
                            const struct registry_message *message, const int *fds, int nfds,
                            int64_t deadline)
{
    const size_t bytes = sizeof(*message) + message->count * sizeof(message->regions[0]);
    const ceclResult_t result =
        cecl_mesh_post(registry->mesh, peer, message, bytes, fds, nfds, deadline);
    return result == ceclRemoteError && cecl_mesh_left(registry->mesh, peer) ? ceclSuccess : result;
}

/* Tells all peers, even if one of them cannot be told. Returns the first error. */
static ceclResult_t post(struct cecl_registry *registry, const struct registry_message *message,
                         const int *fds, int nfds)
{
    const int64_t bound = registry->timeout_ms > 0 ? registry->timeout_ms : POST_MS,
                  deadline = cecl_deadline(bound);
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t first = ceclSuccess;
    registry->posted = message->message; /* also after a failure: some peers may have the message */
    for (int i = 1; i < registry->nranks; i++) {
        const ceclResult_t result = post_to(registry, (registry->rank + i) % registry->nranks,
                                            message, fds, nfds, deadline);
        if (result == ceclSuccess || first != ceclSuccess)
            continue;
        first = result;
        cecl_keep_message(words);
    }
    return first == ceclSuccess ? ceclSuccess : cecl_fail_with(first, words);
}

static ceclResult_t tell_drop(struct cecl_registry *registry, uint64_t number)
{
    const struct registry_message message = {
        .kind = REGISTRY_DROP, .number = number, .message = registry->posted + 1};
    return post(registry, &message, NULL, 0);
}

/* Whether a call that is not done yet uses a window. */
static bool is_pending(const struct cecl_registry *registry, uint32_t last_use)
{
    return !registry->asks.reached(registry->asks.context, last_use);
}

/* Keeps a window's number until its drop can be told. If there is no host memory to keep it, peers
 * keep the window until the communicator ends, which is safe. */
static void tell_later(struct cecl_registry *registry, uint64_t number, uint32_t last_use)
{
    if (registry->nleaving == registry->leaving_room) {
        const size_t room = registry->leaving_room ? 2 * registry->leaving_room : 8;
        struct cecl_leaving_window *leaving = realloc(registry->leaving, room * sizeof(*leaving));
        if (!leaving)
            return;
        registry->leaving = leaving;
        registry->leaving_room = room;
    }
    registry->leaving[registry->nleaving++] = (struct cecl_leaving_window){number, last_use};
}

/* Tells peers to drop the forgotten windows that no pending call uses any more. */
static ceclResult_t tell_left(struct cecl_registry *registry)
{
    for (size_t i = 0; i < registry->nleaving;) {
        const struct cecl_leaving_window left = registry->leaving[i];
        if (is_pending(registry, left.last_use)) {
            i++;
            continue;
        }
        registry->leaving[i] = registry->leaving[--registry->nleaving];
        CECL_TRY(tell_drop(registry, left.number));
    }
    return ceclSuccess;
}

/* Forgets a window, here and, if peers know of it, there. */
static ceclResult_t forget(struct cecl_registry *registry, struct cecl_window *window)
{
    const uint64_t number = window->number;
    const uint32_t last_use = window->last_use;
    const bool pending = window->used && is_pending(registry, last_use);
    take_out(registry, windows_up_to(registry, window->home) - 1);
    if (number == 0)
        return ceclSuccess;
    if (!pending)
        return tell_drop(registry, number);
    tell_later(registry, number, last_use);
    return ceclSuccess;
}

ceclResult_t cecl_registry_drop(struct cecl_registry *registry, struct cecl_window *window)
{
    return window->gone ? ceclSuccess : forget(registry, window);
}

ceclResult_t cecl_registry_forget(struct cecl_registry *registry, const void *ptr)
{
    struct cecl_window *window = window_of(registry, (uint64_t)(uintptr_t)ptr);
    return window ? forget(registry, window) : ceclSuccess;
}

static void close_all(const struct cecl_region_export *exports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (exports[i].fd >= 0)
            close(exports[i].fd);
}

/* Tells peers of some regions of a window, in one message. */
static ceclResult_t tell_some(struct cecl_registry *registry, const struct cecl_window *window,
                              const struct cecl_region *regions, size_t count)
{
    union {
        struct registry_message message;
        char room[CECL_MESH_POST_BYTES];
    } u = {.message = {.kind = REGISTRY_ADD,
                       .number = window->number,
                       .home = window->home,
                       .bytes = window->bytes,
                       .message = registry->posted + 1}};
    struct registry_message *message = &u.message;
    const int64_t begin = cecl_now_ns();
    int fds[CECL_MESH_POST_FDS], nfds = 0;
    ceclResult_t result = ceclSuccess;
    for (size_t i = 0; i < count && result == ceclSuccess; i++) {
        result = registry->dev->ops->region_export(registry->dev, &regions[i],
                                                   &message->regions[message->count]);
        if (result != ceclSuccess)
            break;
        message->regions[message->count].stamp = registry_stamp();
        if (message->regions[message->count].fd >= 0)
            fds[nfds++] = message->regions[message->count].fd;
        message->count++;
    }
    if (result == ceclSuccess)
        result = post(registry, message, fds, nfds);
    close_all(message->regions, message->count);
    registry->telling_ns += (uint64_t)(cecl_now_ns() - begin);
    return result;
}

/* ---- making windows */

static bool room_for_region(struct cecl_window *window)
{
    if (window->nregions < window->room)
        return true;
    const size_t room = window->room ? 2 * window->room : 1;
    struct cecl_registered *regions = realloc(window->regions, room * sizeof(*regions));
    if (!regions)
        return false;
    window->regions = regions;
    window->room = room;
    return true;
}

static void insert_region(struct cecl_window *window, const struct cecl_region *region)
{
    const size_t at = regions_up_to(window, region->base);
    memmove(&window->regions[at + 1], &window->regions[at],
            (window->nregions - at) * sizeof(window->regions[0]));
    window->regions[at] = (struct cecl_registered){region->base, region->bytes, region->id};
    window->nregions++;
}

/* Whether some memory of a window may still be the same. Then calls that are being made may use it,
 * and the window stays. */
static bool is_alive(const struct cecl_registry *registry, const struct cecl_window *window)
{
    for (size_t i = 0; i < window->nregions; i++) {
        const struct cecl_registered *region = &window->regions[i];
        uint64_t id = 0;
        if (registry->dev->ops->region_id(registry->dev, (void *)(uintptr_t)region->base, NULL,
                                          &id) != ceclSuccess ||
            id == region->id)
            return true;
    }
    return false;
}

/* Forgets windows in the way of a new one. The memory of windows that it overlaps is gone. In
 * blocks that a gone window shares with the new one, peers must close the old memory before they
 * open the new (see REGISTRY_BLOCK_BYTES). */
static ceclResult_t forget_overlapped(struct cecl_registry *registry,
                                      const struct cecl_region *region)
{
    const struct addresses taken = addresses_of(region->home, region->home_bytes),
                           blocks = addresses_of_blocks(taken);
    for (size_t i = 0; i < registry->nown;) {
        struct cecl_window *window = registry->own[i];
        const struct addresses home = addresses_of(window->home, window->bytes);
        if (addresses_overlap(home, taken) ||
            (addresses_overlap(home, blocks) && !is_alive(registry, window)))
            CECL_TRY(forget(registry, window));
        else
            i++;
    }
    return ceclSuccess;
}

/* How many other windows are looked at when a window is made. */
#define LOOKS 8

/* Forgets windows whose memory is gone, among the next few. If each new window takes the place of
 * one that has gone, at most one window in LOOKS is of memory that is gone. A look at all of them
 * would make the first use of memory slower with each window. */
static ceclResult_t forget_gone(struct cecl_registry *registry)
{
    for (int i = 0; i < LOOKS && registry->nown > 0; i++) {
        if (registry->looked >= registry->nown)
            registry->looked = 0;
        struct cecl_window *window = registry->own[registry->looked];
        if (is_alive(registry, window))
            registry->looked++;
        else
            CECL_TRY(forget(registry, window));
    }
    return ceclSuccess;
}

static ceclResult_t make_room_for(struct cecl_registry *registry, const struct cecl_region *region)
{
    CECL_TRY(forget_overlapped(registry, region));
    CECL_TRY(forget_gone(registry));
    if (registry->nown < registry->room)
        return ceclSuccess;
    const size_t room = registry->room ? 2 * registry->room : 16;
    struct cecl_window **own = realloc(registry->own, room * sizeof(*own));
    if (!own)
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu windows", room);
    registry->own = own;
    registry->room = room;
    return ceclSuccess;
}

/* Makes a window without regions. */
static ceclResult_t make_window(struct cecl_registry *registry, const struct cecl_region *region,
                                struct cecl_window **made)
{
    CECL_TRY(make_room_for(registry, region));
    const size_t at = windows_up_to(registry, region->home);
    struct cecl_window *window = calloc(1, sizeof(*window));
    if (!window)
        return cecl_fail(ceclOutOfMemory, "no host memory for a window");
    *window = (struct cecl_window){
        .number = region->kind == CECL_REGION_NONE ? 0 : registry->next_number++,
        .home = region->home,
        .bytes = region->home_bytes,
        .references = 1};
    memmove(&registry->own[at + 1], &registry->own[at],
            (registry->nown - at) * sizeof(registry->own[0]));
    registry->own[at] = *made = window;
    registry->nown++;
    registry->changes++;
    return ceclSuccess;
}

/* ---- settling */

/* Regions that are added to a window. */
struct added {
    struct cecl_region regions[REGISTRY_REGIONS];
    size_t count;
    bool lost; /* peers could not be told of some of them */
};

static ceclResult_t flush(struct cecl_registry *registry, struct cecl_window *window,
                          struct added *added)
{
    if (added->count == 0 || window->number == 0)
        return ceclSuccess;
    const ceclResult_t result = tell_some(registry, window, added->regions, added->count);
    added->count = 0;
    added->lost = added->lost || result != ceclSuccess;
    return result;
}

static ceclResult_t add_region(struct cecl_registry *registry, struct cecl_window *window,
                               const struct cecl_region *region, struct added *added)
{
    if (!room_for_region(window))
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu regions", window->nregions + 1);
    insert_region(window, region);
    added->regions[added->count++] = *region;
    return added->count == REGISTRY_REGIONS ? flush(registry, window, added) : ceclSuccess;
}

/* Whether a region overlaps one that the window has. Then the older region's memory is gone. */
static bool covers_another(const struct cecl_window *window, const struct cecl_region *region)
{
    const size_t count = regions_up_to(window, region->base + region->bytes - 1);
    const struct cecl_registered *last = count > 0 ? &window->regions[count - 1] : NULL;
    return last && last->base + last->bytes > region->base;
}

/* What a look at a window's memory finds. */
enum verdict { SETTLED, GONE };

/* Looks at the bytes of a region that a call uses. */
static ceclResult_t look_at(struct cecl_registry *registry, const struct cecl_registered *region,
                            uint64_t at, const struct cecl_use *use, enum verdict *verdict)
{
    const uint64_t end = region->base + region->bytes;
    struct cecl_use part = *use;
    uint64_t id = 0;
    part.low = use->low > at ? use->low : at;
    part.high = use->high < end ? use->high : end;
    CECL_TRY(registry->dev->ops->region_id(registry->dev, (void *)(uintptr_t)at,
                                           part.low < part.high ? &part : NULL, &id));
    *verdict = id == region->id ? SETTLED : GONE;
    return ceclSuccess;
}

/* Whether a window's mapping has become larger: memory goes on where the window ends. */
static bool has_grown(const struct cecl_registry *registry, const struct cecl_window *window)
{
    struct cecl_device *dev = registry->dev;
    const uint64_t end = window->home + window->bytes;
    struct cecl_region region;
    return dev->ops->region_find(dev, (void *)(uintptr_t)end, &region) == ceclSuccess &&
           region.home < end;
}

/* Looks at all memory up to `end`. Finds regions that the window does not have yet. */
static ceclResult_t look(struct cecl_registry *registry, struct cecl_window *window,
                         const struct cecl_use *use, uint64_t end, struct added *added,
                         enum verdict *verdict)
{
    struct cecl_device *dev = registry->dev;
    uint64_t at = (uint64_t)(uintptr_t)use->buffer;
    *verdict = SETTLED;
    while (at < end) {
        const struct cecl_registered *known = region_of(window, at);
        struct cecl_region region;
        if (known) {
            CECL_TRY(look_at(registry, known, at, use, verdict));
            if (*verdict == GONE)
                return ceclSuccess;
            at = known->base + known->bytes;
            continue;
        }
        if (at - window->home >= window->bytes) {
            *verdict = has_grown(registry, window) ? GONE : SETTLED;
            return *verdict == GONE ? ceclSuccess
                                    : cecl_fail(ceclInvalidArgument,
                                                "%s %p: its memory ends at %#" PRIx64 ", %" PRIu64
                                                " bytes before its range does",
                                                use->name, use->buffer, at, end - at);
        }
        CECL_TRY(dev->ops->region_find(dev, (void *)(uintptr_t)at, &region));
        if (region.home != window->home || region.home_bytes != window->bytes ||
            (region.kind == CECL_REGION_NONE) != (window->number == 0) ||
            covers_another(window, &region)) {
            *verdict = GONE;
            return ceclSuccess;
        }
        CECL_TRY(add_region(registry, window, &region, added));
        at = region.base + region.bytes;
    }
    return ceclSuccess;
}

/* Memory that cannot be shared is not looked at, because no peer relies on it. */
static uint64_t end_of(const struct cecl_window *window, const struct cecl_use *use)
{
    return window->number == 0 ? (uint64_t)(uintptr_t)use->buffer : use->high;
}

/* After an error a new window is dropped. A window that peers know stays as it is, because pending
 * calls and registrations may rely on it, and peers are told of the regions found so far. */
static ceclResult_t settle_window(struct cecl_registry *registry, struct cecl_window *window,
                                  const struct cecl_use *use, enum verdict *verdict)
{
    struct added added;
    const bool is_new = window->nregions == 0;
    char words[CECL_MESSAGE_BYTES];
    added.count = 0;
    added.lost = false;
    const ceclResult_t result = look(registry, window, use, end_of(window, use), &added, verdict);
    cecl_keep_message(words);
    const bool gone = *verdict == GONE || added.lost || (result != ceclSuccess && is_new);
    ceclResult_t told = gone ? ceclSuccess : flush(registry, window, &added);
    if (told != ceclSuccess) { /* this rank has regions of which peers do not know */
        cecl_keep_message(words);
        (void)!forget(registry, window);
        return cecl_fail_with(told, words);
    }
    if (gone)
        CECL_TRY(forget(registry, window));
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

/* A private window has its one region from the start. That memory is not looked at again: on the
 * host device it is a part of the heap, which other threads may make grow at any time. */
static ceclResult_t make_private(struct cecl_registry *registry, const struct cecl_region *region)
{
    struct cecl_window *window;
    CECL_TRY(make_window(registry, region, &window));
    if (!room_for_region(window)) {
        (void)!forget(registry, window); /* peers do not know it */
        return cecl_fail(ceclOutOfMemory, "no host memory for a region");
    }
    insert_region(window, region);
    return ceclSuccess;
}

/* If memory changes while it is looked at, another thread of the program frees it. */
#define TRIES 4

ceclResult_t cecl_registry_settle(struct cecl_registry *registry, const struct cecl_use *use,
                                  bool make)
{
    struct cecl_device *dev = registry->dev;
    const uint64_t at = (uint64_t)(uintptr_t)use->buffer;
    CECL_TRY(tell_left(registry));
    for (int i = 0; i < TRIES; i++) {
        struct cecl_window *window = cecl_registry_find(registry, use->buffer);
        enum verdict verdict;
        if (!window) {
            struct cecl_region region;
            if (!make)
                return ceclSuccess;
            CECL_TRY(
                dev->ops->check_pointer(dev, use->buffer, (size_t)(use->high - at), use->name));
            CECL_TRY(dev->ops->region_find(dev, use->buffer, &region));
            if (region.kind == CECL_REGION_NONE)
                return make_private(registry, &region);
            CECL_TRY(make_window(registry, &region, &window));
        }
        CECL_TRY(settle_window(registry, window, use, &verdict));
        if (verdict == SETTLED)
            return ceclSuccess;
    }
    return cecl_fail(ceclInvalidArgument,
                     "%s %p: %" PRIu64
                     " bytes that lie over memory of several ranges of addresses, "
                     "or that another thread frees meanwhile",
                     use->name, use->buffer, use->high - at);
}
