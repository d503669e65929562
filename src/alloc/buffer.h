/* Windows of this rank's memory, and buffers in them. A buffer is {window, offset}. A pointer is looked up
 * once, when a call is described; from then on no address is compared.
 *
 *     pool        symmetric memory. The offset counts from the start of this rank's slice, and a
 *                 peer's address is calculated from the offset.
 *     registered  other memory that peers can reach. The offset counts from the window's start.
 *     private     memory that no peer can reach. All private memory is one window, and the offset is the
 *                 address itself.
 *
 * Windows are reference-counted. These hold references: the registry (while the memory exists), the caller's
 * registrations, calls that are being made, and kept plans. While a window has a reference, its buffers can be turned
 * into addresses, even if the registry has forgotten the window. */
#ifndef CECL_ALLOC_BUFFER_H
#define CECL_ALLOC_BUFFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers by which ranks name windows to each other. A registered window has a number of at least
 * CECL_WINDOW_FIRST, which its rank never uses for another window. */
enum { CECL_WINDOW_NONE, CECL_WINDOW_PRIVATE, CECL_WINDOW_POOL, CECL_WINDOW_FIRST = 16 };

/* A region that this rank has announced to its peers. */
struct cecl_registered {
    uint64_t base, bytes, id;
};

struct cecl_window {
    uint64_t home;   /* the address of the window's first byte; 0: the private window */
    uint64_t number; /* 0: peers cannot reach it, so its buffers count as private */
    /* -- for registered windows -- */
    uint64_t bytes;
    struct cecl_registered *regions; /* [nregions], in the order of addresses */
    size_t nregions, room;
    uint32_t pins; /* how many registrations by the caller cover the window */
    /* the value that the word `done` (flags/flags.h) reaches when the last call that used the window is done */
    uint32_t last_use;
    bool used;
    bool gone;                   /* the registry has forgotten the window */
    _Atomic uint32_t references; /* see cecl_window_hold */
};

struct cecl_buffer {
    struct cecl_window *window; /* NULL: the call does not use this buffer */
    uint64_t offset;            /* bytes from the window's first byte */
};

/* A buffer, as this rank describes it to peers. */
struct cecl_peer_buffer {
    uint64_t window; /* the window's number; CECL_WINDOW_NONE: no buffer */
    uint64_t offset;
};

/* The window of all private memory. Its fields never change. */
extern struct cecl_window cecl_window_private;

static inline bool cecl_window_is_registered(const struct cecl_window *window)
{
    return window && window->number >= CECL_WINDOW_FIRST;
}

/* The next two functions take and give back a reference. Only registered windows count them: the pool's window and the
 * private one always exist. */
static inline void cecl_window_hold(struct cecl_window *window)
{
    if (cecl_window_is_registered(window))
        atomic_fetch_add_explicit(&window->references, 1, memory_order_relaxed);
}
void cecl_window_drop_reference(struct cecl_window *window);
static inline void cecl_window_release(struct cecl_window *window)
{
    if (cecl_window_is_registered(window))
        cecl_window_drop_reference(window);
}

static inline uint64_t cecl_buffer_number(struct cecl_buffer buffer)
{
    return buffer.window ? buffer.window->number : CECL_WINDOW_NONE;
}

static inline bool cecl_buffer_is_private(struct cecl_buffer buffer)
{
    return cecl_buffer_number(buffer) == CECL_WINDOW_PRIVATE;
}

static inline bool cecl_buffer_is_pool(struct cecl_buffer buffer)
{
    return cecl_buffer_number(buffer) == CECL_WINDOW_POOL;
}

/* Whether peers can reach a buffer. */
static inline bool cecl_buffer_is_shared(struct cecl_buffer buffer)
{
    return cecl_buffer_number(buffer) >= CECL_WINDOW_POOL;
}

/* This rank's address of a buffer; NULL: no buffer. */
static inline void *cecl_buffer_address(struct cecl_buffer buffer)
{
    return buffer.window ? (void *)(uintptr_t)(buffer.window->home + buffer.offset) : NULL;
}

static inline struct cecl_peer_buffer cecl_buffer_told(struct cecl_buffer buffer)
{
    return (struct cecl_peer_buffer){cecl_buffer_number(buffer), buffer.offset};
}

static inline struct cecl_buffer cecl_buffer_at(struct cecl_buffer buffer, uint64_t bytes)
{
    return (struct cecl_buffer){buffer.window, buffer.offset + bytes};
}

static inline bool cecl_buffer_is(struct cecl_buffer a, struct cecl_buffer b)
{
    return a.window == b.window && a.offset == b.offset;
}

#endif
