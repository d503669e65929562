/* An all-gather over memory that all ranks see. Each rank has a box there. It writes its part into
 * its box, where the other ranks poll for it.
 *
 * Ranks that make a new communicator out of an old one, the parent, have their boxes in the
 * parent's shared memory (boot/shared.h). The parent's mesh is only asked who has gone, so it may
 * be broken.
 * Threads of one process have boxes in ordinary memory (oob.c), and no parent. */
#ifndef CECL_BOOT_BOXES_H
#define CECL_BOOT_BOXES_H

#include "boot/mesh.h"

#define CECL_BOXES_PART_BYTES 512u /* most bytes of a rank's part */

/* Bytes of shared memory for the boxes of so many ranks. */
size_t cecl_boxes_bytes(int nranks);

/* Which ranks of the parent become an oob. */
struct cecl_boxes_plan {
    void *memory;           /* the boxes */
    struct cecl_mesh *mesh; /* the parent's, or NULL */
    /* [nranks] the members' ranks in the parent; NULL: equal to those in the oob */
    const int *ranks;
    int old_nranks;   /* number of ranks of the parent */
    int nranks, rank; /* in the new communicator */
    /* Tells this use of the boxes from others: equal on all members, never used before, not 0, and
     * less than 2^56. */
    uint64_t token;
    int64_t timeout_ms; /* time from the call's start to the deadline, for messages */
    int64_t deadline;
};

/* Makes an oob of the members. Every wait ends at the deadline, or when a member has died, has left
 * the parent, or has closed its oob. Without a parent, a rank whose exchange fails counts as given
 * up. `plan` must stay until the oob is closed. Local. */
void cecl_oob_from_boxes(struct cecl_oob *oob, const struct cecl_boxes_plan *plan);

/* This rank gives up the new communicator. The reason is the last message, which names ranks by the
 * parent's numbers, or the message of the rank that gave up first. Members that wait for this rank
 * fail with that reason. Afterwards the oob can only be closed. A zeroed oob may be given up.
 * Local. */
void cecl_boxes_give_up(struct cecl_oob *oob);

/* Rank `rank` of the parent takes no part in the use of the boxes with this token; the reason is
 * the last message. Members that wait for that rank fail, as if it had given up. Before this call
 * every rank of the parent must have ended its earlier uses of boxes with this rank. Local. */
void cecl_boxes_leave(void *memory, int nranks, int rank, uint64_t token);

#endif
