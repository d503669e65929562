/* All memory that a rank knows. Turns a pointer into a buffer, and a buffer into an address at any
 * rank. buffer.h says what windows there are. */
#ifndef CECL_ALLOC_WINDOW_H
#define CECL_ALLOC_WINDOW_H

#include "alloc/pool.h"
#include "alloc/registry.h"

struct cecl_windows {
    struct cecl_pool *pool;
    struct cecl_registry *registry; /* NULL: there is none */
    bool register_on_use;           /* memory that a call uses is registered at that call */
};

/* Where `ptr` is; NULL is in no window. Checks nothing: see cecl_window_check. */
struct cecl_buffer cecl_window_find(const struct cecl_windows *windows, const void *ptr);

/* Finds the address at which this rank reaches `bytes` bytes from `buffer` on, in another rank's
 * memory. Waits for a peer's memory that is still being imported; see cecl_registry_reach. */
ceclResult_t cecl_window_reach(const struct cecl_windows *windows, struct cecl_peer_buffer buffer,
                               uint64_t bytes, int rank, void **at);

/* Refuses `bytes` at `buffer` that are not memory of this device, or that go past the end of their
 * allocation. `name` is the argument's name. */
ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name);
/* The same; also refuses memory that is not in the pool. */
ceclResult_t cecl_window_check_symmetric(const struct cecl_windows *windows,
                                         struct cecl_buffer buffer, uint64_t bytes,
                                         const char *name);

#endif
