/* A bound plan: the plan's copies and flags with addresses, ready to be handed to the device.
 * Internal to src/ce. */
#ifndef CECL_CE_BOUND_H
#define CECL_CE_BOUND_H

#include "ce/engine.h"

/* A stretch of one kind, issued by one call to the device. */
enum cecl_command_kind {
    CECL_COMMAND_MEMOPS,
    CECL_COMMAND_COPIES,
    CECL_COMMAND_ROWS,
    /* copies of flags of one phase: a batch has no order, and a peer must not see a later one first */
    CECL_COMMAND_FLAGS,
    CECL_COMMAND_REDUCTIONS,
    CECL_COMMAND_AFTER, /* its lane goes on after the other one */
    CECL_COMMAND_SMALL  /* bound->small */
};
struct cecl_command {
    uint8_t kind;
    uint8_t lane;          /* where it is issued */
    bool urgent;           /* REDUCTIONS: by way of the side lane's stream */
    uint8_t flags;         /* MEMOPS: whose lane's flags these are; one call to the device has
                            * those of one lane */
    uint32_t first, count; /* in ops, rows, reductions, or batch */
    uint32_t phase;        /* FLAGS */
};

struct cecl_bound {
    struct cecl_call *calls; /* [ncalls] also its key in the cache */
    uint64_t *layouts;       /* theirs */
    uint32_t ncalls;
    uint64_t generation;         /* of the pool when it was bound */
    struct cecl_advance advance; /* of the flags by this call */
    uint32_t ncommands, nops, ncopies, nrows, nreductions;
    struct cecl_command *commands;
    struct cecl_memop *ops;
    struct cecl_batch batch;    /* all copies of all commands, */
    struct cecl_row_copy *rows; /* and all of rows */
    struct cecl_reduction *reductions;
    const void **sources;          /* of reductions */
    struct cecl_meeting *meetings; /* [nreductions] those that some of them have */
    void **also;                   /* where reductions write, too */
    uint32_t nalso;
    /* Places in the arrays here, and in `small`, whose values differ from call to call. */
    struct cecl_patch *patches;
    uint32_t npatches;
    struct cecl_small small; /* a small call, on a device that has_small */
    struct cecl_meeting small_meeting;
    ceclExplanation_t explanation;
};

/* bind.c: room for all that `plan` can come to, or NULL; and filling it, once bound->calls are there. */
struct cecl_bound *cecl_bound_new(const struct cecl_plan *plan, uint32_t ncalls);
ceclResult_t cecl_bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                            struct cecl_bound *bound);
void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* bind.c: lists a word of the bound plan whose value follows from the flags. */
void cecl_bound_patch(struct cecl_bound *bound, enum cecl_patch_kind kind, int lane, uint32_t phase,
                      uint32_t *word);

/* bind_small.c: fills in bound->small, of its only call. */
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
