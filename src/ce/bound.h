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
    uint64_t generation; /* of the pool when it was bound */
    uint32_t advance;    /* of the epoch by this call */
    uint32_t side_advance;
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
    bool is_small; /* its slots take turns; on a device that has_small, it is `small` */
    struct cecl_small small;
    struct cecl_meeting small_meeting;
    ceclExplanation_t explanation;
};

void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* bind_small.c: fills in bound->small, of its only request. */
void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound);

/* bind.c: the words by which kernels of a lane meet; what they do, and values, are the caller's. */
struct cecl_meeting cecl_bound_meeting(const struct cecl_engine *engine, int lane);

/* Words of kernels: how many bytes, and zeroed before any rank may write one. */
uint64_t cecl_pads_bytes(int nranks);
ceclResult_t cecl_pads_clear(const struct cecl_engine *engine);

/* Where kernels of a lane count their blocks: see struct cecl_meeting. */
uint32_t *cecl_pads_leaving(const struct cecl_engine *engine, int lane);
/* The word that is not 0 once the communicator has failed. */
uint32_t *cecl_pads_ended(const struct cecl_engine *engine);

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

/* The word at rank `holder` that a lane of rank `writer` writes. */
uint32_t *cecl_engine_flag(const struct cecl_engine *engine, int holder, int writer, int lane);
/* A word of this rank that holds a lane's flag of `epoch`. */
static inline void *cecl_engine_value(const struct cecl_engine *engine, int lane, uint32_t epoch)
{
    return (uint32_t *)cecl_pool_at(engine->pool, engine->rank, engine->values_offset) +
           (uint32_t)lane * CECL_FLAG_VALUES + epoch % CECL_FLAG_VALUES;
}

#endif
