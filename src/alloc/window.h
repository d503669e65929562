/* Windows: memory, by how ranks reach it. A buffer is looked up once, when a call is described; from
 * then on it is {window, offset}, and nobody compares addresses.
 *
 *     pool        symmetric memory: the offset is into a rank's slice, and a peer's address is
 *                 arithmetic.
 *     registered  other memory that peers can reach: the offset is into the window of the rank that
 *                 has it. Windows have numbers from CECL_WINDOW_FIRST on (registry.h).
 *     private     memory that no peer can reach: the offset is the address itself. */
#ifndef CECL_ALLOC_WINDOW_H
#define CECL_ALLOC_WINDOW_H

#include "alloc/pool.h"
#include "alloc/registry.h"

enum cecl_window {
    CECL_WINDOW_NONE, /* no buffer: the call does not use it */
    CECL_WINDOW_PRIVATE,
    CECL_WINDOW_POOL
};

struct cecl_buffer {
    uint64_t window; /* enum cecl_window, or the number of a registered window */
    uint64_t offset; /* bytes into it */
};

/* All memory that a rank knows. */
struct cecl_windows {
    struct cecl_pool *pool;
    struct cecl_registry *registry; /* NULL: there is none */
    bool register_on_use;           /* memory that a call uses is registered by itself */
};

/* Whether peers can reach a buffer. */
static inline bool cecl_buffer_is_shared(struct cecl_buffer buffer)
{
    return buffer.window == CECL_WINDOW_POOL || buffer.window >= CECL_WINDOW_FIRST;
}

/* Where `ptr` is; NULL is in no window. Checks nothing: see cecl_window_check. */
struct cecl_buffer cecl_window_find(const struct cecl_windows *windows, const void *ptr);

/* Where this rank has a buffer. */
void *cecl_window_own(const struct cecl_windows *windows, struct cecl_buffer buffer);
/* Finds where `rank` has `bytes` bytes from `buffer` on, as this rank addresses them. Waits for
 * memory of a peer's that is still being imported; see cecl_registry_reach. */
ceclResult_t cecl_window_reach(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, int rank, void **at);

/* Refuses `bytes` at `buffer` that are not this device's, or leave their allocation; `name` is the
 * argument's. */
ceclResult_t cecl_window_check(const struct cecl_windows *windows, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name);
/* Refuses what is not in the pool too. */
ceclResult_t cecl_window_check_symmetric(const struct cecl_windows *windows,
                                         struct cecl_buffer buffer, uint64_t bytes,
                                         const char *name);

static inline struct cecl_buffer cecl_buffer_at(struct cecl_buffer buffer, uint64_t bytes)
{
    return (struct cecl_buffer){buffer.window, buffer.offset + bytes};
}

static inline bool cecl_buffer_is(struct cecl_buffer a, struct cecl_buffer b)
{
    return a.window == b.window && a.offset == b.offset;
}

#endif
