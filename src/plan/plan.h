/* A plan: what one rank does in one collective call, as data.
 *
 * Addresses are symbolic (rank, window, offset) until the executor binds them, so plans are
 * compared, printed and verified without
 * a device. A plan knows no CUDA and no executor; nothing here moves a byte. */
#ifndef CECL_PLAN_PLAN_H
#define CECL_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "util/error.h"

#define CECL_MAX_RANKS 1024

/* The memory that a call touches. Offset 0 is the buffer's (not the pool's) first byte. */
enum cecl_window {
    CECL_WINDOW_SEND,    /* sendbuff; in place: not used, RECV stands for both */
    CECL_WINDOW_RECV,    /* recvbuff, symmetric */
    CECL_WINDOW_STAGING, /* the communicator's own symmetric staging area */
    CECL_WINDOW_COUNT
};

/* A plan of several calls (a group) has windows for each: call i's are CECL_WINDOW_COUNT * i further
 * on, but all share the staging of call 0. */
#define CECL_GROUP_MAX 4096
static inline uint16_t cecl_window_of(enum cecl_window window, uint32_t part)
{
    return (uint16_t)(window == CECL_WINDOW_STAGING ? window : window + CECL_WINDOW_COUNT * part);
}

/* A place in memory. */
struct cecl_place {
    uint64_t offset; /* bytes into the window; 64 bits: a window may pass 4 GiB */
    uint16_t window; /* cecl_window_of */
    uint16_t rank;   /* whose, [0, nranks) */
};

/* Contiguous bytes, or rows of them at a pitch. */
struct cecl_copy {
    struct cecl_place dst, src;
    uint64_t bytes;                /* of a row; >= 1 */
    uint64_t rows;                 /* >= 1 */
    uint64_t dst_pitch, src_pitch; /* from one row to the next, bytes; of no meaning with one row */
};
/* Bytes from the first of `rows` rows to the end of the last. */
static inline uint64_t cecl_rows_extent(uint64_t bytes, uint64_t rows, uint64_t pitch)
{
    return (rows - 1) * pitch + bytes;
}

/* Elements of several ranks become one: dst[i] = src[0][i] op src[1][i] ..., in that order. The call
 * of dst's part tells type and operation. */
struct cecl_reduce {
    struct cecl_place dst;
    uint64_t bytes;       /* of dst and of each source; whole elements, >= 1 */
    uint32_t first, nsrc; /* plan->sources [first, first + nsrc); one may be dst, to the byte */
};

/* Where steps run: the main lane is the caller's stream, the side lane one of the communicator's
 * own. */
enum { CECL_LANE_MAIN, CECL_LANE_SIDE, CECL_LANES };

/* One thing this rank does; steps of one lane run in order, and lanes know nothing of each other but
 * by AFTER. SIGNAL and WAIT are the two halves of an exchange of flags: every rank has, for each
 * lane, one flag word from every peer, which only grows, so "that lane of peer has come to phase p of
 * this call" is one comparison. */
enum cecl_step_kind {
    /* tell `peer` that this lane has come to `phase`; its earlier steps are visible to it then */
    CECL_STEP_SIGNAL,
    CECL_STEP_WAIT,   /* until lane `first` of `peer` has come to `phase` */
    CECL_STEP_COPY,   /* copies [first, first + count), one batch: no order among them */
    CECL_STEP_REDUCE, /* reductions [first, first + count), no order among them */
    CECL_STEP_AFTER /* until lane `first` of this rank has done all of its steps that stand before */
};
struct cecl_step {
    uint8_t kind;   /* enum cecl_step_kind */
    uint8_t lane;   /* that does it */
    uint16_t peer;  /* SIGNAL, WAIT */
    uint32_t phase; /* SIGNAL, WAIT: 1 .. plan->phases, or plan->side_phases */
    uint32_t first; /* COPY, REDUCE; WAIT, AFTER: a lane */
    uint32_t count; /* COPY, REDUCE: >= 1 */
};
_Static_assert(sizeof(struct cecl_step) == 16, "plans are cached: grow a step only on purpose");

enum cecl_direction { CECL_PUSH, CECL_PULL };

/* The shape of strided blocks, in bytes and equal on all ranks: each is `rows` rows of `width`, which
 * lie a pitch apart, and from one block to the next it is a stride. */
struct cecl_shape {
    uint64_t
        width; /* 0: blocks are contiguous, one behind the other, and nothing else here counts */
    uint64_t rows;
    uint64_t send_pitch, send_stride; /* the stride: of an all-to-all */
    uint64_t recv_pitch, recv_stride;
};

/* What the caller chose for a call, equal on all ranks. */
struct cecl_choice {
    uint8_t sm_policy; /* ceclSmPolicy_t */
    uint8_t direction; /* ceclDirection_t */
    uint16_t max_sms;  /* of any kernel; 0: by measurement */
};

