/* The engine of a communicator: binds plans to addresses, keeps them, and issues them on a stream.
 *
 * Knows plans, the pool, the device and flags (src/flags); no collective. */
#ifndef CECL_CE_ENGINE_H
#define CECL_CE_ENGINE_H

#include "alloc/pool.h"
#include "flags/flags.h"
#include "plan/plan.h"

struct cecl_bound;

#define CECL_CACHE_SETS 64
#define CECL_CACHE_WAYS 4

struct cecl_engine {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    int rank, nranks;
    struct cecl_flags flags;
    uint64_t staging_offset, staging_bytes;
    uint64_t slots_offset, slot_bytes; /* of small calls, behind staging's first byte; 0: none */
    uint64_t small_timeout_ns;         /* of their kernels' waits; 0: none. The opener's */
    ceclStream_t side;                 /* the side lane's stream, once a plan has wanted one */
    bool used;                         /* last_stream is meaningful */
    uint64_t last_stream; /* id of the stream of the last call: another one must wait for it */
    struct cecl_bound *cache[CECL_CACHE_SETS][CECL_CACHE_WAYS];
    unsigned victim[CECL_CACHE_SETS]; /* next way to give up */
    uint64_t plans_made;              /* cache misses: a test sees that repeated calls make none */
};

/* Collective. Opens the flags (`way`: as cecl_flags_open), and takes staging and slots (slot_bytes: a
 * multiple of 512) from the pool. A zeroed or failed engine may be closed. */
ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t slot_bytes, int way);

/* Local. No work may be pending. */
void cecl_engine_close(struct cecl_engine *engine);

/* The kept plan for these calls (one, or a group's), or NULL. *stale: memory was freed since it
 * was last checked; the buffers must be checked again, and then cecl_engine_refresh makes it good. */
struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_call *calls, uint32_t count, bool *stale);
void cecl_engine_refresh(const struct cecl_engine *engine, struct cecl_bound *bound);

/* Binds `plan` and keeps it, giving up another if need be. ceclInvalidUsage when the plan reads a
 * peer's sendbuff and that is not symmetric. */
ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_call *calls,
                              uint32_t count, const struct cecl_plan *plan,
                              struct cecl_bound **bound);

/* Which half of the slots the next small call uses. */
static inline uint8_t cecl_engine_half(const struct cecl_engine *engine)
{
    return cecl_flags_half(&engine->flags);
}

/* Enqueues a bound plan, whose patches get their values for this call first. Never waits, but where
 * the driver's queue is full. After a failure
 * *started tells whether something of it may be enqueued: peers then wait for what will not come,
 * and the communicator has failed. */
ceclResult_t cecl_engine_run(struct cecl_engine *engine, struct cecl_bound *bound,
                             ceclStream_t stream, bool *started);

/* What ceclExplain says of it. */
const ceclExplanation_t *cecl_bound_explanation(const struct cecl_bound *bound);

#endif
