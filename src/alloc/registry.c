/* This rank's own windows: finding them, announcing them to peers, and forgetting them. */
#include "alloc/registry.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/registry_internal.h"
#include "util/clock.h"
#include "util/fds.h"
#include "util/grow.h"
#include "util/thread.h"

/* how long sending a message to peers may take if the communicator has no time limit, in ms */
#define POST_MS 10000

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

/* Takes a window out of the registry, which gives back its reference. The window is freed with its last reference. */
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

/* ---- finding */

static uint64_t begin_of_window(const void *list, size_t index)
{
    return ((struct cecl_window *const *)list)[index]->home;
}

size_t registry_windows_up_to(const struct cecl_registry *registry, uint64_t address)
{
    return registry_begin_up_to(registry->own, registry->nown, address, begin_of_window);
}

/* Windows do not overlap: make_room_for forgets old windows that a new window would overlap. */
struct cecl_window *cecl_registry_find(const struct cecl_registry *registry, const void *ptr)
{
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    const size_t count = registry_windows_up_to(registry, address);
    struct cecl_window *window = count > 0 ? registry->own[count - 1] : NULL;
    return window && address - window->home < window->bytes ? window : NULL;
}

/* ---- telling peers */

/* A peer that has left makes no further call, so it needs no message. */
static ceclResult_t post_to(struct cecl_registry *registry, int peer,
                            const struct registry_message *message, const int *fds, int nfds,
                            int64_t deadline)
{
    const size_t bytes = sizeof(*message) + message->count * sizeof(message->regions[0]);
    const ceclResult_t result =
        cecl_mesh_post(registry->mesh, peer, message, bytes, fds, nfds, deadline);
    return result == ceclRemoteError && cecl_mesh_left(registry->mesh, peer) ? ceclSuccess : result;
}

/* Sends the message to all peers, even if one of them cannot be reached. Returns the first error. */
static ceclResult_t post(struct cecl_registry *registry, const struct registry_message *message,
                         const int *fds, int nfds)
{
    const int64_t bound = registry->timeout_ms > 0 ? registry->timeout_ms : POST_MS,
                  deadline = cecl_deadline(bound);
    char words[CECL_MESSAGE_BYTES];
    ceclResult_t first = ceclSuccess;
    /* counted even after a failure, because some peers may have the message */
    registry->posted = message->message;
    for (int i = 1; i < registry->nranks; i++) {
        const int peer = (registry->rank + i) % registry->nranks;
        const ceclResult_t result = post_to(registry, peer, message, fds, nfds, deadline);
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

/* Whether the call that last used a window is not done yet. */
static bool is_pending(const struct cecl_registry *registry, uint32_t last_use)
{
    return !registry->asks.reached(registry->asks.context, last_use);
}

/* Keeps a window's number until peers can be told to drop the window. If there is no host memory for the number, peers
 * keep the window until the communicator ends, which is safe. */
static void tell_later(struct cecl_registry *registry, uint64_t number, uint32_t last_use)
{
    if (CECL_HAS_ROOM(registry->leaving, registry->nleaving, registry->leaving_room))
        registry->leaving[registry->nleaving++] = (struct cecl_leaving_window){number, last_use};
}

ceclResult_t registry_tell_left(struct cecl_registry *registry)
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

ceclResult_t registry_forget(struct cecl_registry *registry, struct cecl_window *window)
{
    const uint64_t number = window->number;
    const uint32_t last_use = window->last_use;
    const bool pending = window->used && is_pending(registry, last_use);
    take_out(registry, registry_windows_up_to(registry, window->home) - 1);
    if (number == 0)
        return ceclSuccess;
    if (!pending)
        return tell_drop(registry, number);
    tell_later(registry, number, last_use);
    return ceclSuccess;
}

ceclResult_t cecl_registry_drop(struct cecl_registry *registry, struct cecl_window *window)
{
    return window->gone ? ceclSuccess : registry_forget(registry, window);
}

ceclResult_t cecl_registry_forget(struct cecl_registry *registry, const void *ptr)
{
    struct cecl_window *window = cecl_registry_find(registry, ptr);
    return window ? registry_forget(registry, window) : ceclSuccess;
}

static void close_all(const struct cecl_region_export *exports, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (exports[i].fd >= 0)
            cecl_fds_close(exports[i].fd);
}

ceclResult_t registry_tell(struct cecl_registry *registry, enum registry_message_kind kind,
                           const struct cecl_window *window, const struct cecl_region *regions,
                           size_t count)
{
    union {
        struct registry_message message;
        char room[CECL_INBOX_BYTES];
    } u = {.message = {.kind = kind,
                       .number = window->number,
                       .home = window->home,
                       .bytes = window->bytes,
                       .message = registry->posted + 1}};
    struct registry_message *message = &u.message;
    const int64_t begin = cecl_now_ns();
    int fds[CECL_INBOX_FDS], nfds = 0;
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
