/* What calls whose blocks differ share: from counts and displacements to layouts, and the checks of
 * those of which every rank has a layout of its own (plan/layout.h). */
#ifndef CECL_COMM_VARIABLE_H
#define CECL_COMM_VARIABLE_H

#include "comm/collective.h"
#include "plan/layout.h"

/* Blocks as the caller gives them, in elements, and how the arguments are called. */
struct cecl_given {
    const size_t *counts, *displs; /* [nranks]; displs NULL: one behind the other */
    const char *counts_name, *displs_name;
    bool empty_anywhere; /* displs of empty blocks are of no account: they become 0 */
};

/* In bytes; refuses what ends beyond an address space. *in_order: each block is behind those before
 * it, so none overlap. */
ceclResult_t cecl_given_bytes(const struct cecl_given *given, int nranks, size_t size,
                              uint64_t *bytes, uint64_t *offsets, bool *in_order);
/* Blocks that are received must not overlap: each byte has one writer. */
ceclResult_t cecl_given_apart(const struct cecl_given *given, int nranks, const uint64_t *bytes,
                              const uint64_t *offsets);

/* Whether every rank has a layout of its own. */
static inline bool cecl_item_varies(const struct cecl_item *item)
{
    return item->op == ceclOpAlltoAll && item->layout;
}
/* What follows from the layout of such a call; cheap, as all that is done at every call. */
ceclResult_t cecl_variable_complete(ceclComm_t comm, struct cecl_item *item);
/* Where its buffers are. */
ceclResult_t cecl_variable_buffers(ceclComm_t comm, const struct cecl_item *item);

/* places.c. Room for what ranks tell each other of their blocks, made when the communicator is. */
void *cecl_places_room(int nranks);
/* Collective. Ranks tell each other their layouts; fills in `targets`, where this rank's blocks
 * belong at its peers. `local`: this rank's verdict on its own arguments, its message recorded. All
 * ranks go on or all refuse, with the ranks and both values where two of them differ. */
ceclResult_t cecl_places_exchange(ceclComm_t comm, const struct cecl_item *item, uint64_t *targets,
                                  ceclResult_t local);
/* Collective. The same where targets were given: they are compared. */
ceclResult_t cecl_places_compare(ceclComm_t comm, const struct cecl_item *item);

#endif
