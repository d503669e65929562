/* The engine of a communicator: binds plans to addresses, keeps them, and issues them on a stream.
 *
 * It knows plans, the pool, the device and flags (src/flags), and no collective. */
#ifndef CECL_CE_ENGINE_H
#define CECL_CE_ENGINE_H

#include "alloc/window.h"
#include "flags/flags.h"
#include "plan/plan.h"

struct cecl_bound;

/* What ranks told each other of the calls that are carried out as one. */
struct cecl_told {
    bool inputs_readable, late; /* as in struct cecl_means; equal on all ranks */
    uint64_t earlier;           /* as in struct cecl_part */
    /* [ncalls][nranks][2] where sendbuff and recvbuff lie on each rank. Ranks that came later, and
     * what no peer touches, have none. nbuffers 0: as on this rank, in the pool */
    const struct cecl_peer_buffer *buffers;
    size_t nbuffers;
    /* [ncalls][nranks] as in struct cecl_part; nsend_at 0: no call needs it */
    const uint64_t *send_at;
    size_t nsend_at;
    /* [ncalls][cecl_outside_words] as in struct cecl_part; noutside 0: for all ranks as for this
     * one */
    const uint64_t *outside;
    size_t noutside;
};

#define CECL_CACHE_SETS 64
#define CECL_CACHE_WAYS 4

struct cecl_engine {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    const struct cecl_windows *windows; /* the opener sets it */
    int rank, nranks;
    const struct cecl_hosted *hosted; /* the opener keeps it */
    struct cecl_flags flags;
    uint64_t staging_offset, staging_bytes;
    /* slots of small calls: bytes from the start of staging to the first, and bytes of each; 0:
     * none */
    uint64_t slots_offset, slot_bytes;
    /* bytes from the start of staging to what only the rank before this one uses, and bytes of it */
    uint64_t carry_offset, carry_bytes;
    /* limit of the waits of small calls' kernels; 0: none; the opener sets it */
    uint64_t small_timeout_ns;
    ceclStream_t side; /* the side lane's stream, made when a plan first needs it */
    bool used;         /* whether last_stream is set */
    /* id of the last call's stream: a call on another stream must wait for it */
    uint64_t last_stream;
    struct cecl_bound *cache[CECL_CACHE_SETS][CECL_CACHE_WAYS];
    unsigned victim[CECL_CACHE_SETS]; /* which entry of each set is replaced next */
    const struct cecl_bound *held;    /* a kept plan that is about to be issued; never replaced */
    /* cache misses: a test checks that repeated calls cause none */
    uint64_t plans_made;
};

/* Collective. Opens the flags (see cecl_flags_open), and takes staging, slots (slot_bytes: a
 * multiple of 512) and what private memory is carried through from the pool. A zeroed engine, or one
 * that failed to open, may be closed. */
ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t slot_bytes, uint64_t carry_bytes,
                              const struct cecl_hosted *hosted, enum cecl_flags_wish wish);

/* Local. No work may be pending. */
void cecl_engine_close(struct cecl_engine *engine);

/* Returns the kept plan for these calls (one call, or a group's) and what ranks told of them, or
 * NULL. What the plan uses of peers stays open while the call is made. */
struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_call *calls, uint32_t count,
                                      const struct cecl_told *told);
/* Whether these calls' buffers were checked, and no memory was freed since. */
bool cecl_engine_has_checked(const struct cecl_engine *engine, const struct cecl_call *calls,
                             uint32_t count);
/* Notes that they were checked, in the plans that are kept of these calls. */
void cecl_engine_checked(const struct cecl_engine *engine, const struct cecl_call *calls,
                         uint32_t count);

/* Binds `plan` and keeps it; another plan may be dropped for it. */
ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              uint32_t count, const struct cecl_told *told,
                              const struct cecl_plan *plan, struct cecl_bound **bound);

/* Which half of the slots the next small call uses. */
static inline uint8_t cecl_engine_half(const struct cecl_engine *engine)
{
    return cecl_flags_half(&engine->flags);
}

/* Writes this call's values into the patches of a bound plan, and enqueues the plan. It waits only
 * where the driver's queue is full. After a failure, *started reports whether a part may be
 * enqueued. Then peers wait for signals that will not come, and the communicator has failed. */
ceclResult_t cecl_engine_run(struct cecl_engine *engine, struct cecl_bound *bound,
                             ceclStream_t stream, bool *started);

/* A call as cecl_engine_enqueue wants it. */
struct cecl_enqueue {
    const struct cecl_advance *advance; /* of the flags */
    const void *what;                   /* for the two functions */
    /* Enqueues the call on `work`. Sets *started before the first thing that it enqueues. */
    ceclResult_t (*issue)(struct cecl_engine *engine, const void *what, ceclStream_t work,
                          bool *started);
    /* The call failed when a part of it was enqueued: marks its end behind that part. */
    void (*end)(struct cecl_engine *engine, const void *what, ceclStream_t work);
};

/* Enqueues a call of any kind: forks from the caller's stream and joins it again, moves the flags, and
 * cleans up after a failure. *started: as in cecl_engine_run. */
ceclResult_t cecl_engine_enqueue(struct cecl_engine *engine, const struct cecl_enqueue *call,
                                 ceclStream_t stream, bool *started);

/* Has the stream `work` wait for the last call, if that went to another stream. To be called before
 * anything of a call is enqueued. */
ceclResult_t cecl_engine_follow(struct cecl_engine *engine, ceclStream_t work);

/* What ceclExplain reports of a plan, and of a bound plan. */
void cecl_plan_explain(const struct cecl_plan *plan, ceclExplanation_t *explanation);
const ceclExplanation_t *cecl_bound_explanation(const struct cecl_bound *bound);

/* The calls of a bound plan. */
const struct cecl_call *cecl_bound_calls(const struct cecl_bound *bound, uint32_t *count);
uint32_t cecl_bound_signature(const struct cecl_bound *bound);
/* Notes that the call which was enqueued, or given up, uses windows here and at peers. */
void cecl_bound_used(const struct cecl_engine *engine, const struct cecl_bound *bound);

#endif
