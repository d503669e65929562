/* Shared by registry.c (this rank's windows), registry_peers.c (peers' windows, as calls use them)
 * and registry_import.c (peers' messages). */
#ifndef CECL_ALLOC_REGISTRY_INTERNAL_H
#define CECL_ALLOC_REGISTRY_INTERNAL_H

#include "alloc/registry.h"

enum registry_message_kind { REGISTRY_ADD = 1, REGISTRY_DROP = 2 };

/* Tells peers of regions of a window, or that the window is gone. */
struct registry_message {
    uint32_t kind, count;
    uint64_t number, home, bytes; /* of the window that the message is about */
    uint64_t message;             /* how many messages were sent to this peer, this one included */
    struct cecl_region_export regions[];
};
#define REGISTRY_REGIONS                                                                           \
    ((CECL_MESH_POST_BYTES - sizeof(struct registry_message)) / sizeof(struct cecl_region_export))
_Static_assert(REGISTRY_REGIONS >= 8 && REGISTRY_REGIONS <= CECL_MESH_POST_FDS,
               "each region may bring a descriptor");

/* A region of a peer's window. */
struct imported {
    struct cecl_region_export exported;
    void *addr;
    uint64_t opened; /* number of this import among all of the process */
    bool open;       /* the device has access to it */
    struct imported *next;
};

struct cecl_import {
    uint64_t number, home, bytes; /* as the peer numbers and addresses the window */
    char *mirror;                 /* where `home` lies for this rank */
    bool reserved;                /* the mirror is a range of addresses that this rank reserved */
    bool dropped;
    bool used;
    uint32_t last_use; /* the flags' `done` after the last call that used it */
    uint64_t call;     /* the last call that named it */
    struct imported *regions;
    /* the memory is closed, or about to be: nobody may use it any more */
    bool closed;
    _Atomic uint32_t references; /* held by the peer's list and by kept plans */
    uint64_t collected;          /* the call of cecl_imports_collect that found it last */
    ceclResult_t failed;         /* why a region is missing; no further region is added then */
    char words[CECL_MESSAGE_BYTES];
    struct cecl_import *next;
};

/* The import of the window with this number, or NULL. The caller holds the lock, or is the
 * worker. */
struct cecl_import *registry_find_import(const struct cecl_peer_windows *peer, uint64_t number);

/* A stretch of addresses. */
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

/* CUDA puts small allocations into a block of so many bytes with others. It opens no memory of a
 * block while an import of the block's former memory is open. So memory that lies near an import
 * may be of the same block or of a former one at the same addresses. */
#define REGISTRY_BLOCK_BYTES UINT64_C(0x200000)
/* All blocks that a range of addresses touches. */
static inline struct addresses addresses_of_blocks(struct addresses range)
{
    return (struct addresses){range.low & ~(REGISTRY_BLOCK_BYTES - 1),
                              (range.high + REGISTRY_BLOCK_BYTES - 1) &
                                  ~(REGISTRY_BLOCK_BYTES - 1)};
}

/* Whether a peer's import may be closed, because no call of this rank uses it any more. */
bool registry_is_unused(const struct cecl_registry *registry, const struct cecl_import *import);
/* Takes an import out of its list, at *at. Nobody may use its memory from then on. Under the
 * lock. */
struct cecl_import *registry_take_import(struct cecl_import **at);
/* Closes the memory of an import that is out of its list, and gives back the list's reference. */
void registry_close_import(struct cecl_registry *registry, struct cecl_import *import);
void registry_close_peers(struct cecl_registry *registry);

/* -- registry_process.c: all registries of this process -- */

void registry_enlist(struct cecl_registry *registry);
void registry_delist(struct cecl_registry *registry);
/* Whether no call is pending on any communicator of this process. */
bool registry_all_idle(void);
/* A number for each time that this process exports a region, in order. */
uint64_t registry_stamp(void);
/* A number for each import of this process, in order. registry_last_import: the latest number. */
uint64_t registry_next_import(void);
uint64_t registry_last_import(void);

/* Closes imports of former memory that lay where `exported` lies now, in any registry of the same
 * GPU as `by`. ceclInProgress: a pending call uses some of that memory. ceclInvalidUsage:
 * `exported` was freed, and newer memory lies there.
 *
 * before  if not 0: the device has refused to open `exported` when this was the last import,
 *         because former memory of its block was open */
ceclResult_t registry_close_stale(struct cecl_registry *by,
                                  const struct cecl_region_export *exported, uint64_t before);

#endif
