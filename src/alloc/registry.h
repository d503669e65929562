/* Registered memory: memory that the program already has and that peers can reach.
 *
 * Each rank has windows of its own: one for each allocation, or for each range of addresses in
 * which the program maps memory piece by piece. The pieces are regions. The rank tells its peers of
 * each region by a message. A peer imports the regions, at the same distances from each other.
 * Registering is local: no rank waits for another to register anything.
 *
 * Windows have numbers that a rank never uses twice. So a kept plan that names a window of a peer
 * can never reach other memory that came to the same address later. When a call uses a region, its
 * id shows whether the memory was freed or replaced. If so, the rank tells its peers to drop the
 * old window, and makes a new one. If a pending call uses another region of that window, the rank
 * tells them once that call is done, because a peer may still come late to it.
 *
 * Messages are counted. A rank tells its count along with the places of a call, so that peers know
 * how many messages are still to come.
 *
 * A call waits only for the regions that its own plan touches. The worker imports all regions,
 * message by message; within a message the regions for which a call waits come first. This matters
 * for a buffer of many regions, whose import takes milliseconds: an all-gather touches only one
 * block of each peer's recvbuff.
 *
 * docs/models/windows.pml is the model of this protocol.
 *
 * Which thread may call what: docs/architecture.md, "Threads". */
#ifndef CECL_ALLOC_REGISTRY_H
#define CECL_ALLOC_REGISTRY_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/buffer.h"
#include "boot/mesh.h"
#include "device/device.h"

/* A window that this rank has forgotten while a pending call used it. Peers keep the window until
 * that call is done, because a peer that comes late to the call needs it. Then peers are told to
 * drop the window. */
struct cecl_leaving_window {
    uint64_t number;
    uint32_t last_use; /* as in struct cecl_window */
};

/* A peer's window, as this rank reaches it. The list of the peer's windows and kept plans hold
 * references to it. The memory may be closed before the last reference is given back. */
struct cecl_import;

/* A range of bytes of a peer's window. */
struct cecl_stretch {
    uint64_t number, low, high; /* low == high: none */
};

#define CECL_IMPORT_LISTS 16

/* What this rank knows of a peer's windows. */
struct cecl_peer_windows {
    /* in list i are the windows whose number is i modulo CECL_IMPORT_LISTS */
    struct cecl_import *imports[CECL_IMPORT_LISTS];
    uint64_t taken;             /* how many of the peer's messages are carried out */
    struct cecl_stretch wanted; /* what the call that is being made waits for */
    /* how many messages the peer said that it had sent; written by the caller */
    uint64_t promised;
    ceclResult_t failed; /* why no further message can be carried out */
    char words[CECL_MESSAGE_BYTES];
};

/* Questions that a registry asks its communicator. */
struct cecl_registry_asks {
    /* whether this rank's calls are done up to a target of the flags' word `done` */
    bool (*reached)(const void *context, uint32_t target);
    bool (*go_on)(void *context);      /* false: waits for peers end now */
    bool (*idle)(const void *context); /* whether no call of this rank's is pending */
    void *context;
};

#define CECL_FOUND 64

/* The result of an earlier look-up. */
struct cecl_found {
    const void *ptr;
    struct cecl_window *window;
    uint64_t changes; /* the registry's `changes` at that time; valid while they are equal */
};

struct cecl_registry {
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    int rank, nranks;
    struct cecl_registry_asks asks;
    /* -- used by calls -- */
    struct cecl_window **own; /* [nown] by home */
    size_t nown, room;
    struct cecl_found found[CECL_FOUND]; /* the index is derived from the pointer */
    size_t looked;                       /* the window to look at next, if there are so many */
    struct cecl_leaving_window *leaving; /* [nleaving] */
    size_t nleaving, leaving_room;
    uint64_t next_number;
    uint64_t posted;     /* messages to each peer so far */
    uint64_t changes;    /* how often a window came or went */
    uint64_t telling_ns; /* see cecl_registry_told_ns */
    int64_t timeout_ms;
    _Atomic bool hurried; /* see cecl_registry_hurry */
    /* -- of starts of requests: see registry_start.c -- */
    _Atomic bool starting, has_started;
    _Atomic uint32_t started_until; /* the flags' `done` after the last start */
    /* -- of both threads -- */
    pthread_mutex_t lock;
    /* signalled when a region of a peer's is imported, or failed */
    pthread_cond_t news;
    struct cecl_peer_windows *peers; /* [nranks] */
    uint64_t call;                   /* the number of the call that is being made; from 1 on */
    uint64_t collections;            /* counts calls of cecl_imports_collect */
    struct cecl_registry *next;      /* of this process's; see registry_process.c */
};

