/* A plan: what one rank does in one call, or in the calls of a group, as data.
 *
 * Places are symbolic (rank, area, offset) until binding makes them addresses, so plans are
 * compared, printed and verified without a device. A plan knows no CUDA and no engine; nothing here
 * moves a byte. */
#ifndef CECL_PLAN_PLAN_H
#define CECL_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "call/call.h"
#include "call/way.h"
#include "util/lane.h"

/* The memory that a call touches. Offset 0 is the buffer's (not its window's) first byte. */
enum cecl_area {
    CECL_AREA_SEND,    /* sendbuff; in place it is not used: RECV stands for both */
    CECL_AREA_RECV,    /* recvbuff */
    CECL_AREA_STAGING, /* the communicator's own symmetric buffer */
    CECL_AREA_COUNT
};

/* A plan of several calls (a group) has areas for each of them: those of call i are
 * CECL_AREA_COUNT * i further on. All calls share the staging of call 0. */
#define CECL_GROUP_MAX 4096
static inline uint16_t cecl_area_of(enum cecl_area area, uint32_t part)
{
    return (uint16_t)(area == CECL_AREA_STAGING ? area : area + CECL_AREA_COUNT * part);
}

/* A place in memory. */
struct cecl_place {
    uint64_t offset; /* bytes into the area; 64 bits: an area may pass 4 GiB */
    uint16_t area;   /* cecl_area_of */
    uint16_t rank;   /* whose it is, [0, nranks) */
};

/* Contiguous bytes, or rows of them at a pitch. */
struct cecl_copy {
    struct cecl_place dst, src;
    uint64_t bytes;                /* of a row; >= 1 */
    uint64_t rows;                 /* >= 1 */
    uint64_t dst_pitch, src_pitch; /* from one row to the next, bytes; of no meaning with one row */
};
/* Elements of several ranks become one: dst[i] = src[0][i] op src[1][i] ..., in that order. The call
 * of dst's part tells type and operation. */
struct cecl_reduce {
    struct cecl_place dst;
    uint64_t bytes;       /* of dst and of each source; whole elements, >= 1 */
    uint32_t first, nsrc; /* plan->sources [first, first + nsrc); one may be dst, to the byte */
};

/* Every rank has a row of flags for each lane, and one more: the flags that stand in the slots of small
 * calls, between the data. */
enum { CECL_ROW_SLOTS = CECL_LANES, CECL_ROWS };

/* One thing this rank does. Steps of one lane run in order; lanes know nothing of each other except by
 * AFTER. SIGNAL and WAIT are the two halves of an exchange of flags: in each row a rank has one flag
 * from every peer, which only grows, so "that lane of the peer has come to phase p of this call" is
 * one comparison. */
enum cecl_step_kind {
    /* tell `peer` that this lane has come to `phase`; its earlier steps are visible to it then */
    CECL_STEP_SIGNAL,
    CECL_STEP_WAIT,   /* until row `first` from `peer` has come to `phase` */
    CECL_STEP_COPY,   /* copies [first, first + count), one batch: no order among them */
    CECL_STEP_REDUCE, /* reductions [first, first + count), no order among them */
    CECL_STEP_AFTER, /* until lane `first` of this rank has done all of its steps that stand before */
    /* copy `first` into a slot of `peer`, each line of it with its flag: row SLOTS has come to `phase`
     * as soon as the data is there */
    CECL_STEP_POST
};
struct cecl_step {
    uint8_t kind;   /* enum cecl_step_kind */
    uint8_t lane;   /* that does it */
    uint16_t peer;  /* SIGNAL, WAIT, POST */
    uint32_t phase; /* SIGNAL, WAIT, POST: 1 .. plan->phases[row] */
    uint32_t first; /* COPY, REDUCE, POST; WAIT: a row; AFTER: a lane */
    uint32_t count; /* COPY, REDUCE: >= 1 */
};
_Static_assert(sizeof(struct cecl_step) == 16, "plans are cached: grow a step only on purpose");

/* One call of a plan: what is asked, how it goes, and with what. */
struct cecl_part {
    struct cecl_call call; /* its layout is the caller's, for as long as the plan is looked at */
    struct cecl_way way;
    struct cecl_means means;
};

struct cecl_plan {
    struct cecl_part part;   /* the first */
    struct cecl_part *parts; /* [nparts] all calls of a group; NULL: `part` is the only one */
    uint32_t nparts;
    struct cecl_step *steps;
    struct cecl_copy *copies;
    struct cecl_reduce *reductions;
    struct cecl_place *sources; /* of reductions */
    uint32_t nsteps, steps_capacity;
    uint32_t ncopies, copies_capacity;
    uint32_t nreductions, reductions_capacity;
    uint32_t nsources, sources_capacity;
    uint32_t phases[CECL_ROWS]; /* how far the flags of each row advance; equal on all ranks */
    uint8_t lane;               /* builder's: that the next steps run on */
    uint32_t open_batch;        /* builder's: index of the COPY step being filled + 1; 0: none */
    bool failed;                /* builder's: out of memory on the way */
    char path[64];              /* for ceclExplain: "push, one batch" */
    char reason[192];           /* for ceclExplain */
};

/* -- building; a failed allocation is remembered and returned by cecl_plan_finish -- */
void cecl_plan_init(struct cecl_plan *plan, const struct cecl_part *part);
/* Signals / waits for one peer. */
void cecl_plan_signal(struct cecl_plan *plan, int peer, uint32_t phase);
void cecl_plan_wait(struct cecl_plan *plan, int peer, uint32_t phase);
void cecl_plan_wait_row(struct cecl_plan *plan, int peer, int row, uint32_t phase);
/* Opens a new phase of the current lane and signals all peers; it. Peers in rotated order (rank+1,
 * rank+2, ...). */
uint32_t cecl_plan_signal_all(struct cecl_plan *plan);
/* Waits for a row from all peers. */
void cecl_plan_wait_all(struct cecl_plan *plan, int row, uint32_t phase);
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
/* Posts bytes into a slot of `peer`, in phase 1 of row SLOTS. */
void cecl_plan_post(struct cecl_plan *plan, int peer, struct cecl_place slot, struct cecl_place src,
                    uint64_t bytes);
/* The words that ceclExplain gives for the plan's way. */
__attribute__((format(printf, 2, 3))) void cecl_plan_say(struct cecl_plan *plan, const char *format,
                                                         ...);
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
static inline const struct cecl_part *cecl_plan_part(const struct cecl_plan *plan, uint32_t part)
{
    return plan->parts ? &plan->parts[part] : &plan->part;
}
/* Which part a copy belongs to: one end of it at least is in that part's buffers, or it is part 0. */
static inline uint32_t cecl_copy_part(const struct cecl_copy *copy)
{
    const uint32_t dst = copy->dst.area / CECL_AREA_COUNT, src = copy->src.area / CECL_AREA_COUNT;
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
/* One line a step; for CECL_DEBUG=PLAN and for people. */
void cecl_plan_print(const struct cecl_plan *plan, FILE *out);

#endif