/* What is to be lowered: everything a plan depends on. */
struct cecl_call {
    ceclOp_t op;
    int nranks;
    int rank;
    uint64_t
        /* one block: what a rank contributes to an all-gather, or sends to one peer of an
         * all-to-all; >= 1 */
        bytes;
    /* Where blocks differ, else NULL: see plan/layout.h. `bytes` is then the largest size of an
     * all-gather, and of no account to an all-to-all. The caller's, as long as the plan is looked
     * at. */
    const uint64_t *layout;
    struct cecl_shape shape; /* of strided blocks; `bytes` is then width * rows */
    bool in_place; /* of an all-to-all with a layout: this rank's own block stays where it is */
    enum cecl_direction direction; /* equal on all ranks */
    bool no_sm;                    /* equal on all ranks: nothing is copied within one GPU */
    bool side_copy;                /* where it is: on the side lane, beside what is pushed */
    /* Equal on all ranks, a fact and no choice: what this call would copy within one GPU is copied
     * there by a copy engine, seen when the communicator was made. */
    bool engine_copies_locally;
    uint64_t piece_worth; /* equal on all ranks: see cecl_pieces_of */
    /* Equal on all ranks. Of an all-gather to which one rank contributes: rounds in which its block
     * goes in pieces that peers pass on; 0: it goes whole. */
    uint64_t spread;
    uint64_t staging_offset; /* this call's share of the STAGING window, on each rank */
    uint64_t staging_bytes;
    /* Of a reduction, equal on all ranks. Its blocks are `bytes` large, the last ones of an
     * all-reduce or a reduce less or nothing: all of them together have `total`. */
    uint64_t total;
    uint32_t element;  /* bytes */
    uint8_t type;      /* ceclDataType_t */
    uint8_t red_op;    /* ceclRedOp_t */
    int root;          /* of a reduce */
    bool peers_read;   /* SMs read inputs at the peers; before cecl_tune: whether they could */
    bool urgent;       /* kernels come before others that wait for an SM */
    bool sms_send;     /* and write what they reduced at the peers: an all-reduce; */
    uint64_t sms_end;  /* or the last so many bytes of a block alone, 0: none */
    uint64_t chunk;    /* bytes of a block at a time, where it goes in chunks: cecl_tune */
    uint64_t halved;   /* the last of them is halved into parts of no less; 0: it is not */
    uint64_t one_shot; /* an all-reduce of no more bytes: everyone reduces all */
    uint32_t max_sms;  /* 0: the device's default */
    uint64_t bulk_min; /* kernels read sources of so many bytes by bulk copies */
    /* Equal on all ranks: by one exchange through slots, which lie in the STAGING window behind all
     * staging: [2 turns][nranks senders] of CECL_SLOT_FACTOR * slot_bytes. */
    bool small;
    uint8_t turn; /* 0 or 1: another one than that of the small call before */
    uint64_t slots_offset, slot_bytes;
};
#define CECL_SMALL_RANKS 16 /* at most */
#define CECL_SLOT_FACTOR 2  /* on a GPU flags stand between data; the shortest slots need this */
static inline bool cecl_op_reduces(ceclOp_t op)
{
    return op >= ceclOpReduceScatter;
}

/* What a small call sends to each peer. */
static inline uint64_t cecl_small_bytes(const struct cecl_call *call)
{
    return call->op == ceclOpAllReduce ? call->total : call->bytes;
}

/* What rank r contributes to an all-gather, and where that lies in recvbuff. */
static inline uint64_t cecl_block_bytes(const struct cecl_call *call, int rank)
{
    return call->layout ? call->layout[rank] : call->bytes;
}
static inline uint64_t cecl_block_offset(const struct cecl_call *call, int rank)
{
    if (call->layout)
        return call->layout[call->nranks + rank];
    return (uint64_t)rank * (call->shape.width ? call->shape.recv_stride : call->bytes);
}
/* Where the block for `rank` lies in the sendbuff of an all-to-all. */
static inline uint64_t cecl_send_offset(const struct cecl_call *call, int rank)
{
    return (uint64_t)rank * (call->shape.width ? call->shape.send_stride : call->bytes);
}
/* Where byte `at` of a block lies, from its first on; `pitch`: of its rows, where it has any. */
static inline uint64_t cecl_offset_within(const struct cecl_call *call, uint64_t pitch, uint64_t at)
{
    const uint64_t width = call->shape.width;
    return width ? at / width * pitch + at % width : at;
}

