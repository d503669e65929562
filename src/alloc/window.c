/* Windows: from a pointer to {window, offset}, and back to an address. */
#include "alloc/window.h"

#include <inttypes.h>

struct cecl_buffer cecl_window_find(const struct cecl_windows *windows, const void *ptr)
{
    const struct cecl_pool *pool = windows->pool;
    const uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (!ptr)
        return (struct cecl_buffer){CECL_WINDOW_NONE, 0};
    if (cecl_pool_owns(pool, ptr)) {
        const char *base = cecl_pool_at(pool, pool->rank, 0);
        return (struct cecl_buffer){CECL_WINDOW_POOL, (uint64_t)((const char *)ptr - base)};
    }
    const struct cecl_own_window *window =
        windows->registry ? cecl_registry_find(windows->registry, ptr) : NULL;
    if (window && window->number != 0)
        return (struct cecl_buffer){window->number, address - window->home};
    return (struct cecl_buffer){CECL_WINDOW_PRIVATE, address};
}

void *cecl_window_own(const struct cecl_windows *windows, struct cecl_buffer buffer)
{
    if (buffer.window == CECL_WINDOW_POOL)
        return cecl_pool_at(windows->pool, windows->pool->rank, buffer.offset);
    if (buffer.window < CECL_WINDOW_FIRST)
        return (void *)(uintptr_t)buffer.offset;
    const struct cecl_own_window *window = cecl_registry_own(windows->registry, buffer.window);
    return window ? (void *)(uintptr_t)(window->home + buffer.offset) : NULL;
}

ceclResult_t cecl_window_reach(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, int rank, void **at)
{
    if (rank != windows->pool->rank && buffer.window >= CECL_WINDOW_FIRST)
        return cecl_registry_reach(windows->registry, rank, buffer.window, buffer.offset, bytes,
                                   at);
    if (buffer.window == CECL_WINDOW_POOL)
        *at = cecl_pool_at(windows->pool, rank, buffer.offset);
    else
        *at = rank == windows->pool->rank ? cecl_window_own(windows, buffer) : NULL;
    return *at ? ceclSuccess
               : cecl_fail(ceclInternalError, "window %" PRIu64 " of rank %d is not known here",
                           buffer.window, rank);
}

ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name)
{
    const struct cecl_pool *pool = windows->pool;
    const void *ptr = cecl_window_own(windows, buffer);
    if (!ptr && buffer.window >= CECL_WINDOW_FIRST)
        return cecl_fail(ceclInvalidUsage,
                         "%s: its memory was freed or replaced after the call was made and before "
                         "ceclGroupEnd",
                         name);
    if (buffer.window == CECL_WINDOW_POOL || cecl_pool_holds(pool, ptr))
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
    return cecl_pool_locate(windows->pool, cecl_window_own(windows, buffer), bytes, name, &offset);
}
