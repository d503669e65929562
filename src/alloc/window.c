/* Windows: from a pointer to {window, offset}, and back to an address. */
#include "alloc/window.h"

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

/* Where this rank has a byte of its own windows. */
static void *own_at(const struct cecl_windows *windows, struct cecl_buffer buffer)
{
    if (buffer.window < CECL_WINDOW_FIRST)
        return (void *)(uintptr_t)buffer.offset;
    const struct cecl_own_window *window = cecl_registry_own(windows->registry, buffer.window);
    return window ? (void *)(uintptr_t)(window->home + buffer.offset) : NULL;
}

void *cecl_window_at(const struct cecl_windows *windows, struct cecl_buffer buffer, int rank)
{
    if (buffer.window == CECL_WINDOW_POOL)
        return cecl_pool_at(windows->pool, rank, buffer.offset);
    if (rank == windows->pool->rank)
        return own_at(windows, buffer);
    return buffer.window >= CECL_WINDOW_FIRST
               ? cecl_registry_at(windows->registry, rank, buffer.window, buffer.offset)
               : NULL;
}

ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name)
{
    const struct cecl_pool *pool = windows->pool;
    const void *ptr = cecl_window_at(windows, buffer, pool->rank);
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
    return cecl_pool_locate(windows->pool, cecl_window_at(windows, buffer, windows->pool->rank),
                            bytes, name, &offset);
}