struct cecl_plan {
    struct cecl_call call;   /* the first */
    struct cecl_call *parts; /* [nparts] all calls of a group; NULL: `call` is the only one */
    uint32_t nparts;
    struct cecl_step *steps;
    struct cecl_copy *copies;
    struct cecl_reduce *reductions;
    struct cecl_place *sources; /* of reductions */
    uint32_t nsteps, steps_capacity;
    uint32_t ncopies, copies_capacity;
    uint32_t nreductions, reductions_capacity;
    uint32_t nsources, sources_capacity;
    uint32_t phases;      /* how far flags of the main lane advance in this call, */
    uint32_t side_phases; /* and those of the side lane; both equal on all ranks */
    uint8_t lane;         /* builder's: that the next steps run on */
    uint32_t open_batch;  /* builder's: index of the COPY step being filled + 1; 0: none */
    bool failed;          /* builder's: out of memory on the way */
    char path[64];        /* for ceclExplain: "push, one batch" */
    char reason[192];     /* for ceclExplain */
};

/* -- building; a failed allocation is remembered and returned by cecl_plan_finish -- */
void cecl_plan_init(struct cecl_plan *plan, const struct cecl_call *call);
/* Signals / waits for one peer. */
void cecl_plan_signal(struct cecl_plan *plan, int peer, uint32_t phase);
void cecl_plan_wait(struct cecl_plan *plan, int peer, uint32_t phase);
void cecl_plan_wait_lane(struct cecl_plan *plan, int peer, int lane, uint32_t phase);
/* Opens a new phase of the current lane and signals all peers; it. Peers in rotated order (rank+1,
 * rank+2, ...). */
uint32_t cecl_plan_signal_all(struct cecl_plan *plan);
/* Waits for a lane of all peers. */
void cecl_plan_wait_all(struct cecl_plan *plan, int lane, uint32_t phase);
/* Both, on the main lane: a barrier. */
void cecl_plan_barrier(struct cecl_plan *plan);
/* The steps that follow run on `lane`. */
void cecl_plan_on(struct cecl_plan *plan, int lane);
/* The current lane goes on once the other one has come to here. */
void cecl_plan_after_other(struct cecl_plan *plan);
/* A reduction, a step by itself: of nsrc places, in that order. */
void cecl_plan_reduce(struct cecl_plan *plan, struct cecl_place dst, const struct cecl_place *src,
                      uint32_t nsrc, uint64_t bytes);
/* Adds a copy to the open batch; signal, wait and barrier close it, and so does
 * cecl_plan_close_batch. */
void cecl_plan_copy(struct cecl_plan *plan, struct cecl_place dst, struct cecl_place src,
                    uint64_t bytes);
/* Likewise rows: dst and src say where the first is. */
void cecl_plan_copy_rows(struct cecl_plan *plan, const struct cecl_copy *copy);
void cecl_plan_close_batch(struct cecl_plan *plan);
/* Several calls as one: between two barriers stand the copies of all that stand there in the plan of
 * each, first batches with first ones. The plans are of one rank, each of barriers and copies; they stay the caller's. */
ceclResult_t cecl_plan_merge(const struct cecl_plan *plans, uint32_t nplans,
                             struct cecl_plan *merged);
/* Adds all that `other` does, as part `part` of a group, behind what stands here. */
void cecl_plan_append(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part);
/* ceclOutOfMemory if any step was lost; the plan is then freed. */
ceclResult_t cecl_plan_finish(struct cecl_plan *plan);
/* Frees and zeroes; a zeroed plan may be freed. */
void cecl_plan_free(struct cecl_plan *plan);

/* -- reading -- */
static inline uint32_t cecl_plan_parts(const struct cecl_plan *plan)
{
    return plan->parts ? plan->nparts : 1;
}
static inline const struct cecl_call *cecl_plan_part(const struct cecl_plan *plan, uint32_t part)
{
    return plan->parts ? &plan->parts[part] : &plan->call;
}
/* Which part a copy belongs to: one end of it at least is in that part's buffers, or it is part 0. */
static inline uint32_t cecl_copy_part(const struct cecl_copy *copy)
{
    const uint32_t dst = copy->dst.window / CECL_WINDOW_COUNT,
                   src = copy->src.window / CECL_WINDOW_COUNT;
    return dst > src ? dst : src;
}
/* Which part a reduction belongs to: its sources are never all in staging. */
uint32_t cecl_reduce_part(const struct cecl_plan *plan, const struct cecl_reduce *reduce);
/* Copies within one rank's memory, */
uint32_t cecl_plan_local_copies(const struct cecl_plan *plan);
/* and those of them that need an SM: all, where no copy engine was seen to run them. */
bool cecl_copy_needs_sm(const struct cecl_plan *plan, const struct cecl_copy *copy);
uint32_t cecl_plan_sm_copies(const struct cecl_plan *plan);
uint64_t cecl_plan_bytes(const struct cecl_plan *plan); /* that this rank's copies move */
const char *cecl_op_name(ceclOp_t op);
/* One line a step; for CECL_DEBUG=PLAN and for people. */
void cecl_plan_print(const struct cecl_plan *plan, FILE *out);

#endif
