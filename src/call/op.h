/* A row of the table of public calls: what distinguishes one collective from the others. All other
 * files work from these fields and name no collective. The table itself is in comm/ops.c, because
 * it names lowerings. */
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

/* Calls in which only two ranks take part: this one, and call->root. */
enum cecl_pair_op { CECL_NO_PAIR, CECL_PAIR_SENDS, CECL_PAIR_RECEIVES };

struct cecl_op {
    const char *name; /* of the public function, for messages and traces */
    const char *noun; /* "all-gather", for printed plans and messages */
    bool reduces;     /* blocks of all ranks become one, by arithmetic */
    bool each;        /* a rank has a block of its own for each rank, not one block for all */
    bool rooted;      /* has a root */
    /* Only a rank itself knows what it passes: counts, offsets, and whether its own block is in
     * place (no other block may be). */
    bool per_rank;
    bool always;        /* the call has an effect even without bytes */
    bool moves_nothing; /* the call has no buffers */
    bool recv_anywhere; /* no peer writes to recvbuff, so it may be memory that none reaches */
    bool carries; /* within this rank, by the part of the next rank's staging that is its own */
    enum cecl_pair_op pair; /* ranks make no plan of such a call together: see comm/pairs.h */
    /* under CECL_CHECK ranks compare where they believe their blocks belong */
    bool compares_places;
    /* For calls at which ranks exchange where their blocks belong: the name of that exchange in a
     * trace, and the call that may be in a group instead. NULL: ranks do not exchange that. */
    const char *asks_places, *in_group;
    /* Whether a call may be small, and the device's name for that kind of small call. */
    bool may_be_small;
    enum cecl_small_kind small_kind;
    const char *count_name; /* under CECL_CHECK, what messages call its count; NULL: count */

    /* Makes a description from arguments: fills in `call`, or refuses and names the argument. NULL:
     * the row is the whole description. */
    ceclResult_t (*describe)(const struct cecl_scope *scope, const struct cecl_args *args,
                             struct cecl_call *call);
    /* Defines the collective, block by block. NULL: the row makes no plan. */
    struct cecl_block (*block)(const struct cecl_call *call, int from, int to);
    /* Chooses the way from the tuning table. It depends on nothing that may differ between ranks.
     * NULL: there is one way. */
    void (*choose)(const struct cecl_call *call, const struct cecl_means *means,
                   struct cecl_way *way);
    /* Makes a plan from a call and its way. Pure. */
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
    CECL_OP_CARRY, /* the library's own: see comm/carry.h */
    CECL_OP_SEND,  /* from here on: calls that make no plan of a struct cecl_plan */
    CECL_OP_RECV,
    CECL_OP_MEM_ALLOC, /* from here on: ranks compare these calls */
    CECL_OP_MEM_FREE,
    CECL_OP_GROUP_END,
    CECL_OP_COUNT
};
extern const struct cecl_op cecl_ops[CECL_OP_COUNT];

#endif
