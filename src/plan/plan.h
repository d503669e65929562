/* A plan: what one rank does in one call, or in the calls of a group, as data.
 *
 * Addresses are symbolic (rank, area, offset) until the engine binds them. So plans are compared, printed and verified
 * without a device. A plan knows neither CUDA nor the engine; no function of src/plan moves bytes. */
#ifndef CECL_PLAN_PLAN_H
#define CECL_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "plan/call.h"
#include "plan/way.h"
#include "util/lane.h"

/* The memory that a call touches. Offset 0 is the first byte of the buffer, not of its window. */
enum cecl_area {
    CECL_AREA_SEND,    /* sendbuff; in place RECV is used instead */
    CECL_AREA_RECV,    /* recvbuff */
    CECL_AREA_STAGING, /* the communicator's own symmetric buffer */
    /* memory of the host that all ranks map: a rank writes its own part, and its peers read it */
    CECL_AREA_HOST,
    CECL_AREA_COUNT
};

/* Whether an area is a buffer of the caller's. */
static inline bool cecl_area_is_users(uint32_t area)
{
    return area % CECL_AREA_COUNT < CECL_AREA_STAGING;
}

/* In a plan of several calls (a group) each call has areas of its own: those of call i begin at CECL_AREA_COUNT * i.
 * Areas that are not buffers of the caller exist only once, as areas of call 0. */
#define CECL_GROUP_MAX 4096
static inline uint16_t cecl_area_of(enum cecl_area area, uint32_t part)
{
    return (uint16_t)(cecl_area_is_users(area) ? area + CECL_AREA_COUNT * part : area);
}

/* A place in memory. */
struct cecl_place {
    uint64_t offset; /* bytes into the area; 64 bits, because an area may be larger than 4 GiB */
    uint16_t area;   /* cecl_area_of */
    uint16_t rank;   /* the rank that owns the memory, [0, nranks) */
};

/* Contiguous bytes, or rows of bytes at a pitch. */
struct cecl_copy {
    struct cecl_place dst, src;
    uint64_t bytes;                /* bytes of one row; >= 1 */
    uint64_t rows;                 /* >= 1 */
    uint64_t dst_pitch, src_pitch; /* bytes from one row to the next; ignored for one row */
};
/* Reduces elements of several ranks to one: dst[i] = src[0][i] op src[1][i] ..., in that order. Type and
 * operation are those of call `part`. */
struct cecl_reduce {
    struct cecl_place dst;
    uint64_t bytes; /* bytes of each source: whole elements, >= 1; dst has cecl_call_result_bytes */
    uint32_t first, nsrc; /* plan->sources [first, first + nsrc); one source may be dst itself */
    /* which call of the group the reduction belongs to; places in staging do not show that */
    uint32_t part;
};

/* One thing that this rank does. The steps of one lane run in order; steps of two lanes of one rank have an order only
 * by AFTER. A WAIT of one rank waits for a SIGNAL of another rank. For each counter (util/lane.h) and each peer, a rank
 * has a word. The word only grows, so one comparison shows whether the peer has reached a value. (In captured calls a
 * rank has two words for all peers: TURN, where `phase` is a set of bits, and CALL.) */
enum cecl_step_kind {
    /* signal to `peer` that `counter` has reached `phase`; the peer then sees the writes of the
     * lane's earlier steps */
    CECL_STEP_SIGNAL,
    CECL_STEP_WAIT, /* wait until `counter` of `peer` has reached `phase` */
    /* copies [first, first + count), issued as one batch, without order among them. A wave is the batches of a phase
     * that have no order among them */
    CECL_STEP_COPY,
    CECL_STEP_REDUCE, /* reductions [first, first + count), without order among them */
    /* wait until lane `first` of this rank has done all of its steps that precede this one in the
     * plan */
    CECL_STEP_AFTER,
    /* copy `first` into a slot of `peer`. Each line of the slot carries its own flag, so no SIGNAL follows:
     * once the data has arrived, counter SLOTS has reached `phase` */
    CECL_STEP_POST,
    /* a kernel of a call by splits on the device: `first` says which (enum cecl_splits_step). It works on this rank's
     * table and on the tables and recvbuffs of all ranks */
    CECL_STEP_SPLITS
};
struct cecl_step {
    uint8_t kind; /* enum cecl_step_kind */
    uint8_t lane; /* the lane on which the step runs */
    /* SIGNAL, WAIT, POST. A signal to this rank itself tells this rank's host; a signal of TURN or CALL tells all
     * peers */
    uint16_t peer;
    uint32_t
        phase; /* SIGNAL, WAIT, POST: a phase, from 1 on, or another k (util/lane.h); COPY: a wave, from 0 on */
    union {
        uint32_t first;   /* COPY, REDUCE, POST: an index; AFTER: a lane; SPLITS: a kernel's step */
        uint32_t counter; /* SIGNAL, WAIT */
    };
    uint32_t count; /* COPY, REDUCE: >= 1 */
};
_Static_assert(sizeof(struct cecl_step) == 16, "plans are cached: grow a step only on purpose");

