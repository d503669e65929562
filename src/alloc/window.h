/* All memory that a rank knows. Functions here turn a pointer into a buffer, and a buffer of any rank into this rank's
 * address of it. buffer.h lists the kinds of windows. */
#ifndef CECL_ALLOC_WINDOW_H
#define CECL_ALLOC_WINDOW_H

#include "alloc/pool.h"
#include "alloc/registry.h"

struct cecl_windows {
    struct cecl_pool *pool;
    struct cecl_registry *registry; /* NULL: only the pool is known */
    bool register_on_use;           /* calls register the memory that they use */
};

/* The window and offset of `ptr`. Does not check the memory: see cecl_window_check. */
struct cecl_buffer cecl_window_find(const struct cecl_windows *windows, const void *ptr);

/* Finds the address at which this rank reaches `bytes` bytes of another rank's memory, from `buffer` on. Waits until
 * the memory is imported; see cecl_registry_reach. */
ceclResult_t cecl_window_reach(const struct cecl_windows *windows, struct cecl_peer_buffer buffer,
                               uint64_t bytes, int rank, void **at);

/* Fails if the `bytes` bytes at `buffer` are not memory of this device, or reach beyond the end of their allocation.
 * `name` is the argument's name. */
ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name);
/* As cecl_window_check, but also fails if the memory is not in the pool. */
ceclResult_t cecl_window_check_symmetric(const struct cecl_windows *windows,
                                         struct cecl_buffer buffer, uint64_t bytes,
                                         const char *name);

#endif
