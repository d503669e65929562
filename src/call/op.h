/* A row of the table of public calls: what distinguishes one collective from the others. All else in
 * the tree works from these fields and names no collective. The table itself, which names lowerings,
 * is in comm/ops.c. */
#ifndef CECL_CALL_OP_H
#define CECL_CALL_OP_H

#include <stdbool.h>
#include <stdint.h>

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

struct cecl_op {
    const char *name; /* the public function's: messages, traces */
    const char *noun; /* "all-gather": printed plans, messages */
    bool reduces;     /* blocks of all ranks become one, by arithmetic */
    bool each;        /* a rank has a block of its own for each rank, not one for all */
    bool rooted;      /* has a root */
    /* What a rank passes is known to it alone: counts, places, and whether its own block is in place
     * (the only one that may be). */
    bool per_rank;
    bool always;          /* has an effect without bytes, too */
    bool moves_nothing;   /* has no buffers */
    bool recv_anywhere;   /* recvbuff may be private memory: no peer writes to it */
    bool compares_places; /* under CECL_CHECK ranks compare where they think that blocks belong */
    /* Ranks tell each other where their blocks belong, at each call: what a trace calls that, and which
     * call may stand in a group instead. NULL: they do not. */
    const char *asks_places, *in_group;
    /* Whether a call may be small, and how the device's operation for small calls names it. */
    bool may_be_small;
    enum cecl_small_kind small_kind;
    /* Under CECL_CHECK: what is called its count, and where its recvbuff lies. NULL: just that. */
    const char *count_name, *place_name;

    /* From arguments to a description: fills in `call`, or refuses, naming the argument. NULL: there is
     * nothing to describe but the row. */
    ceclResult_t (*describe)(const struct cecl_scope *scope, const struct cecl_args *args,
                             struct cecl_call *call);
    /* What the collective means, block by block. NULL: the row makes no plan. */
    struct cecl_block (*block)(const struct cecl_call *call, int from, int to);
    /* How it goes, from the tuning table. Depends on nothing in which ranks may differ. NULL: there is
     * one way. */
    void (*choose)(const struct cecl_call *call, const struct cecl_means *means,
                   struct cecl_way *way);
    /* From a call and its way to a plan; pure. */
    ceclResult_t (*lower)(const struct cecl_part *part, struct cecl_plan *plan);
};

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
    CECL_OP_MEM_ALLOC, /* from here on: compared among ranks, and no plans */
    CECL_OP_MEM_FREE,
    CECL_OP_GROUP_END,
    CECL_OP_COUNT
};
extern const struct cecl_op cecl_ops[CECL_OP_COUNT];

#endif
