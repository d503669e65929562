/* A bound plan: the plan's copies and flags with addresses, ready for the device. Internal to src/ce. */
#ifndef CECL_CE_BOUND_H
#define CECL_CE_BOUND_H

#include "ce/engine.h"

/* A command: work of one kind on one lane. One call to the device issues a command, or a single reduction of it. */
enum cecl_command_kind {
    CECL_COMMAND_MEMOPS,
    CECL_COMMAND_COPIES,
    CECL_COMMAND_ROWS,
    /* Copies of flags of one counter and phase. Each phase has a batch of its own: a batch has no order, and a peer
     * must not see a later phase before an earlier one. */
    CECL_COMMAND_FLAGS,
    CECL_COMMAND_REDUCTIONS,
    CECL_COMMAND_AFTER, /* the command's lane waits for lane `first` */
    CECL_COMMAND_SMALL, /* bound->small */
    CECL_COMMAND_SPLITS /* bound->splits[first] */
};
struct cecl_command {
    uint8_t kind;
    uint8_t lane;          /* the command's lane */
    bool urgent;           /* REDUCTIONS: issued on the side lane's stream */
    uint8_t counter;       /* FLAGS */
    uint32_t first, count; /* the command's items, in one of the arrays below */
    uint32_t phase;        /* FLAGS */
};

/* Both ends of a message or one-sided copy, as addresses of this rank. */
struct cecl_ends {
    void *here, *there;
};

struct cecl_bound {
    /* the plan's calls, and what ranks have told each other about these calls; used only while binding */
    const struct cecl_call *calls;
    const struct cecl_told *told;
    struct cecl_advance advance; /* how far the call advances the counters */
    /* -- counts of arrays, then the arrays, which lie in `memory` and are large enough for the plan -- */
    uint32_t ncommands, nops, ncopies, nrows, nreductions, nalso, nsplits, ncells;
    struct cecl_command *commands;
    struct cecl_memop *ops;
    struct cecl_batch batch;    /* the contiguous copies of all commands */
    struct cecl_row_copy *rows; /* the copies of rows of all commands */
    struct cecl_reduction *reductions;
    const void **sources; /* the sources of all reductions */
    /* [nreductions] for reductions whose kernels signal and wait */
    struct cecl_meeting *meetings;
    struct cecl_splits *splits; /* the steps of a call by splits on the device */
    void **also;                /* further places to which reductions write */
    /* the words in these arrays and in `small` that are filled in at each issue */
    struct cecl_cell *cells;
    void *memory;           /* -- end of the arrays -- */
    uint32_t steps, copies; /* how many steps and copies of a plan have room in `memory` */
    int nlanes;             /* highest lane of a command, plus 1 */
    /* both ends of each message or one-sided copy; NULL: places come from `told` */
    const struct cecl_ends *ends;
    /* the values of cells with CECL_CELL_GIVEN, set when the plan is issued */
    const uint64_t *given;
    struct cecl_small small; /* used for a small call */
    struct cecl_meeting small_meeting;
    struct cecl_counting counting; /* used if the plan is a captured call that is one kernel */
};

/* bound.c: allocates a bound plan with room for all that `plan` can need, or returns NULL. cecl_bind_plan fills
 * it once bound->calls and bound->told are set. */
struct cecl_bound *cecl_bound_new(const struct cecl_plan *plan);
/* bound.c: empties a bound plan, and makes room for all that `plan` can need. Allocates nothing if the plan has no
 * kernels, no copies of rows, and at most as many steps and copies as an earlier plan. `bound` may be zeroed. */
ceclResult_t cecl_bound_reserve(struct cecl_bound *bound, const struct cecl_plan *plan);
/* bound.c: adds a command. `first` is the index of the command's first item, or the lane that the command follows. */
struct cecl_command *cecl_bound_command(struct cecl_bound *bound, enum cecl_command_kind kind,
                                        uint8_t lane, uint32_t first);
/* A long call writes `done` each time it has passed this many phases. A flag has 16 bits of its epoch: if `done` were
 * 32,768 phases (half a cycle) behind the flags, a comparison could not tell that the call has begun. */