ceclResult_t cecl_registry_open(struct cecl_registry *registry, struct cecl_device *dev,
                                struct cecl_mesh *mesh, int rank, int nranks, int64_t timeout_ms,
                                const struct cecl_registry_asks *asks);
/* No work may be pending. A zeroed registry may be closed. */
void cecl_registry_close(struct cecl_registry *registry);
/* Called instead of cecl_registry_close where the communicator ends while work is pending. What
 * that work uses stays open. On the host device other communicators of the process no longer wait
 * for that work before they close memory. On a GPU they do, because CUDA closes memory only when
 * all of the GPU's work is done, and holds up other threads meanwhile. */
void cecl_registry_lose(struct cecl_registry *registry);

/* The window that holds `ptr`, or NULL if this rank has made none. Does not check whether the
 * memory is still the same. A pointer that was looked up before is found without a search. */
struct cecl_window *cecl_registry_find(struct cecl_registry *registry, const void *ptr);
/* Counts the caller's registrations of a window. Pinning also takes a reference. Unpinning does not
 * give it back; whoever unpins has to. */
static inline void cecl_window_pin(struct cecl_window *window)
{
    window->pins++;
    cecl_window_hold(window);
}
static inline void cecl_window_unpin(struct cecl_window *window)
{
    window->pins--;
}
/* Notes that a call uses a window of this rank, if it is a registered one: the call is done once `done` has
 * come to `target`. */
static inline void cecl_window_used(struct cecl_window *window, uint32_t target)
{
    if (!cecl_window_is_registered(window))
        return;
    window->used = true;
    window->last_use = target;
}

/* Makes sure that a buffer's window still describes the memory that is there, from the window's
 * start to the last byte that is used, and that peers were told of all regions in that range. Makes
 * a window where there is none, if `make`. registry->changes tells whether something changed. */
ceclResult_t cecl_registry_settle(struct cecl_registry *registry, const struct cecl_use *use,
                                  bool make);
/* How long telling peers of regions took since the last such question. */
static inline uint64_t cecl_registry_told_ns(struct cecl_registry *registry)
{
    const uint64_t took = registry->telling_ns;
    registry->telling_ns = 0;
    return took;
}
/* All of some memory, for cecl_registry_settle. */
static inline struct cecl_use cecl_use_all(const void *ptr, uint64_t bytes, const char *name)
{
    const uint64_t low = (uint64_t)(uintptr_t)ptr;
    return (struct cecl_use){.name = name, .buffer = ptr, .low = low, .high = low + bytes};
}
/* Forgets the window that holds `ptr`, for a caller that has mapped new memory there.
 * (cecl_registry_settle does not look at private memory again.) */
ceclResult_t cecl_registry_forget(struct cecl_registry *registry, const void *ptr);
/* Drops a window, here and, once no pending call uses it, at the peers. No effect if the registry
 * has forgotten it. */
ceclResult_t cecl_registry_drop(struct cecl_registry *registry, struct cecl_window *window);

/* Notes how many messages a peer had sent when it told the places of a call. */
void cecl_registry_promised(struct cecl_registry *registry, int peer, uint64_t messages);
/* Finds this rank's address for `bytes` bytes of a peer's window, from `offset` on, and waits until
 * they are imported. The wait is bounded: asks.go_on ends it (ceclTimeout). An error of the import
 * is returned here. */
