/* What the files of the registry share: registry.c (this rank's windows), registry_settle.c (making and settling them),
 * registry_peers.c (uses of peers' windows), registry_import.c (importing them) and registry_process.c (see below). */
#ifndef CECL_ALLOC_REGISTRY_INTERNAL_H
#define CECL_ALLOC_REGISTRY_INTERNAL_H

#include "alloc/registry.h"

/* OPEN is like ADD, and asks the peer to open handles, too. */
enum registry_message_kind { REGISTRY_ADD = 1, REGISTRY_DROP = 2, REGISTRY_OPEN = 3 };

/* A message to peers. It names regions of a window, or says that peers must drop the window. */
struct registry_message {
    uint32_t kind, count;
    uint64_t number, home, bytes; /* of the window */
    uint64_t message;             /* how many messages were sent to this peer, including this one */
    struct cecl_region_export regions[];
};
#define REGISTRY_REGIONS \
    ((CECL_INBOX_BYTES - sizeof(struct registry_message)) / sizeof(struct cecl_region_export))
_Static_assert(REGISTRY_REGIONS >= 8 && REGISTRY_REGIONS <= CECL_INBOX_FDS,
               "each region may bring a descriptor");

/* The number of elements that begin at `address` or before. The list is sorted by address. */
static inline size_t registry_begin_up_to(const void *list, size_t count, uint64_t address,
                                          uint64_t (*begin_of)(const void *list, size_t index))
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (begin_of(list, middle) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many of this rank's windows begin at `address` or before. */
size_t registry_windows_up_to(const struct cecl_registry *registry, uint64_t address);
/* Forgets a window. If peers know the window, tells them to drop it: at once, or once the pending call that uses it is
 * done. */
ceclResult_t registry_forget(struct cecl_registry *registry, struct cecl_window *window);
/* Tells peers to drop those forgotten windows that no pending call uses any more. */
ceclResult_t registry_tell_left(struct cecl_registry *registry);
/* Tells peers of some regions of a window, in one message of kind REGISTRY_ADD or REGISTRY_OPEN. */
ceclResult_t registry_tell(struct cecl_registry *registry, enum registry_message_kind kind,
                           const struct cecl_window *window, const struct cecl_region *regions,
                           size_t count);

/* A region of a peer's window. */
struct imported {
    struct cecl_region_export exported;
    void *addr;
    uint64_t opened; /* the import's number; later imports of this process have higher ones */
    bool open;       /* the device has access to the region */
    struct imported *next;
};

enum import_state {
    IMPORT_VALID,
    IMPORT_DROPPED, /* its owner has freed or replaced the memory; closed once no call uses it */
    IMPORT_CLOSED   /* calls may not use its memory any more */
};

struct cecl_import {
    uint64_t number, home, bytes; /* the window's number, first address and size at the peer */
    char *mirror;                 /* the address here that corresponds to `home` */
    bool reserved;                /* the mirror is a range of addresses that this rank reserved */
    _Atomic int state;
    bool used;
    /* the value that the word `done` (flags/flags.h) reaches when the last call that used the window is done */
    uint32_t last_use;
    uint64_t call;  /* the number of the last call that named or looked up the import */
    uint32_t holds; /* how many captured calls use it; they may run again */
    struct imported *regions;
    /* The region of a handle that is not opened yet, or NULL. While a call opens it, `call` keeps the import in its
     * list, so nobody frees the region. */
    struct imported *unopened;
    uint64_t weight; /* how many bytes registry_note_dropped has counted for this import */
    _Atomic uint32_t references; /* held by the peer's list, kept plans and ceclWindow_t */
    ceclResult_t failed;         /* why a region is missing; from then on no region is imported */
    char words[CECL_MESSAGE_BYTES];
    struct cecl_import *next;
};

/* Where the list has the import of the window with this number; NULL is there if the list has none. The caller holds
 * the lock. */
struct cecl_import **registry_find_import(struct cecl_peer_windows *peer, uint64_t number);

/* A range of addresses. */
struct addresses {
    uint64_t low, high;
};
static inline struct addresses addresses_of(uint64_t base, uint64_t bytes)
{
    return (struct addresses){base, base + bytes};
}
static inline bool addresses_overlap(struct addresses a, struct addresses b)
{
    return a.low < b.high && b.low < a.high;
}

/* CUDA puts several small allocations into one block of this size. While an import from a former block is open, CUDA
 * may refuse to open memory of a new block at the same addresses. Two imports in one aligned range of this size may be
 * of one block, or of a former and a new one. */
#define REGISTRY_BLOCK_BYTES UINT64_C(0x200000)
/* The addresses of all blocks that a range touches. */
static inline struct addresses addresses_of_blocks(struct addresses range)
{
    return (struct addresses){range.low & ~(REGISTRY_BLOCK_BYTES - 1),
                              (range.high + REGISTRY_BLOCK_BYTES - 1) &
                                  ~(REGISTRY_BLOCK_BYTES - 1)};
}

/* Whether a call of this rank uses an import: the call that is being made, a pending call, or a captured call. The
 * caller holds the lock. */
bool registry_is_in_use(const struct cecl_registry *registry, const struct cecl_import *import);
/* Takes the import *at out of its list. From then on calls may not use the import's memory. The caller holds the
 * lock, or closes the registry. */
struct cecl_import *registry_take_import(struct cecl_import **at);
/* Closes the memory of an import that is out of its list, and gives back the list's reference. */
void registry_close_import(struct cecl_registry *registry, struct cecl_import *import);
void registry_close_peers(struct cecl_registry *registry);
/* Adds a region, which this rank has mapped at `addr`, to its import. A handle's region is open from then on, a file's
 * only after region_access. The caller holds the lock. */
void registry_add_region(struct cecl_registry *registry, struct cecl_import *import,
                         struct imported *region, void *addr);

/* -- registry_process.c: what the registries of this process know of each other -- */

void registry_enlist(struct cecl_registry *registry);
void registry_delist(struct cecl_registry *registry);
/* Returns a new number for an export of a region by this process; later exports have higher numbers. */
uint64_t registry_stamp(void);
/* Returns a new number for an import of this process; later imports have higher numbers. */
uint64_t registry_next_import(void);

/* Notes in all registries of this GPU that former memory at the addresses of `exported` was freed. With `addr`, also
 * opens the handle `exported`. Does not wait. ceclInProgress: the device refuses while memory of a former block is
 * open. ceclInvalidUsage: the memory of `exported` was freed, and newer memory lies at its addresses. */
ceclResult_t registry_try_open(struct cecl_registry *registry,
                               const struct cecl_region_export *exported, void **addr);
/* Opens an import's handle for a call that needs it. If the device refuses while memory of a former block is open,
 * closes that memory first. Releases the caller's lock meanwhile. */
ceclResult_t registry_open_handle(struct cecl_registry *registry, struct cecl_import *import);
/* Marks an import as dropped, and counts the bytes that CUDA frees only once the import is closed here. */
void registry_note_dropped(struct cecl_import *import);
void registry_note_closed(uint64_t weight);
/* Closes dropped imports if they keep CUDA from freeing much memory. May wait for the GPU, for a bounded time. */
void registry_bound_dropped(struct cecl_registry *registry);

#endif
