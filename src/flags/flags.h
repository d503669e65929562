/* Flags: the words by which ranks tell each other how far they have come, and all that counts, reads
 * and releases these words. Knows the pool and the device; no plan and no collective.
 *
 * Each rank has a row of 32-bit words in its symmetric memory for each lane, and each row has a word
 * for each peer. Only that peer writes the word, and the word only grows (cyclically). A lane's epoch
 * says where the lane's flags stand when every call so far is done. A call with n phases on a lane
 * moves the lane's epoch by n, on all ranks alike.
 *
 * Flags travel in one of two ways: a stream writes the word at the peer, or copies it there from a
 * table that holds every value a flag can have. The way is tried when the communicator is made.
 *
 * The word `done` is the host's: the stream that runs a call writes there how far this rank's calls
 * are done.
 *
 * Threads: calls come from one thread at a time. The functions for the watchdog may be called by one
 * other thread meanwhile. */
#ifndef CECL_FLAGS_FLAGS_H
#define CECL_FLAGS_FLAGS_H

#include <stdatomic.h>

#include "alloc/pool.h"
#include "util/lane.h"

/* A flag holds the low 16 bits of its epoch in its upper half. So flags compare cyclically as 32-bit
 * words, and they have few enough values for a table of all of them. */
#define CECL_FLAG_VALUES 65536u
static inline uint32_t cecl_flag_value(uint32_t epoch)
{
    return epoch << 16;
}

enum cecl_flag_way {
    CECL_FLAGS_WRITE, /* remote stream writes */
    CECL_FLAGS_COPY   /* copy-engine copies of a word, for drivers that refuse the former */
};

struct cecl_flags {
    struct cecl_device *dev;
    struct cecl_pool *pool;
    int rank, nranks;
    enum cecl_flag_way way;
    uint64_t rows_offset;       /* in the pool: [CECL_LANES][nranks] words */
    uint64_t values_offset;     /* [CECL_LANES][CECL_FLAG_VALUES] words, what COPY copies */
    uint64_t pads_offset;       /* words of kernels: see pads.h */
    uint32_t epoch[CECL_LANES]; /* where flags stand once every call so far is done */
    _Atomic uint32_t target[CECL_LANES]; /* as `epoch`, counting the call that is being enqueued */
    uint32_t small_calls;                /* so far, cyclically */
    _Atomic uint32_t releases;           /* so far */
    uint32_t *done; /* host-visible: the main lane's epoch up to which this rank's calls are done */
    uint32_t *late; /* host-visible: not 0 once a small call's kernel gave up a wait */
};

/* Collective. Takes flags and pads from the pool, and tries how flags travel (`way`: CECL_FLAGS's
 * value, 0 auto, 1 write, 2 copy). Zeroed or failed flags may be closed. */
ceclResult_t cecl_flags_open(struct cecl_flags *flags, struct cecl_pool *pool, int way);

/* Local. No work may be pending. */
void cecl_flags_close(struct cecl_flags *flags);

/* The word at rank `holder` that a lane of rank `writer` writes. */
uint32_t *cecl_flags_word(const struct cecl_flags *flags, int holder, int writer, int lane);

/* The words by which kernels of a lane meet. What the kernel does, and the values, are the caller's
 * to fill in. */
struct cecl_meeting cecl_flags_meeting(const struct cecl_flags *flags, int lane);

/* A word of this rank that holds a lane's flag of `epoch`. */
static inline void *cecl_flags_source(const struct cecl_flags *flags, int lane, uint32_t epoch)
{
    return (uint32_t *)cecl_pool_at(flags->pool, flags->rank, flags->values_offset) +
           (uint32_t)lane * CECL_FLAG_VALUES + epoch % CECL_FLAG_VALUES;
}

/* -- one call: begin, fill, enqueue, then commit or roll back; advance.c -- */