/* One call of a plan: its description, its way, and what it may use of the communicator. */
struct cecl_part {
    /* the call's layout belongs to the caller, and must live as long as the plan is read */
    struct cecl_call call;
    struct cecl_way way;
    struct cecl_means means;
    /* used with means.late: bit r is set if rank r came before this rank, so that this rank knows rank r's places. Of
     * any two ranks, the later one has the other's bit set */
    uint64_t earlier;
    /* [nranks] used if the call is late and each rank has its own layout; otherwise NULL. For each rank that came
     * before: where its block for this rank lies, in bytes from the start of that rank's sendbuff */
    const uint64_t *send_at;
    /* [cecl_outside_words] bit r % 64 of word r / 64 is the value of cecl_call_is_outside on rank r, as far
     * as this rank knows. NULL: the value is the same on all ranks */
    const uint64_t *outside;
};

static inline size_t cecl_outside_words(int nranks)
{
    return ((size_t)nranks + 63) / 64;
}
/* Whether the own block of rank `rank` is not yet in that rank's recvbuff, as far as this rank knows. */
static inline bool cecl_part_is_outside(const struct cecl_part *part, int rank)
{
    return part->outside ? (part->outside[rank / 64] >> rank % 64 & 1) != 0
                         : cecl_call_is_outside(&part->call);
}

struct cecl_plan {
    struct cecl_part part;   /* the first call */
    struct cecl_part *parts; /* [nparts] all calls of a group; NULL: `part` is the only call */
    uint32_t nparts;
    struct cecl_step *steps;
    struct cecl_copy *copies;
    struct cecl_reduce *reductions;
    struct cecl_place *sources; /* sources of reductions */
    uint32_t nsteps, steps_capacity;
    uint32_t ncopies, copies_capacity;
    uint32_t nreductions, reductions_capacity;
    uint32_t nsources, sources_capacity;
    /* how many phases the plan has, by counter; equal on all ranks */
    uint32_t phases[CECL_PHASED];
    uint32_t
        number;   /* a captured call's number among the communicator's captured calls, from 1 on */
    bool aside;   /* a one-sided call: it is issued beside other calls, and does not write `done` */
    uint8_t lane; /* for building: the lane of the next steps */
    /* for building: index + 1 of the COPY step that is being filled; 0: none */
    uint32_t open_batch;
    uint32_t wave;    /* for building: the wave of the next batch */
    uint32_t of;      /* for building: the part of the next copies and reductions */
    bool failed;      /* for building: memory ran out */
    char path[64];    /* for ceclExplain, such as "push, one batch" */
    char reason[192]; /* for ceclExplain */
};

/* -- building: cecl_plan_finish returns the error if an allocation failed before -- */
void cecl_plan_init(struct cecl_plan *plan, const struct cecl_part *part);
/* Empties a plan, so that another plan can be built in its memory, for the same part. */
void cecl_plan_reset(struct cecl_plan *plan);
/* cecl_plan_raise signals to a peer that a counter has reached k; cecl_plan_await waits until a peer's counter has. */
void cecl_plan_raise(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k);
void cecl_plan_await(struct cecl_plan *plan, int peer, uint32_t counter, uint32_t k);
/* Opens a new phase of the current lane, signals all peers, and returns the phase. Peers come
 * in rotated order (rank + 1, rank + 2, ...). */
uint32_t cecl_plan_signal_all(struct cecl_plan *plan);
/* Waits until `counter` of every peer has reached `phase`. */
void cecl_plan_wait_all(struct cecl_plan *plan, uint32_t counter, uint32_t phase);
/* Signals all peers and waits for all, on the main lane: a barrier. */
void cecl_plan_barrier(struct cecl_plan *plan);
/* From now on, copies and reductions that are added belong to this part of a group. The caller gives their places as in
 * a lone call. */
void cecl_plan_of(struct cecl_plan *plan, uint32_t part);
/* From now on, steps that are added run on `lane`. */
void cecl_plan_on(struct cecl_plan *plan, int lane);
/* cecl_plan_after makes the current lane wait until `lane` has done all its steps so far. cecl_plan_after_other does so
 * for the main and the side lane: the current one waits for the other. */
void cecl_plan_after(struct cecl_plan *plan, int lane);
void cecl_plan_after_other(struct cecl_plan *plan);
/* Adds a step with one reduction, of nsrc places in the order of `src`. */
void cecl_plan_reduce(struct cecl_plan *plan, struct cecl_place dst, const struct cecl_place *src,
                      uint32_t nsrc, uint64_t bytes);
/* Adds a copy to the open batch. Every other step, cecl_plan_on and cecl_plan_next_wave close the
 * batch. */
void cecl_plan_copy(struct cecl_plan *plan, struct cecl_place dst, struct cecl_place src,
                    uint64_t bytes);
