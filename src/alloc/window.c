/* Windows: from a pointer to {window, offset}, and back to an address. */
#include "alloc/window.h"

struct cecl_buffer cecl_window_find(const struct cecl_pool *pool, const void *ptr)
{
    if (!ptr)
        return (struct cecl_buffer){CECL_WINDOW_NONE, 0};
    if (!cecl_pool_owns(pool, ptr))
        return (struct cecl_buffer){CECL_WINDOW_PRIVATE, (uint64_t)(uintptr_t)ptr};
    const char *base = cecl_pool_at(pool, pool->rank, 0);
    return (struct cecl_buffer){CECL_WINDOW_POOL, (uint64_t)((const char *)ptr - base)};
}

void *cecl_window_at(const struct cecl_pool *pool, struct cecl_buffer buffer, int rank)
{
    if (buffer.window == CECL_WINDOW_POOL)
        return cecl_pool_at(pool, rank, buffer.offset);
    return rank == pool->rank ? (void *)(uintptr_t)buffer.offset : NULL;
}

ceclResult_t cecl_window_check(const struct cecl_pool *pool, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name)
{
    const void *ptr = cecl_window_at(pool, buffer, pool->rank);
    if (buffer.window == CECL_WINDOW_POOL || cecl_pool_holds(pool, ptr))
        return cecl_window_check_symmetric(pool, buffer, bytes, name);
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return cecl_fail(ceclInvalidArgument, "%s %p: %zu bytes end beyond the last address", name,
                         ptr, (size_t)bytes);
    return pool->dev->ops->check_pointer(pool->dev, ptr, (size_t)bytes, name);
}

ceclResult_t cecl_window_check_symmetric(const struct cecl_pool *pool, struct cecl_buffer buffer,
                                         uint64_t bytes, const char *name)
{
    uint64_t offset;
    return cecl_pool_locate(pool, cecl_window_at(pool, buffer, pool->rank), bytes, name, &offset);
}