#define CECL_PHASES_A_MARK 4096u

ceclResult_t cecl_bind_plan(const struct cecl_engine *engine, const struct cecl_plan *plan,
                            struct cecl_bound *bound);

/* run.c: enqueues a bound plan whose cells are already filled, with `work` as the main lane, or adds the plan to the
 * graph that `work` captures. Cells with fixed values need not be filled again before another run. */
ceclResult_t cecl_bound_issue(const struct cecl_engine *engine, const struct cecl_bound *bound,
                              ceclStream_t work, bool is_captured);

/* bind.c: makes a cell of a word: at each issue the word gets the value that stands for +k (struct cecl_counter). */
void cecl_bound_value(const struct cecl_engine *engine, struct cecl_bound *bound, uint32_t counter,
                      uint32_t k, uint32_t *word);

/* bind_address.c: the address at which this rank reaches `bytes` bytes at a place. Waits until new memory of
 * a peer is imported. */
ceclResult_t cecl_bound_address(const struct cecl_engine *engine, const struct cecl_bound *bound,
                                const struct cecl_place *place, uint64_t bytes, char **address);

/* bind_address.c: the words by which a kernel on `lane` exchanges flags with the kernels of other ranks. The caller
 * fills in what the kernel does, and the values. */
struct cecl_meeting cecl_bound_meeting(const struct cecl_flags *flags, int lane);
/* As cecl_bound_meeting, for a captured call that is one kernel. The kernel also counts its runs, and writes to
 * flags->replay that it is running. `number` is the call's number among the communicator's captured calls. */
struct cecl_meeting cecl_bound_captured(const struct cecl_flags *flags, enum cecl_numbering kind,
                                        uint32_t number, struct cecl_counting *counting);

/* bind_small.c: fills in bound->small, for the only call of the plan. */
void cecl_bind_small(const struct cecl_engine *engine, const struct cecl_plan *plan,
                     struct cecl_bound *bound);

/* bind_splits.c: binds a step of the only call of the plan. */
ceclResult_t cecl_bind_splits(const struct cecl_engine *engine, const struct cecl_plan *plan,
                              const struct cecl_step *step, struct cecl_bound *bound);

/* fuse.c: consecutive steps that one kernel carries out: a reduction, with signals to all peers and waits for all peers
 * before and after it. */
struct cecl_fused {
    uint32_t count;       /* number of steps, including the first one */
    uint32_t at;          /* index of the reduction among these steps */
    bool sends;           /* the kernel also carries out the next step, which copies the result */
    uint32_t does;        /* CECL_MEET_... bits */
    uint32_t first, last; /* the phases of the flags before and after the reduction */
};
/* bind_reduce.c: cecl_bind_reductions binds a step of reductions, cecl_bind_fused a reduction whose kernel also signals
 * and waits. */
ceclResult_t cecl_bind_reductions(const struct cecl_engine *engine, const struct cecl_plan *plan,
                                  const struct cecl_step *step, struct cecl_bound *bound);
ceclResult_t cecl_bind_fused(const struct cecl_engine *engine, const struct cecl_plan *plan,
                             const struct cecl_fused *fused, const struct cecl_step *first,
                             struct cecl_bound *bound);
static inline bool cecl_plan_is_captured(const struct cecl_plan *plan)
{
    return cecl_plan_part(plan, 0)->call.captured != 0;
}
/* Finds which steps, beginning with step `at`, one kernel can carry out. Returns false if step `at` begins no
 * such steps. */
bool cecl_fuse(const struct cecl_plan *plan, uint32_t at, struct cecl_fused *fused);

/* Whether the nranks - 1 steps from `at` on differ only in their peers, which are rank + 1, rank + 2, ... */
bool cecl_is_for_all(const struct cecl_plan *plan, uint32_t at);
/* Whether one kernel can carry out the whole plan: a barrier, the reduction, and a barrier. The answer is equal on all
 * ranks. */
bool cecl_fuses_all(const struct cecl_plan *plan);

#endif