/* Adds a copy of rows to the open batch. dst and src say where the first row is. */
void cecl_plan_copy_rows(struct cecl_plan *plan, const struct cecl_copy *copy);
void cecl_plan_close_batch(struct cecl_plan *plan);
/* Begins a new wave: copies that are added from now on run after all copies that this lane has so far. All ranks
 * must put copies in peers' buffers into the same waves, because another rank may make them (ce/route.c). */
void cecl_plan_next_wave(struct cecl_plan *plan);
/* Posts bytes into a slot of `peer`, in phase 1 of counter SLOTS. */
void cecl_plan_post(struct cecl_plan *plan, int peer, struct cecl_place slot, struct cecl_place src,
                    uint64_t bytes);
/* Adds a step of a call by splits (enum cecl_splits_step). */
void cecl_plan_splits(struct cecl_plan *plan, uint32_t which);
/* Sets the text by which ceclExplain describes how the plan moves data. */
__attribute__((format(printf, 2, 3))) void cecl_plan_say(struct cecl_plan *plan, const char *format,
                                                         ...);
void cecl_plan_init_group(struct cecl_plan *group, const struct cecl_part *parts, uint32_t nparts);
/* Merges plans[which[0]] .. plans[which[count - 1]], and appends the result to the group's steps. Barrier n of the
 * merged plan stands for barrier n of each plan. Between two barriers come the copies of all plans, then their
 * reductions, then their copies of results. The batches of a wave become one batch. The plans must have only the main
 * lane, and on it only barriers, copies and reductions. The caller still owns the plans. */
void cecl_plan_merge(struct cecl_plan *group, const struct cecl_plan *plans, const uint32_t *which,
                     uint32_t count);
/* Adds a step of another plan of this rank, unchanged; a COPY only if the caller also gives `plan` the copies. */
void cecl_plan_repeat(struct cecl_plan *plan, const struct cecl_step *step);
/* Appends all steps of `other`, as part `part` of a group. */
void cecl_plan_append(struct cecl_plan *plan, const struct cecl_plan *other, uint32_t part);
/* Ends the building. If memory ran out before, frees the plan and returns ceclOutOfMemory. */
ceclResult_t cecl_plan_finish(struct cecl_plan *plan);
/* Frees and zeroes a plan. A zeroed plan may be freed. */
void cecl_plan_free(struct cecl_plan *plan);

/* -- reading -- */
/* The i-th rank after this rank; peer 0 is this rank itself. */
static inline int cecl_part_peer(const struct cecl_part *part, int i)
{
    return (part->call.rank + i) % part->call.nranks;
}
static inline uint32_t cecl_plan_parts(const struct cecl_plan *plan)
{
    return plan->parts ? plan->nparts : 1;
}
static inline const struct cecl_part *cecl_plan_part(const struct cecl_plan *plan, uint32_t part)
{
    return plan->parts ? &plan->parts[part] : &plan->part;
}
/* Whether one operation of the device carries out the plan: see lower_small.c. */
static inline bool cecl_plan_is_small(const struct cecl_plan *plan)
{
    return !plan->parts && plan->part.way.small;
}

/* The part to which a copy belongs: the one whose buffers hold the copy's source or destination, or part 0 if there is
 * none. */
static inline uint32_t cecl_copy_part(const struct cecl_copy *copy)
{
    const uint32_t dst = copy->dst.area / CECL_AREA_COUNT, src = copy->src.area / CECL_AREA_COUNT;
    return dst > src ? dst : src;
}
/* Whether a copy's source and destination are in the memory of one rank's device. */
static inline bool cecl_copy_is_local(const struct cecl_copy *copy)
{
    return copy->dst.rank == copy->src.rank && copy->dst.area != CECL_AREA_HOST &&
           copy->src.area != CECL_AREA_HOST;
}
/* How many local copies a plan has. Each needs an SM. */
uint32_t cecl_plan_local_copies(const struct cecl_plan *plan);
/* How many steps of one kind a plan has. */
uint32_t cecl_plan_count(const struct cecl_plan *plan, enum cecl_step_kind kind);
/* How many kernels a plan has, not counting the kernel of a small call. */
uint32_t cecl_plan_kernels(const struct cecl_plan *plan);
/* Whether the plan has phases. If not, ranks do not meet in it. */
static inline bool cecl_plan_meets(const struct cecl_plan *plan)
{
    return plan->phases[CECL_LANE_MAIN] > 0 || plan->phases[CECL_LANE_SIDE] > 0;
}
/* Whether ranks share a GPU, so that the plan's copies between ranks need SMs on some rank. */
bool cecl_plan_shares_sms(const struct cecl_plan *plan);
#define CECL_SHARED_GPU_WORDS \
    "ranks share a GPU (CECL_SHARE_GPU=1): copies between them stay within it and run on its SMs"
uint64_t cecl_plan_bytes(const struct cecl_plan *plan); /* bytes that this rank's copies move */
/* Prints a plan, for CECL_DEBUG=PLAN and for people. Each step begins a line. */
void cecl_plan_print(const struct cecl_plan *plan, FILE *out);

#endif
