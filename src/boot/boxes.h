/* An all-gather over shared memory, for ranks that make a new communicator out of an old one. Each
 * rank has a box in the old communicator's shared memory (boot/shared.h). It writes its part there,
 * and the others poll for it. The old communicator's mesh is only asked who has gone, so it may be
 * broken. */
#ifndef CECL_BOOT_BOXES_H
#define CECL_BOOT_BOXES_H

#include "boot/mesh.h"

#define CECL_BOXES_PART_BYTES 512u /* most bytes of a rank's part */

/* Bytes of shared memory for the boxes of so many ranks. */
size_t cecl_boxes_bytes(int nranks);

/* How ranks of the old communicator become an oob. */
struct cecl_boxes_plan {
    void *memory; /* the boxes */
    struct cecl_mesh *mesh;
    const int *ranks; /* [nranks] the member's ranks in the old communicator; kept until close */
    int old_nranks;   /* of the old communicator */
    int nranks, rank; /* of the new one */
    /* Tells this use of the boxes from others: equal on all members, never used before, not 0, and
     * less than 2^56. */
    uint64_t token;
    int64_t timeout_ms; /* until the deadline from the call's beginning, for messages */
    int64_t deadline;
};

/* Makes an oob of the members. Every wait ends at the deadline, or when a member has died, has left
 * the old communicator, or has closed its oob. Local. */
ceclResult_t cecl_oob_from_boxes(struct cecl_oob *oob, const struct cecl_boxes_plan *plan);

/* This rank gives up the new communicator, because of the last message, which names ranks by the old
 * communicator's numbers. Members that wait for it then fail with that reason, or with that of the rank
 * that began. It still closes the oob, of which no more than this may be used. A zeroed oob may be given
 * up. Local. */
void cecl_boxes_give_up(struct cecl_oob *oob);

/* Rank `rank` of the old communicator takes no part in the use of the boxes that `token` names, because
 * of the last message. Members that wait for it then fail, as they do when it gives up. Every rank of
 * the old communicator must have ended what it did with this rank before. Local. */
void cecl_boxes_leave(void *memory, int nranks, int rank, uint64_t token);

#endif
