/* A bound plan: the plan's copies and flags with addresses, ready for the device. Internal to
 * src/ce. */
#ifndef CECL_CE_BOUND_H
#define CECL_CE_BOUND_H

#include "ce/engine.h"

/* A command is a stretch of work of one kind. One call to the device issues it. */
enum cecl_command_kind {
    CECL_COMMAND_MEMOPS,
    CECL_COMMAND_COPIES,
    CECL_COMMAND_ROWS,
    /* Copies of flags of one phase. A batch has no order, and a peer must not see a later phase
     * before an earlier one. */
    CECL_COMMAND_FLAGS,
    CECL_COMMAND_REDUCTIONS,
    CECL_COMMAND_AFTER, /* its lane waits for the other lane */
    CECL_COMMAND_SMALL  /* bound->small */
};
struct cecl_command {
    uint8_t kind;
    uint8_t lane; /* the lane on which it is issued */
    bool urgent;  /* REDUCTIONS: issued on the side lane's stream */
    /* MEMOPS: the lane whose flags these are; one command has flags of one lane */
    uint8_t flags;
    uint32_t first, count; /* in ops, rows, reductions, or batch */
    uint32_t phase;        /* FLAGS */
};

struct cecl_bound {
    struct cecl_call *calls; /* [ncalls] the descriptions; also the key in the cache */
    uint64_t *layouts;       /* the layouts of these calls */
    uint32_t ncalls;
    uint32_t signature;    /* of these calls: cecl_calls_signature */
    struct cecl_told told; /* also a part of the key; its arrays are these: */
    struct cecl_peer_buffer *buffers;
    uint64_t *send_at, *outside;
    /* of the memory (cecl_engine_generation) when the calls' buffers were last checked */
    uint64_t generation;
    struct cecl_imports imports; /* the peers' windows that it uses */
    struct cecl_advance advance; /* by how much this call moves the flags */
    uint32_t ncommands, nops, ncopies, nrows, nreductions;
    struct cecl_command *commands;
    struct cecl_memop *ops;
    struct cecl_batch batch;    /* the contiguous copies of all commands */
    struct cecl_row_copy *rows; /* the copies of rows of all commands */
    struct cecl_reduction *reductions;
    const void **sources; /* of all reductions */
    /* [nreductions] used by reductions whose kernels exchange flags */
    struct cecl_meeting *meetings;
    void **also; /* further places to which reductions write */
    uint32_t nalso;
    struct cecl_half_place *halves; /* the pointers into host memory in `batch` */
    uint32_t nhalves;
    /* Places in these arrays, and in `small`, whose values differ from call to call. */
    struct cecl_patch *patches;
    uint32_t npatches;
    struct cecl_small small; /* used for a small call on a device that has_small */
    struct cecl_meeting small_meeting;
    ceclExplanation_t explanation;
};

/* bind.c: cecl_bound_new allocates all that `plan` can need, or returns NULL. cecl_bind_plan fills
 * it, once bound->calls are set. */
struct cecl_bound *cecl_bound_new(const struct cecl_plan *plan, uint32_t ncalls);
ceclResult_t cecl_bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                            struct cecl_bound *bound);
void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* bind.c: lists a word of the bound plan whose value depends on the flags. */
void cecl_bound_patch(struct cecl_bound *bound, enum cecl_patch_kind kind, int lane, uint32_t phase,
                      uint32_t *word);

/* bind_small.c: fills in bound->small, for the only call of the plan. */
void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound);

/* fuse.c: steps that one kernel does: a reduction, and the signals to and waits for all peers
 * around it. */
struct cecl_fused {
    uint32_t count;       /* how many steps, with the first one */
    uint32_t at;          /* which of them is the reduction */
    bool sends;           /* whether the step after it is copies of its result */
    uint32_t does;        /* CECL_MEET_... bits */
    uint32_t first, last; /* phases of the flags before and behind the reduction */
};
/* Finds the steps that one kernel can do from step `at` of the plan on. False: there are none. */
bool cecl_fuse(const struct cecl_plan *plan, uint32_t at, struct cecl_fused *fused);

#endif
