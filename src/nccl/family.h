/* The keys under which the ranks of a communicator meet (meeting.h). All ranks of a communicator compute the same key:
 * from NCCL's unique id or, for a child, from the parent's key and the number of earlier children of the same kind. */
#ifndef CECL_NCCL_FAMILY_H
#define CECL_NCCL_FAMILY_H

#include <stdint.h>

#include "nccl/abi.h"
#include "nccl/meeting.h"

/* The functions that return a meeting return NULL if this rank does not meet the others. Then NCCL makes all calls. */

/* For a communicator without a parent. */
struct cecl_nccl_meeting *cecl_nccl_meet_by_ids(const ncclUniqueId *ids, int nids, int nranks,
                                                int rank);
/* By a key that all ranks already have; 0: there is no key. */
struct cecl_nccl_meeting *cecl_nccl_meet_by_key(uint64_t key, int nranks, int rank);
/* Returns a new key, for ranks that are all in this process. */
uint64_t cecl_nccl_new_key(void);

/* For a child of `parent`, made by a split, a shrink or a grow. Ranks count the children of each kind, so each rank
 * that takes part must call this function once for each child.
 * color   negative: this rank gets no child
 * places  how many ranks may meet; 0: as many as the parent has */
enum cecl_nccl_child { CECL_NCCL_SPLIT, CECL_NCCL_SHRUNK, CECL_NCCL_GROWN, CECL_NCCL_CHILDREN };
struct cecl_nccl_meeting *cecl_nccl_meet_child(ncclComm_t parent, enum cecl_nccl_child kind,
                                               int color, int places);

/* When a communicator grows, its new ranks have only a unique id. So this function writes the child's key into the id,
 * behind the bytes that NCCL uses. */
void cecl_nccl_mark_id(ncclComm_t parent, ncclUniqueId *id);
/* Removes the key from `id`, and returns it; 0: `id` has no key. */
uint64_t cecl_nccl_unmark_id(ncclUniqueId *id);

/* Keeps the key of a communicator for its children, until NCCL's communicator ends. */
void cecl_nccl_family_keep(ncclComm_t comm, uint64_t key, int rank, int nranks);
/* Must be called before NCCL ends `comm`. */
void cecl_nccl_family_forget(ncclComm_t comm);

#endif
