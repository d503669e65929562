/* The engine of a communicator: binds plans to addresses, keeps them, and issues them on a stream.
 *
 * Knows plans, the pool and the device; no collective. Flags: every rank has, for each lane, a row of
 * words in its symmetric memory, one for each peer, written by that peer alone and only ever growing
 * (cyclically). A call with so many phases of a lane moves all flags of that lane by that much. */
#ifndef CECL_CE_ENGINE_H
#define CECL_CE_ENGINE_H

#include <stdatomic.h>

#include "alloc/pool.h"
#include "plan/plan.h"

/* A flag holds the low half of the epoch in its upper half: compared as a whole it is cyclic, and
 * it has few enough values that all of them
 * lie ready in memory to be copied from. */
#define CECL_FLAG_VALUES 65536u
static inline uint32_t cecl_flag_value(uint32_t epoch)
{
    return epoch << 16;
}

enum cecl_flag_way {
    CECL_FLAGS_WRITE, /* remote stream writes */
    CECL_FLAGS_COPY   /* copy-engine copies of a word, for drivers that refuse the former */
};

/* What a bound plan depends on, for each call of a group; also its key in the cache. */
struct cecl_request {
    ceclOp_t op;
    const void *send;
    void *recv;
    uint64_t bytes;         /* one block */
    const uint64_t *layout; /* as in struct cecl_call, or NULL */
    struct cecl_shape shape;
    struct cecl_choice choice;
    uint8_t type, red_op; /* of a reduction */
    uint8_t turn;         /* of a small call, + 1; 0: it is none */
    int root;             /* of a reduce */
};

struct cecl_bound;

#define CECL_CACHE_SETS 64
#define CECL_CACHE_WAYS 4

struct cecl_engine {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    int rank, nranks;
    enum cecl_flag_way flags;
    uint64_t flags_offset;  /* of a row for each lane: nranks words */
    uint64_t values_offset; /* of every value a flag can have, in order, for each lane: what COPY
                             * sends from */
    uint64_t staging_offset, staging_bytes;
    uint64_t slots_offset, slot_bytes; /* of small calls, behind staging's first byte; 0: none */
    uint32_t small_calls;              /* so far, cyclically: their turns, and their epochs */
    uint64_t small_timeout_ns;         /* of their kernels' waits; 0: none. The opener's */
    uint64_t pads_offset;              /* words of kernels (ceclDeviceComm_t): see pads.c */
    ceclStream_t side;                 /* the side lane's stream, once a plan has wanted one */
    uint32_t epoch;                    /* of the main lane's flags once every call so far is done */
    uint32_t side_epoch;               /* of the side lane's */
    _Atomic uint32_t target; /* epoch once all that is enqueued or being enqueued is done */
    _Atomic uint32_t side_target;
    uint32_t *done; /* host-visible word: epoch up to which this rank's calls are done; behind it
                     * one that a small call's kernel sets where it gave up a wait */
    _Atomic uint32_t releases; /* so far */
    bool used;                 /* last_stream is meaningful */
    uint64_t last_stream;      /* id of the stream of the last call: another one must wait for it */
    uint32_t *row;             /* [nranks] scratch for reading flags while the engine opens */
    struct cecl_memop *scratch; /* operations with their epochs filled in */
    void **sources;             /* likewise the sources of copied flags */
    size_t scratch_count;       /* room in both */
    struct cecl_bound *cache[CECL_CACHE_SETS][CECL_CACHE_WAYS];
    unsigned victim[CECL_CACHE_SETS]; /* next way to give up */
    uint64_t plans_made;              /* cache misses: a test sees that repeated calls make none */
};

/* Collective. Takes flags, staging and slots (slot_bytes: a multiple of 512) from the pool and finds
 * how flags travel (`way`: CECL_FLAGS's value, 0 auto, 1 write, 2 copy). A zeroed or failed engine may
 * be closed. */
ceclResult_t cecl_engine_open(struct cecl_engine *engine, struct cecl_pool *pool,
                              uint64_t staging_bytes, uint64_t slot_bytes, int way);

/* Local. No work may be pending. */
void cecl_engine_close(struct cecl_engine *engine);

/* The kept plan for these requests (one, or a group's), or NULL. *stale: memory was freed since it
 * was last checked; the buffers must be checked again, and then cecl_engine_refresh makes it good. */
struct cecl_bound *cecl_engine_lookup(const struct cecl_engine *engine,
                                      const struct cecl_request *requests, uint32_t count,
                                      bool *stale);
void cecl_engine_refresh(const struct cecl_engine *engine, struct cecl_bound *bound);

/* Binds `plan` and keeps it, giving up another if need be. ceclInvalidUsage when the plan reads a
 * peer's sendbuff and that is not symmetric. */
ceclResult_t cecl_engine_bind(struct cecl_engine *engine, const struct cecl_request *requests,
                              uint32_t count, const struct cecl_plan *plan,
                              struct cecl_bound **bound);

/* The turn of the next small call. */
static inline uint8_t cecl_engine_turn(const struct cecl_engine *engine)
{
    return (engine->small_calls + 1) & 1;
}

/* Enqueues a bound plan. Never waits, but where the driver's queue is full. After a failure
 * *started tells whether something of it may be enqueued: peers then wait for what will not come,
 * and the communicator has failed. */
ceclResult_t cecl_engine_run(struct cecl_engine *engine, const struct cecl_bound *bound,
                             ceclStream_t stream, bool *started);

/* What kernels of this rank need; without the bound of their waits. */
void cecl_pads_describe(const struct cecl_engine *engine, ceclDeviceComm_t *dc);

/* What ceclExplain says of it. */
const ceclExplanation_t *cecl_bound_explanation(const struct cecl_bound *bound);

/* -- for the watchdog and for teardown; any thread -- */
bool cecl_engine_idle(const struct cecl_engine *engine);
/* Copies of flags that are enqueued, and go on once released, no longer tell peers anything. Flags
 * by stream writes cannot be taken back: peers learn of the failure only as they hear of it. */
ceclResult_t cecl_engine_silence(struct cecl_engine *engine);
/* Lets what waits for flags go on; to be called again and again until the engine is idle. */
ceclResult_t cecl_engine_release(struct cecl_engine *engine);

/* Kernels that wait in the pads of this rank go on, and so does every later one: once is enough. */
ceclResult_t cecl_pads_end(const struct cecl_engine *engine);

/* How far the call in progress has come. */
struct cecl_progress {
    bool started;               /* this rank has told its peers that it is there */
    uint32_t flags[CECL_LANES]; /* the values it last told them */
    int late;                   /* a peer that has not come to one of those values, or -1 */
    int nlate;
};
/* `rows`: room for nranks words of each lane, and then what peers have told this rank. */
ceclResult_t cecl_engine_progress(struct cecl_engine *engine, uint32_t *rows,
                                  struct cecl_progress *progress);
/* Whether that peer is behind. Both lanes count: a side lane signals only where
 * main lanes wait for it. */
bool cecl_engine_is_late(const struct cecl_engine *engine, const uint32_t *rows,
                         const struct cecl_progress *progress, int rank);
static inline uint32_t cecl_engine_done(const struct cecl_engine *engine)
{
    return atomic_load_explicit((_Atomic uint32_t *)engine->done, memory_order_acquire);
}
/* Whether a small call's kernel gave up a wait: seen by whoever has seen that the call is done. */
static inline bool cecl_engine_gave_up(const struct cecl_engine *engine)
{
    return atomic_load_explicit((_Atomic uint32_t *)engine->done + 1, memory_order_acquire) != 0;
}

#endif
