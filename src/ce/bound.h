/* A bound plan: the plan's copies and flags with addresses, ready to be handed to the device.
 * Internal to src/ce. */
#ifndef CECL_CE_BOUND_H
#define CECL_CE_BOUND_H

#include "ce/engine.h"

/* A stretch of one kind, issued by one call to the device. */
enum cecl_piece_kind {
    CECL_PIECE_MEMOPS,
    CECL_PIECE_COPIES,
    CECL_PIECE_ROWS,
    /* copies of the value of `phase`: their source is known when the call is issued */
    CECL_PIECE_FLAGS,
    CECL_PIECE_REDUCTIONS,
    CECL_PIECE_AFTER, /* its lane goes on after the other one */
    CECL_PIECE_SMALL  /* bound->small */
};
struct cecl_piece {
    uint8_t kind;
    uint8_t lane;          /* where it is issued */
    bool urgent;           /* REDUCTIONS: by way of the side lane's stream */
    uint8_t flags;         /* MEMOPS, FLAGS, REDUCTIONS: whose lane's flags these are */
    uint32_t first, count; /* in ops, rows, reductions, or batch */
    uint32_t phase;        /* FLAGS */
};

struct cecl_bound {
    struct cecl_request *requests; /* [nrequests] */
    uint64_t *layouts;             /* what they point to */
    uint32_t nrequests;
    uint64_t generation;         /* of the pool when it was bound */
    struct cecl_advance advance; /* of the flags by this call */
    uint32_t npieces, nops, ncopies, nrows, nreductions;
    struct cecl_piece *pieces;
    /* value: the phase; the call's first epoch is added when it is issued, and that is a flag's
     * value except for the engine's `done` */
    struct cecl_memop *ops;
    struct cecl_batch batch;    /* all copies of all pieces, */
    struct cecl_row_copy *rows; /* and all of rows */
    struct cecl_reduction *reductions;
    const void **sources; /* of reductions */
    /* [nreductions] those that some of them have; values: phases, as of ops */
    struct cecl_meeting *meetings;
    void **also; /* where reductions write, too */
    uint32_t nalso;
    struct cecl_small small; /* a small call, on a device that meets */
    struct cecl_meeting small_meeting;
    ceclExplanation_t explanation;
};

void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* bind_small.c: fills in bound->small, of its only request. */
void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound);

/* fuse.c: steps that one kernel does: a reduction, and signals and waits for all peers around it. */
struct cecl_fused {
    uint32_t count;       /* of steps, the first one included */
    uint32_t at;          /* which of them is the reduction, */
    bool sends;           /* and whether the next one is copies of its result */
    uint32_t does;        /* of CECL_MEET_... */
    uint32_t first, last; /* phases */
};
/* What begins at step `at` of the plan; false: nothing of the kind. */
bool cecl_fuse(const struct cecl_plan *plan, uint32_t at, struct cecl_fused *fused);

#endif
