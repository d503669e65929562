/* Registered memory: memory that the program has allocated itself, and that peers can reach.
 *
 * A window is an allocation, or a range of addresses in which the program maps memory piece by piece; each piece is a
 * region. If a call uses a region that cannot be shared, the whole window becomes private. Otherwise the rank announces
 * the window's regions to its peers in messages. A peer imports them at the same distances from each other as at the
 * owner. Registering is local: a rank that registers memory waits for no other rank.
 *
 * A rank never uses a window's number twice. So a kept plan that names a peer's window never reaches other memory that
 * was allocated later at the same address. When a call uses a region, the region's id shows whether the memory was
 * freed or replaced. If so, the rank makes a new window, and tells its peers to drop the old one. If a pending call
 * uses the old window, the rank tells them only when the call is done, because a peer that comes late to the call needs
 * the old window.
 *
 * A rank counts the messages that it sends, and publishes the count with the places of a call. So a peer knows whether
 * it still has to receive messages before the call.
 *
 * A call waits only for the regions that its own plan touches. The worker imports all regions, message by message, but
 * handles only if their owner registers them before their first use. A call opens the handles that it needs.
 *
 * docs/models/windows.pml is the model of this protocol.
 *
 * Which thread may call what: docs/architecture.md, "Threads". */
#ifndef CECL_ALLOC_REGISTRY_H
#define CECL_ALLOC_REGISTRY_H

#include <pthread.h>

#include "alloc/buffer.h"
#include "boot/mesh.h"
#include "device/device.h"

/* A window that this rank has forgotten while a pending call used it. Peers keep the window until that call is done,
 * because a late peer needs it. Then this rank tells them to drop it. */
struct cecl_leaving_window {
    uint64_t number;
    uint32_t last_use; /* as in struct cecl_window */
};

/* A peer's window, as this rank knows it. Kept plans, ceclWindow_t and the list of the peer's windows hold
 * references to the import. Its memory may be closed before the last reference is given back. */
struct cecl_import;

#define CECL_IMPORT_LISTS 16

/* What this rank knows of a peer's windows. */
struct cecl_peer_windows {
    /* list i has the windows whose number is i modulo CECL_IMPORT_LISTS */
    struct cecl_import *imports[CECL_IMPORT_LISTS];
    uint64_t taken; /* how many of the peer's messages this rank has carried out */
    /* how many messages the peer says that it has sent; written by the thread that makes calls */
    uint64_t promised;
    ceclResult_t failed; /* why no further message can be carried out */
    char words[CECL_MESSAGE_BYTES];
};

/* Functions by which a registry asks its communicator; `context` is their argument. */
struct cecl_registry_asks {
    /* whether the flags' word `done` has reached `target` */
    bool (*reached)(const void *context, uint32_t target);
    bool (*go_on)(void *context);          /* false: waits for peers must end now */
    bool (*captures)(const void *context); /* whether the call that is being made is captured */
    void *context;
};

struct cecl_registry {
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    int rank, nranks;
    struct cecl_registry_asks asks;
    /* -- used by calls -- */
    struct cecl_window **own; /* [nown], sorted by home */
    size_t nown, room;
    size_t looked;                       /* index of the window that forget_gone looks at next */
    struct cecl_leaving_window *leaving; /* [nleaving] */
    size_t nleaving, leaving_room;
    uint64_t next_number;
    uint64_t posted;     /* messages to each peer so far */
    uint64_t changes;    /* how often a window was made or forgotten */
    uint64_t telling_ns; /* see cecl_registry_told_ns */
    int64_t timeout_ms;
    /* -- used by calls and by the worker -- */
    pthread_mutex_t lock;
    /* signalled when the import of a peer's region has succeeded or failed */
    pthread_cond_t news;
    struct cecl_peer_windows *peers; /* [nranks] */
    uint64_t call;                   /* the number of the call that is being made; from 1 on */
    struct cecl_registry *next;      /* next registry of this process; see registry_process.c */
};

ceclResult_t cecl_registry_open(struct cecl_registry *registry, struct cecl_device *dev,
                                struct cecl_mesh *mesh, int rank, int nranks, int64_t timeout_ms,
                                const struct cecl_registry_asks *asks);
/* No work may be pending. A zeroed registry may be closed. If a communicator ends while work is pending, its registry
 * stays open, so that other communicators can still close imports that this work does not use. */
void cecl_registry_close(struct cecl_registry *registry);

/* The window that holds `ptr`, or NULL if this rank has made no such window. Does not check whether the memory is still
 * the same. */
struct cecl_window *cecl_registry_find(const struct cecl_registry *registry, const void *ptr);
/* The next two functions count the caller's registrations of a window. Pinning also takes a reference, which the caller
 * must give back after unpinning. */
