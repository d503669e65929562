/* Makes windows of this rank's memory, and settles them. To settle a window is to make sure that it describes the
 * memory that is there now, and that peers know this memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/registry_internal.h"
#include "util/grow.h"

/* ---- regions */

static uint64_t begin_of_region(const void *list, size_t index)
{
    return ((const struct cecl_registered *)list)[index].base;
}

static size_t regions_up_to(const struct cecl_window *window, uint64_t address)
{
    return registry_begin_up_to(window->regions, window->nregions, address, begin_of_region);
}

/* The region that holds `address`, or NULL. */
static const struct cecl_registered *region_of(const struct cecl_window *window, uint64_t address)
{
    const size_t count = regions_up_to(window, address);
    const struct cecl_registered *region = count > 0 ? &window->regions[count - 1] : NULL;
    return region && address - region->base < region->bytes ? region : NULL;
}

/* ---- making windows */

static ceclResult_t insert_region(struct cecl_window *window, const struct cecl_region *region)
{
    if (!CECL_HAS_ROOM(window->regions, window->nregions, window->room))
        return cecl_fail(ceclOutOfMemory, "no host memory for %zu regions", window->nregions + 1);
    const size_t at = regions_up_to(window, region->base);
    memmove(&window->regions[at + 1], &window->regions[at],
            (window->nregions - at) * sizeof(window->regions[0]));
    window->regions[at] = (struct cecl_registered){region->base, region->bytes, region->id};
    window->nregions++;
    return ceclSuccess;
}

/* Whether some memory of a window is, or may be, the memory for which the window was made. Such a window is kept,
 * because calls that are being made may use it. */
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

/* Forgets windows that the new region makes obsolete. If the new region overlaps a window, the window's memory is gone.
 * The memory of a window in the same driver block may be gone as well; if it is, peers must close it before they can
 * open the new memory. */
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
            CECL_TRY(registry_forget(registry, window));
        else
            i++;
    }
    return ceclSuccess;
}

/* When a window is made, this many of the other windows are checked, in turn. */
#define LOOKS 8

/* Checks the next LOOKS windows, and forgets those whose memory is gone. So if a program keeps freeing and allocating,
 * only about one window in LOOKS is for memory that is gone. Checking all windows each time would make the first use of
 * memory slow if there are many windows. */
static ceclResult_t forget_gone(struct cecl_registry *registry)
{
    for (int i = 0; i < LOOKS && registry->nown > 0; i++) {
        if (registry->looked >= registry->nown)
            registry->looked = 0;
        struct cecl_window *window = registry->own[registry->looked];
        if (is_alive(registry, window))
            registry->looked++;
        else
            CECL_TRY(registry_forget(registry, window));
    }
    return ceclSuccess;
}

static ceclResult_t make_room_for(struct cecl_registry *registry, const struct cecl_region *region)
{
    CECL_TRY(forget_overlapped(registry, region));
    CECL_TRY(forget_gone(registry));
    return CECL_HAS_ROOM(registry->own, registry->nown, registry->room)
               ? ceclSuccess
               : cecl_fail(ceclOutOfMemory, "no host memory for %zu windows", registry->nown + 1);
}

static ceclResult_t make_window(struct cecl_registry *registry, const struct cecl_region *region,
                                struct cecl_window **made)
{
    CECL_TRY(make_room_for(registry, region));
    const size_t at = registry_windows_up_to(registry, region->home);
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
    bool lost; /* some of them could not be announced to peers */
    enum registry_message_kind kind;
};

static ceclResult_t flush(struct cecl_registry *registry, struct cecl_window *window,
                          struct added *added)
{
    if (added->count == 0 || window->number == 0)
        return ceclSuccess;
    const ceclResult_t result =
        registry_tell(registry, added->kind, window, added->regions, added->count);
    added->count = 0;
    added->lost = added->lost || result != ceclSuccess;
    return result;
}

static ceclResult_t add_region(struct cecl_registry *registry, struct cecl_window *window,
                               const struct cecl_region *region, struct added *added)
{
    CECL_TRY(insert_region(window, region));
    added->regions[added->count++] = *region;
    return added->count == REGISTRY_REGIONS ? flush(registry, window, added) : ceclSuccess;
}

/* Whether a new region overlaps a region of the window. Then the memory of the window's region is gone. */
static bool covers_another(const struct cecl_window *window, const struct cecl_region *region)
{
    const size_t count = regions_up_to(window, region->base + region->bytes - 1);
    const struct cecl_registered *last = count > 0 ? &window->regions[count - 1] : NULL;
    return last && last->base + last->bytes > region->base;
}

/* What a look at a window's memory finds. SETTLED: the window describes the memory. GONE: the window must be made anew.
 * MIXED: some memory is still the same, but other memory in the window's range of addresses cannot be shared. */
enum verdict { SETTLED, GONE, MIXED };

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

