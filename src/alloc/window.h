/* Windows: memory, by how ranks reach it. A buffer is looked up once, when a call is described; from
 * then on it is {window, offset}, and nobody compares addresses.
 *
 *     pool     symmetric memory: the offset is into a rank's slice, and a peer's address is arithmetic.
 *     private  memory that no peer can reach: the offset is the address itself.
 *
 * Memory that a program registers will be further windows, numbered behind these. */
#ifndef CECL_ALLOC_WINDOW_H
#define CECL_ALLOC_WINDOW_H

#include "alloc/pool.h"

enum cecl_window {
    CECL_WINDOW_NONE, /* no buffer: the call does not use it */
    CECL_WINDOW_PRIVATE,
    CECL_WINDOW_POOL
};

struct cecl_buffer {
    uint64_t window; /* enum cecl_window */
    uint64_t offset; /* bytes into it */
};

/* Where `ptr` is; NULL is in no window. Checks nothing: see cecl_window_check. */
struct cecl_buffer cecl_window_find(const struct cecl_pool *pool, const void *ptr);

/* Where `rank` has byte `buffer.offset` of the window, as this rank addresses it. NULL: this rank
 * cannot reach it. */
void *cecl_window_at(const struct cecl_pool *pool, struct cecl_buffer buffer, int rank);

/* Refuses `bytes` at `buffer` that are not this device's, or leave their allocation; `name` is the
 * argument's. */
ceclResult_t cecl_window_check(const struct cecl_pool *pool, struct cecl_buffer buffer,
                               uint64_t bytes, const char *name);
/* Refuses private memory too: peers write to the buffer. */
ceclResult_t cecl_window_check_symmetric(const struct cecl_pool *pool, struct cecl_buffer buffer,
                                         uint64_t bytes, const char *name);

static inline struct cecl_buffer cecl_buffer_at(struct cecl_buffer buffer, uint64_t bytes)
{
    return (struct cecl_buffer){buffer.window, buffer.offset + bytes};
}

static inline bool cecl_buffer_is(struct cecl_buffer a, struct cecl_buffer b)
{
    return a.window == b.window && a.offset == b.offset;
}

#endif
