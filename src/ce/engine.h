/* The engine of a communicator: binds plans to addresses, and issues them on a stream.
 *
 * It knows plans, the pool, the device and flags (src/flags), but no collective. */
#ifndef CECL_CE_ENGINE_H
#define CECL_CE_ENGINE_H

#include "alloc/window.h"
#include "flags/flags.h"
#include "plan/plan.h"

struct cecl_bound;

/* What ranks have told each other about the calls of one plan. */
struct cecl_told {
    bool inputs_readable, late; /* as in struct cecl_means; equal on all ranks */
    uint64_t earlier;           /* as in struct cecl_part */
    /* [ncalls][nranks][2] where sendbuff and recvbuff lie on each rank. An entry is empty for this rank itself, for a
     * rank that came later, and if no peer touches the buffer. nbuffers 0: nothing was told, because no rank touches
     * another's buffers */
    struct cecl_peer_buffer *buffers;
    size_t nbuffers;
    /* [ncalls][nranks] as in struct cecl_part; nsend_at 0: no call needs this array */
    uint64_t *send_at;
    size_t nsend_at;
    /* [ncalls][cecl_outside_words] as in struct cecl_part; noutside 0: in each call all ranks are outside, or none is,
     * as far as this rank knows */
    uint64_t *outside;
    size_t noutside;
};

struct cecl_engine {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    const struct cecl_windows *windows; /* set by the opener (the caller of cecl_engine_open) */
    int rank, nranks;
    const struct cecl_hosted *hosted; /* owned by the opener */
    struct cecl_flags flags;
    uint64_t staging_offset, staging_bytes;
    /* offsets in staging of the first slot of small calls, and of the first slot for captured calls. `slot_bytes` is
     * the size of a slot; 0: there are no slots */
    uint64_t slots_offset, captured_slots_offset, slot_bytes;
    /* the table for calls by splits on the device: its offset in staging, and its size. 0: there are too many ranks for
     * a table */
    uint64_t table_offset, table_bytes;
    /* the part of staging that only the rank before this one uses (lower_carry.c): its offset in
     * staging, and its size */
    uint64_t carry_offset, carry_bytes;
    /* time limit of waits in small calls' kernels, set by the opener; 0: no limit */
    uint64_t small_timeout_ns;
    ceclStream_t side; /* the side lane's stream, made when a plan first needs it */
    /* streams for the lanes of messages, which are numbered after the side lane. The opener owns the streams */
    ceclStream_t *lanes;
    /* -- the order of calls and graphs: see cecl_engine_run -- */
    struct cecl_order order; /* `event` is NULL until a call was captured */
    ceclStream_t before;     /* the engine's stream that first recorded the event */
    bool used;               /* whether last_stream is set */
    /* the id of the last call's stream: a call on another stream must wait for the last call */
    uint64_t last_stream;
};

/* Collective. Opens the flags (see cecl_flags_open). Makes one allocation in the pool, for staging, slots, the table of
 * splits, and the part through which private memory is carried. cecl_engine_close also accepts an engine that is zeroed
 * or that failed to open.
 *
 * small_bytes  how many bytes the largest small call sends to a peer */
ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t small_bytes,
                              const struct cecl_hosted *hosted, bool host_flags);

/* Local. No work may be pending. */
void cecl_engine_close(struct cecl_engine *engine);

/* Binds `plan`, which was made from `calls` and `told`. The caller frees the bound plan. */
ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              const struct cecl_told *told, const struct cecl_plan *plan,
                              struct cecl_bound **bound);
void cecl_bound_free(struct cecl_bound *bound); /* NULL has no effect */

/* Fills the cells of a bound plan, and enqueues the plan or, if capture->id is not 0, adds it to the graph that the
 * stream captures. Waits only where the driver's queue is full. After a failure, *started says whether a part of the
 * plan may have been enqueued. If so, the communicator must fail, because its peers wait for signals that will not
 * come.
 *
 * Calls that are not captured, and launches of graphs, run in the order in which the host makes them, on any streams.
 * From the first captured call on, an event marks the end of the latest call or launch. Each call and each graph waits
 * for the event at its start and records it at its end, so all graphs can use the same words and the same staging. */
ceclResult_t cecl_engine_run(struct cecl_engine *engine, const struct cecl_bound *bound,
                             ceclStream_t stream, const struct cecl_capture *capture,
                             bool *started);
/* Returns ceclInProgress if a call was captured, and the latest call, or launch of a graph, is not done. Otherwise
 * returns ceclSuccess. */
ceclResult_t cecl_engine_query(const struct cecl_engine *engine);

/* The report of ceclExplain on a plan. */
void cecl_plan_explain(const struct cecl_plan *plan, ceclExplanation_t *explanation);

#endif
