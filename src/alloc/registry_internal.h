/* What registry.c (this rank's windows) and registry_peers.c (the peers') share. */
#ifndef CECL_ALLOC_REGISTRY_INTERNAL_H
#define CECL_ALLOC_REGISTRY_INTERNAL_H

#include "alloc/registry.h"

enum registry_message_kind { REGISTRY_ADD = 1, REGISTRY_DROP = 2 };

/* Tells peers of regions of a window, or that the window is gone. */
struct registry_message {
    uint32_t kind, count;
    uint64_t number, home, bytes; /* of the window */
    uint64_t message;             /* how many messages there were, with this one */
    struct cecl_region_export regions[];
};
#define REGISTRY_REGIONS                                                                           \
    ((CECL_MESH_POST_BYTES - sizeof(struct registry_message)) / sizeof(struct cecl_region_export))
_Static_assert(REGISTRY_REGIONS >= 8 && REGISTRY_REGIONS <= CECL_MESH_POST_FDS,
               "each region may bring a descriptor");

void registry_close_peers(struct cecl_registry *registry);

#endif