/* By how much a call moves the flags; equal on all ranks. */
struct cecl_advance {
    uint32_t phases[CECL_LANES];
    bool small; /* the call uses slots, whose halves take turns */
};

/* Before anything is enqueued: the watchdog must know of the call before anything of it can wait. */
void cecl_flags_begin(struct cecl_flags *flags, const struct cecl_advance *advance);
/* The call is enqueued, as a whole or in part. */
void cecl_flags_commit(struct cecl_flags *flags, const struct cecl_advance *advance);
/* Nothing of the call is enqueued. */
void cecl_flags_roll_back(struct cecl_flags *flags);

/* What a patch writes. */
enum cecl_patch_kind {
    CECL_PATCH_FLAG,   /* a word: the value that a lane's flag has at a phase */
    CECL_PATCH_SOURCE, /* a pointer: where that value stands, for a flag that is copied */
    CECL_PATCH_EPOCH,  /* a word: a lane's epoch at a phase, as `done` has it */
    CECL_PATCH_SMALL   /* a word: the number of a small call, `phase` behind those so far */
};

/* A place in a kept plan whose value follows from how far the flags have come: such a value is known
 * only when the plan is issued. */
struct cecl_patch {
    union {
        uint32_t *word;
        void **source;
    } at;
    uint32_t phase; /* of the call; 1 is its first */
    uint8_t kind;   /* enum cecl_patch_kind */
    uint8_t lane;
};

/* Writes the values of the next call into the places of a kept plan. They may be written while earlier
 * calls of the same plan are pending, for a device takes over what it is given when it enqueues. */
void cecl_flags_fill(const struct cecl_flags *flags, const struct cecl_patch *patches,
                     uint32_t count);

/* Waits until every call so far is done. The call that was begun is not among them. */
struct cecl_memop cecl_flags_wait_last(const struct cecl_flags *flags);
/* Marks every call so far as done, and the call that was begun. */
struct cecl_memop cecl_flags_mark_end(const struct cecl_flags *flags);

/* The half of the slots that the next small call uses. */
static inline uint8_t cecl_flags_turn(const struct cecl_flags *flags)
{
    return (flags->small_calls + 1) & 1;
}

/* -- for the watchdog and for teardown; release.c -- */

static inline uint32_t cecl_flags_done(const struct cecl_flags *flags)
{
    return atomic_load_explicit((_Atomic uint32_t *)flags->done, memory_order_acquire);
}
/* Whether nothing of this rank's calls is pending. */
bool cecl_flags_idle(const struct cecl_flags *flags);
/* Whether a small call's kernel gave up a wait. Who has seen that the call is done sees this too. */
static inline bool cecl_flags_gave_up(const struct cecl_flags *flags)
{
    return atomic_load_explicit((_Atomic uint32_t *)flags->late, memory_order_acquire) != 0;
}

/* How far the call in progress has come. */
struct cecl_progress {
    bool started;               /* this rank has told its peers that it is there */
    uint32_t flags[CECL_LANES]; /* the values it last told them */
    int late;                   /* a peer that has not come to one of those values, or -1 */
    int nlate;
};
/* rows  [out] [CECL_LANES][nranks] what peers have told this rank. */
ceclResult_t cecl_flags_progress(const struct cecl_flags *flags, uint32_t *rows,
                                 struct cecl_progress *progress);
/* Whether that peer is behind. Both lanes count: a side lane signals only where main lanes wait for
 * it. */
bool cecl_flags_is_late(const struct cecl_flags *flags, const uint32_t *rows,
                        const struct cecl_progress *progress, int rank);

/* After this, copies of flags that are enqueued tell peers nothing when a release lets them go.
 * Flags by stream writes cannot be taken back: their values are in the stream, and peers learn of the
 * failure from the mesh alone. */
ceclResult_t cecl_flags_silence(const struct cecl_flags *flags);
/* Lets go what waits for flags. To be called again and again until nothing is pending. */
ceclResult_t cecl_flags_release(struct cecl_flags *flags);

#endif
