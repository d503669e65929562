/* See window.h. */
#include "alloc/window.h"

#include <inttypes.h>
#include <stdlib.h>

struct cecl_window cecl_window_private = {.number = CECL_WINDOW_PRIVATE};

void cecl_window_drop_reference(struct cecl_window *window)
{
    if (atomic_fetch_sub_explicit(&window->references, 1, memory_order_acq_rel) > 1)
        return;
    free(window->regions);
    free(window);
}

struct cecl_buffer cecl_window_find(const struct cecl_windows *windows, const void *ptr)
{
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    struct cecl_window *window = &cecl_window_private;
    if (!ptr)
        return (struct cecl_buffer){NULL, 0};
    if (cecl_pool_owns(windows->pool, ptr)) {
        window = &windows->pool->window;
    } else if (windows->registry) {
        struct cecl_window *found = cecl_registry_find(windows->registry, ptr);
        if (found && found->number != 0)
            window = found;
    }
    return (struct cecl_buffer){window, address - window->home};
}

ceclResult_t cecl_window_reach(const struct cecl_windows *windows, struct cecl_peer_buffer buffer,
                               uint64_t bytes, int rank, void **at)
{
    if (buffer.window >= CECL_WINDOW_FIRST)
        return cecl_registry_reach(windows->registry, rank, buffer.window, buffer.offset, bytes,
                                   at);
    if (buffer.window != CECL_WINDOW_POOL)
        return cecl_fail(ceclInternalError,
                         "window %" PRIu64 " of rank %d: its peer does not know it", buffer.window,
                         rank);
    *at = cecl_pool_at(windows->pool, rank, buffer.offset);
    return ceclSuccess;
}

ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name)
{
    const struct cecl_pool *pool = windows->pool;
    const void *ptr = cecl_buffer_address(buffer);
    if (buffer.window && buffer.window->gone)
        return cecl_fail(ceclInvalidUsage,
                         "%s %p: its memory was freed or replaced after the call was made and "
                         "before ceclGroupEnd",
                         name, ptr);
    if (cecl_buffer_is_pool(buffer) || cecl_pool_holds(pool, ptr))
        return cecl_window_check_symmetric(windows, buffer, bytes, name);
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return cecl_fail(ceclInvalidArgument, "%s %p: %zu bytes end beyond the last address", name,
                         ptr, (size_t)bytes);
    return pool->dev->ops->check_pointer(pool->dev, ptr, (size_t)bytes, name);
}

ceclResult_t cecl_window_check_symmetric(const struct cecl_windows *windows,
                                         struct cecl_buffer buffer, uint64_t bytes,
                                         const char *name)
{
    uint64_t offset;
    return cecl_pool_locate(windows->pool, cecl_buffer_address(buffer), bytes, name, &offset);
}
