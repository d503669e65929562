/* A row of the table of public calls: the properties in which collectives differ. All other files use a row's family
 * and fields, and name no collective. The table itself is in launch/ops.c, as is the table of lowerings. */
#ifndef CECL_PLAN_OP_H
#define CECL_PLAN_OP_H

#include <stdbool.h>

#include "sm/small.h"
#include "util/error.h"

struct cecl_args;
struct cecl_block;
struct cecl_call;
struct cecl_means;
struct cecl_part;
struct cecl_plan;
struct cecl_scope;
struct cecl_way;

/* What a call does with blocks. Each family has one function that chooses a way, and one lowering. */
enum cecl_family {
    CECL_FAMILY_NONE,       /* moves no blocks, but ranks may compare the call */
    CECL_FAMILY_GATHERED,   /* one block from a rank to all ranks */
    CECL_FAMILY_EXCHANGED,  /* a block from each rank to each rank, all of one size */
    CECL_FAMILY_AT_ROOT,    /* a block between the root and each rank */
    CECL_FAMILY_OWN_LAYOUT, /* blocks by a layout that differs between ranks */
    CECL_FAMILY_REDUCTION,  /* arithmetic makes one block out of the blocks of all ranks */
    CECL_FAMILY_BARRIER,    /* ranks only meet; the call has no buffers */
    CECL_FAMILY_SPLITS,     /* rows for each rank, counted only on the device */
    /* a copy within this rank; without SMs, by way of a part of the next rank's staging that only this rank uses */
    CECL_FAMILY_CARRY,
    /* a block between this rank and call->root. Each of the two makes its own plan: see launch/messages.h */
    CECL_FAMILY_MESSAGE,
    CECL_FAMILIES
};

/* Which ranks get a rank's input. ALL: all ranks get the same block; EACH: each rank gets a block of its own; ROOT,
 * PEER: only the root or the peer gets a block. In a reduction: which ranks get the result, or a block of it. */
enum cecl_to { CECL_TO_NONE, CECL_TO_ALL, CECL_TO_EACH, CECL_TO_ROOT, CECL_TO_PEER };

struct cecl_op {
    const char *name; /* the public function's name, for messages and NVTX ranges */
    const char *noun; /* "all-gather", for printed plans and messages */
    enum cecl_family family;
    enum cecl_to to;
    bool rooted; /* the call has a root */
    /* Not NULL if an exchange precedes the call, in which receivers tell senders where blocks belong. `asks_places` is
     * the exchange's name in NVTX ranges, `in_group` the call that a program must make in a group instead. */
    const char *asks_places, *in_group;
    /* Whether a call may be small, and if so, which kind of small call it is. */
    bool may_be_small;
    enum cecl_small_kind small_kind;
    /* CECL_FAMILY_SPLITS: rows go to experts or come back from them (`has_experts`); they come back (`goes_back`) */
    bool has_experts, goes_back;
    bool has_tiles;         /* CECL_FAMILY_REDUCTION: the input is tiles; see plan/block.h */
    bool widens;            /* CECL_FAMILY_REDUCTION: sums fp16 or bf16 to fp32; never in place */
    const char *count_name; /* what error messages call `count`; NULL: "count" */

    /* Makes a description from arguments: fills in `call`, or returns an error that names the argument. NULL: the call
     * has no further arguments. */
    ceclResult_t (*describe)(const struct cecl_scope *scope, const struct cecl_args *args,
                             struct cecl_call *call);
    /* Defines the collective, block by block. NULL: the row makes no plan. */
    struct cecl_block (*block)(const struct cecl_call *call, int from, int to);
};

/* How calls of a family become plans. */
struct cecl_lowering {
    /* Chooses the way from the tuning table, by facts that are equal on all ranks. NULL: there is only one
     * way. */
    void (*choose)(const struct cecl_call *call, const struct cecl_means *means,
                   struct cecl_way *way);
    /* Makes a plan from a call and its way. Pure. NULL: the family makes no plan. */
    ceclResult_t (*lower)(const struct cecl_part *part, struct cecl_plan *plan);
};
extern const struct cecl_lowering cecl_lowerings[CECL_FAMILIES];

/* The rows, in the order of the table. */
enum cecl_op_index {
    CECL_OP_ALL_GATHER,
    CECL_OP_ALL_GATHER_STRIDED,
    CECL_OP_ALL_GATHERV,
    CECL_OP_BROADCAST,
    CECL_OP_ALL_TO_ALL,
    CECL_OP_ALL_TO_ALL_STRIDED,
    CECL_OP_ALL_TO_ALLV,
    CECL_OP_ALL_TO_ALLV_AT,
    CECL_OP_GATHER,
    CECL_OP_SCATTER,
    CECL_OP_REDUCE_SCATTER,
    CECL_OP_ALL_REDUCE,
    CECL_OP_REDUCE,
    CECL_OP_BARRIER,
    CECL_OP_REDUCE_SCATTER_TILES,
    CECL_OP_REDUCE_SCATTER_AS,
    CECL_OP_ALL_TO_ALLV_DEVICE,
    CECL_OP_DISPATCH,
    CECL_OP_COMBINE,
    CECL_OP_CARRY, /* made only by the library itself: see launch/carry.c */
    CECL_OP_SEND,  /* from here on: calls of two ranks */
    CECL_OP_RECV,
    CECL_OP_MEM_ALLOC, /* from here on: calls that ranks only compare */
    CECL_OP_MEM_FREE,
    CECL_OP_GROUP_END,
    CECL_OP_COUNT
};
extern const struct cecl_op cecl_ops[CECL_OP_COUNT];

/* -- questions about a row -- */

/* Whether only a rank's own block can be in place; then only that rank knows whether it is. Such a call has both
 * buffers even in place. */
static inline bool cecl_op_has_both_buffers(const struct cecl_op *op)
{
    return op->family == CECL_FAMILY_AT_ROOT || op->family == CECL_FAMILY_OWN_LAYOUT ||
           op->family == CECL_FAMILY_CARRY;
}

/* Whether the call has an effect even if its `bytes` are 0. */
static inline bool cecl_op_always(const struct cecl_op *op)
{
    return op->family == CECL_FAMILY_OWN_LAYOUT || op->family == CECL_FAMILY_BARRIER ||
           op->family == CECL_FAMILY_SPLITS || op->family == CECL_FAMILY_MESSAGE;
}

static inline bool cecl_op_reduces_to(const struct cecl_op *op, enum cecl_to to)
{
    return op->family == CECL_FAMILY_REDUCTION && op->to == to;
}

/* Whether peers write to a collective's recvbuff. If not, a private recvbuff needs no bounce buffer. */
static inline bool cecl_op_peers_write(const struct cecl_op *op)
{
    return op->family != CECL_FAMILY_MESSAGE && op->family != CECL_FAMILY_BARRIER &&
           !cecl_op_reduces_to(op, CECL_TO_EACH);
}

#endif
