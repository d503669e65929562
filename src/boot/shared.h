/* A small memory that all ranks of a communicator share. It can still be used when the mesh is
 * broken.
 *
 * The memory has numbered parts, each for one user. To add a user, give its part a number and a size where
 * cecl_shared_open is called. */
#ifndef CECL_BOOT_SHARED_H
#define CECL_BOOT_SHARED_H

#include <stddef.h>

#include "boot/mesh.h"

#define CECL_SHARED_PARTS_MAX 12

/* All zero: no memory. */
struct cecl_shared {
    char *base; /* this rank's mapping */
    size_t bytes;
    size_t offsets[CECL_SHARED_PARTS_MAX]; /* where the parts begin; each begins at a cache line */
};

/* All ranks map the memory, or all fail. It is zeroed, and cannot become smaller. Collective over `mesh`; once.
 *
 * sizes  [count] bytes of each part, equal on all ranks; count is at most CECL_SHARED_PARTS_MAX */
ceclResult_t cecl_shared_open(struct cecl_mesh *mesh, int rank, const size_t *sizes, int count,
                              struct cecl_shared *shared);

/* Where part `part` is mapped on this rank. Local. */
static inline void *cecl_shared_at(const struct cecl_shared *shared, int part)
{
    return shared->base + shared->offsets[part];
}

/* Removes this rank's mapping; the peers keep theirs. Zeroed memory may be closed. Local. */
void cecl_shared_close(struct cecl_shared *shared);

#endif