/* Whether the program's mapping has become larger than the window, so that it now includes address `last`. */
static bool has_grown(const struct cecl_registry *registry, const struct cecl_window *window,
                      uint64_t last)
{
    struct cecl_device *dev = registry->dev;
    struct cecl_region region;
    return dev->ops->region_find(dev, (void *)(uintptr_t)last, &region) == ceclSuccess &&
           region.home < window->home + window->bytes;
}

/* Compares all memory from the buffer up to `end` with the window, and adds regions that the window does not have
 * yet. */
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
            *verdict = has_grown(registry, window, end - 1) ? GONE : SETTLED;
            return *verdict == GONE ? ceclSuccess
                                    : cecl_fail(ceclInvalidArgument,
                                                "%s %p: its memory ends at %#" PRIx64 ", %" PRIu64
                                                " bytes before its range does",
                                                use->name, use->buffer, at, end - at);
        }
        CECL_TRY(dev->ops->region_find(dev, (void *)(uintptr_t)at, &region));
        if (region.kind == CECL_REGION_NONE && is_alive(registry, window)) {
            *verdict = MIXED;
            return ceclSuccess;
        }
        if (region.home != window->home || region.home_bytes != window->bytes ||
            region.kind == CECL_REGION_NONE || covers_another(window, &region)) {
            *verdict = GONE;
            return ceclSuccess;
        }
        CECL_TRY(add_region(registry, window, &region, added));
        at = region.base + region.bytes;
    }
    return ceclSuccess;
}

/* Where `look` ends. It looks at no memory of a private window, because no peer relies on that memory. */
static uint64_t end_of(const struct cecl_window *window, const struct cecl_use *use)
{
    return window->number == 0 ? (uint64_t)(uintptr_t)use->buffer : use->high;
}

/* Checks a window, and tells peers about new regions, even about those that it found before an error. After an error,
 * forgets a new window, but keeps a window that peers know, because pending calls and registrations may rely on it. */
static ceclResult_t settle_window(struct cecl_registry *registry, struct cecl_window *window,
                                  const struct cecl_use *use, enum verdict *verdict)
{
    struct added added;
    const bool is_new = window->nregions == 0;
    char words[CECL_MESSAGE_BYTES];
    added.count = 0;
    added.lost = false;
    added.kind = use->ahead ? REGISTRY_OPEN : REGISTRY_ADD;
    const ceclResult_t result = look(registry, window, use, end_of(window, use), &added, verdict);
    cecl_keep_message(words);
    const bool gone = *verdict != SETTLED || added.lost || (result != ceclSuccess && is_new);
    ceclResult_t told = gone ? ceclSuccess : flush(registry, window, &added);
    if (told != ceclSuccess) { /* peers lack some regions of the window */
        cecl_keep_message(words);
        (void)!registry_forget(registry, window);
        return cecl_fail_with(told, words);
    }
    if (gone)
        CECL_TRY(registry_forget(registry, window));
    return result == ceclSuccess ? ceclSuccess : cecl_fail_with(result, words);
}

/* Makes a private window together with its region, by a single look at the memory. A second look could find other
 * bounds: on the host device the region is a part of the heap, which other threads may extend at any time. */
static ceclResult_t make_private(struct cecl_registry *registry, const struct cecl_region *region)
{
    struct cecl_window *window;
    CECL_TRY(make_window(registry, region, &window));
    const ceclResult_t result = insert_region(window, region);
    if (result != ceclSuccess)
        (void)!registry_forget(registry, window); /* peers do not know this window */
    return result;
}

/* Makes a private window of a range in which only some memory can be shared. Separate windows for the shared and the
 * private memory would overlap, and calls that use both kinds of memory would replace the windows by each other again
 * and again. */
static ceclResult_t make_mixed(struct cecl_registry *registry, const void *ptr, uint64_t home,
                               uint64_t bytes)
{
    struct cecl_region region;
    CECL_TRY(registry->dev->ops->region_find(registry->dev, ptr, &region));
    region.kind = CECL_REGION_NONE;
    region.home = home;
    region.home_bytes = bytes;
    return make_private(registry, &region);
}

/* At most this many looks at the memory. A second look at a new window differs from the first only if another thread of
 * the program frees memory meanwhile. */
#define TRIES 4

ceclResult_t cecl_registry_settle(struct cecl_registry *registry, const struct cecl_use *use,
                                  bool make)
{
    struct cecl_device *dev = registry->dev;
    const uint64_t at = (uint64_t)(uintptr_t)use->buffer;
    CECL_TRY(registry_tell_left(registry));
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
        const uint64_t home = window->home,
                       bytes = window->bytes; /* settling may free the window */
        CECL_TRY(settle_window(registry, window, use, &verdict));
        if (verdict == SETTLED)
            return ceclSuccess;
        if (verdict == MIXED)
            return make_mixed(registry, use->buffer, home, bytes);
    }
    return cecl_fail(ceclInvalidArgument,
                     "%s %p: %" PRIu64 " bytes lie in several ranges of addresses, "
                     "or another thread frees them meanwhile",
                     use->name, use->buffer, use->high - at);
}