ceclResult_t cecl_registry_reach(struct cecl_registry *registry, int peer, uint64_t number,
                                 uint64_t offset, uint64_t bytes, void **at);

/* The peers' windows that the plan of a call uses. They are kept with the plan, so that the next
 * equal call finds them without a search. */
struct cecl_imports {
    struct cecl_import **list; /* [count] each once */
    uint32_t count;
};
/* Collects the imports in which the [count] buffers lie: those of registered windows of peers that
 * this rank has opened. The caller drops the list. `buffers` has two buffers for each rank, in rank
 * order; this may repeat. */
ceclResult_t cecl_imports_collect(struct cecl_registry *registry,
                                  const struct cecl_peer_buffer *buffers, size_t count,
                                  struct cecl_imports *imports);
void cecl_imports_drop(struct cecl_imports *imports); /* a zeroed list may be dropped */
/* Notes that the call that is being made uses these imports: they stay open until cecl_imports_used
 * or cecl_registry_made. Returns false if one of them is closed; then the plan cannot be issued. */
bool cecl_imports_name(struct cecl_registry *registry, const struct cecl_imports *imports);
/* Notes that the call which uses these imports is made. The call is done once `done` has come to
 * `target`. */
void cecl_imports_used(struct cecl_registry *registry, const struct cecl_imports *imports,
                       uint32_t target);
/* Keeps them open for a captured call, which may run again at any time; or no longer. */
void cecl_imports_hold(struct cecl_registry *registry, const struct cecl_imports *imports,
                       bool hold);
/* Whether a peer has dropped one of them, because it found that the memory was freed. */
bool cecl_imports_are_dropped(const struct cecl_imports *imports);
/* Does for one peer's window, which cecl_registry_reach has found, what cecl_imports_used does for
 * many. The caller holds the lock, once for all messages of a group. */
void cecl_registry_lock(struct cecl_registry *registry);
void cecl_registry_unlock(struct cecl_registry *registry);
void cecl_registry_used(struct cecl_registry *registry, int peer, uint64_t number, uint32_t target);
/* Tells that no call is being made any more. */
void cecl_registry_made(struct cecl_registry *registry);

/* -- registry_start.c: what the start of a request asks, without a lock -- */

/* Whether the memory of a window is what it was when `use` was settled. An error names the use. */
ceclResult_t cecl_registry_is_same(const struct cecl_registry *registry,
                                   const struct cecl_window *window, const struct cecl_use *use,
                                   bool *same);
/* Notes that a request's program uses these windows of peers, or that it no longer does. The peer may drop
 * them all the same; then the request cannot be started any more. */
void cecl_imports_pin(struct cecl_registry *registry, const struct cecl_imports *imports);
void cecl_imports_unpin(struct cecl_registry *registry, const struct cecl_imports *imports);
/* Begins a start that uses pinned windows: they stay open until cecl_imports_end. Returns false, and
 * begins nothing, if one of them is closed. */
bool cecl_imports_begin(struct cecl_registry *registry, const struct cecl_imports *imports);
/* Ends the start, which was enqueued or given up. Its work is done once the word `done` has reached `target`. */
void cecl_imports_end(struct cecl_registry *registry, const struct cecl_imports *imports,
                      uint32_t target);

/* Carries out one message, if one has arrived (*any). To import its regions takes some milliseconds,
 * and the worker has other work too. An import that fails is kept, with its error, for the call
 * that needs it. */
ceclResult_t cecl_registry_take(struct cecl_registry *registry, bool *any);
/* Closes imports that were dropped, once the calls that may still use them are done. CUDA holds up
 * other threads while it closes memory, until all of the GPU's work is done. A pending call may
 * wait for a peer which waits for one of those threads. So imports are closed only when no
 * communicator of this process has a call pending. */
void cecl_registry_sweep(struct cecl_registry *registry);
/* Whether an import that was dropped is still open. */
bool cecl_registry_has_dropped(struct cecl_registry *registry);
/* Ends waits of cecl_registry_take, from now on. */
void cecl_registry_hurry(struct cecl_registry *registry);

#endif