static inline void cecl_window_pin(struct cecl_window *window)
{
    window->pins++;
    cecl_window_hold(window);
}
static inline void cecl_window_unpin(struct cecl_window *window)
{
    window->pins--;
}
/* Notes that a call uses a window of this rank, if the window is registered. The call is done once `done`
 * has reached `target`. */
static inline void cecl_window_used(struct cecl_window *window, uint32_t target)
{
    if (!cecl_window_is_registered(window))
        return;
    window->used = true;
    window->last_use = target;
}

/* Looks at the memory from `use->buffer` to the last byte that the call uses. Makes sure that the buffer's window
 * describes this memory, and that peers know all regions of this memory. If there is no window, makes one if `make` is
 * true. registry->changes shows whether a window was made or forgotten. */
ceclResult_t cecl_registry_settle(struct cecl_registry *registry, const struct cecl_use *use,
                                  bool make);
/* How many ns this rank has spent on telling peers about regions since the last call of this function. */
static inline uint64_t cecl_registry_told_ns(struct cecl_registry *registry)
{
    const uint64_t took = registry->telling_ns;
    registry->telling_ns = 0;
    return took;
}
/* Describes a use that reads all `bytes` bytes from `ptr` on. */
static inline struct cecl_use cecl_use_all(const void *ptr, uint64_t bytes, const char *name)
{
    const uint64_t low = (uint64_t)(uintptr_t)ptr;
    return (struct cecl_use){.name = name, .buffer = ptr, .low = low, .high = low + bytes};
}
/* Forgets the window that holds `ptr`, for a program that has mapped new memory there: cecl_registry_settle does not
 * look at private memory again. */
ceclResult_t cecl_registry_forget(struct cecl_registry *registry, const void *ptr);
/* Forgets a window, and tells peers to drop it once no pending call uses it. No effect if the registry has
 * forgotten it already. */
ceclResult_t cecl_registry_drop(struct cecl_registry *registry, struct cecl_window *window);

/* Notes how many messages a peer had sent when it published the places of a call. The count never
 * falls: a number that is lower than what this rank already knows is ignored. */
void cecl_registry_promised(struct cecl_registry *registry, int peer, uint64_t messages);
/* Finds this rank's address for `bytes` bytes of a peer's window, from `offset` on. Waits until the bytes are imported,
 * or until asks.go_on ends the wait (ceclTimeout). If the import has failed, returns its error. If the window has a
 * handle that is not open yet, opens it. If CUDA refuses that while other memory is open, closes that memory first: see
 * registry_process.c. */
ceclResult_t cecl_registry_reach(struct cecl_registry *registry, int peer, uint64_t number,
                                 uint64_t offset, uint64_t bytes, void **at);

/* The peers' windows that the plan of a call uses. The list is kept with the plan, so a later equal call needs no
 * search. */
struct cecl_imports {
    struct cecl_import **list; /* [count] each import once; the caller frees the list */
    uint32_t count, room;
};
/* Adds the import of a peer's window to the list, if the window is registered and this rank knows it. */
ceclResult_t cecl_imports_add(struct cecl_registry *registry, int peer, uint64_t number,
                              struct cecl_imports *imports);
/* Empties a list. */
void cecl_imports_drop(struct cecl_imports *imports);
/* Notes that the call that is being made uses these imports, so that they stay open until cecl_imports_used or
 * cecl_registry_made. Returns false if one of them is closed already; then the plan cannot be issued. */
bool cecl_imports_name(struct cecl_registry *registry, const struct cecl_imports *imports);
/* Notes that the call that was being made has been enqueued and uses these imports. The call is done once `done` has
 * reached `target`. */
void cecl_imports_used(struct cecl_registry *registry, const struct cecl_imports *imports,
                       uint32_t target);
/* With `hold`, keeps these imports open for a captured call, which may run again at any time; without it, lets them
 * go. */
void cecl_imports_hold(struct cecl_registry *registry, const struct cecl_imports *imports,
                       bool hold);
/* Whether one of these imports is closed, or will be, because the peer has freed or replaced the memory. */
bool cecl_imports_are_dropped(const struct cecl_imports *imports);
/* Notes that the making of a call is over, with or without success. */
void cecl_registry_made(struct cecl_registry *registry);

/* Carries out one message, if one has arrived (*any), and no second one: importing a message's regions takes some
 * milliseconds, and the worker has other work. The error of a failed import is kept for the call that needs it. */
ceclResult_t cecl_registry_take(struct cecl_registry *registry, bool *any);
/* Closes those dropped imports of all this process's communicators on this GPU that no call uses, if the GPU's work
 * ends within 1 ms. Without dropped imports, waits for nothing. Threads of the program call this where they wait for
 * the GPU, or free memory. */
void cecl_registry_close_dropped(struct cecl_registry *registry);

#endif
