/* A communicator: one rank's end of everything. Internal to src/comm. */
#ifndef CECL_COMM_COMM_H
#define CECL_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/pool.h"
#include "boot/mesh.h"
#include "ce/engine.h"
#include "device/device.h"
#include "tune/table.h"

#define CECL_COMM_MAGIC 0x6365636cu

/* Settings with configuration and environment taken together. Negative: the device's default. */
struct cecl_resolved {
    int32_t device;      /* ceclDevice_t */
    int32_t cuda_device; /* ordinal or CECL_CUDA_DEVICE_...; ranks may differ in it */
    int32_t sm_policy;   /* ceclSmPolicy_t */
    int32_t direction;   /* CECL_DIRECTION's value */
    int32_t flags;       /* CECL_FLAGS's value */
    int32_t max_sms;     /* 0: by measurement */
    int32_t local_copy;  /* CECL_LOCAL_COPY's value */
    int32_t check;
    int32_t nvtx; /* 0 or 1; here too ranks may differ */
    int32_t timeout_ms, init_timeout_ms;
    int64_t pool_bytes, segment_bytes, staging_bytes;
    int64_t tuning; /* a hash of the thresholds in force, which ranks compare */
};

/* The watchdog: a thread that notices peers that died, left, or do not come, and releases what
 * waits for them. */
struct cecl_watch {
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    uint32_t *rows;       /* [CECL_LANES * nranks] */
    pthread_mutex_t lock; /* of looking at words, and of giving up */
    bool told, silenced;  /* peers know; this rank's signals no longer count */
    bool kernels_ended;   /* no kernel waits for peers any more, the caller's or cecl's */
};

#define CECL_MOST_SMS 1024

struct ceclComm {
    uint32_t magic;
    int rank, nranks;
    struct cecl_resolved config;
    struct cecl_options options; /* for the calls that follow */
    uint32_t local_copies;       /* CECL_LOCAL_...: what needs no SM, found on every rank */
    struct cecl_tuning tuning;   /* the thresholds of its device and ranks */
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    struct cecl_pool pool;
    struct cecl_engine engine;
    struct cecl_watch watch;
    bool finalized;
    bool shares_process;             /* another rank is in this process */
    unsigned generation;             /* of the process that made it: see util/fork.h */
    ceclComm_t next;                 /* in life.c's list of those that are gone */
    uint64_t *layout;                /* of the call that is made; room for the longest */
    _Atomic(const char *) last_call; /* the name of the call enqueued last, or NULL */
    struct cecl_trace *trace;        /* NULL: none is wanted */
    void *check_room;                /* [nranks] signatures, for CECL_CHECK */
    void *places_room;               /* [nranks + 1] layouts, for variable all-to-all */

    /* The asynchronous error: written once, words first, under the lock. */
    pthread_mutex_t async_lock;
    _Atomic int async_result;
    char async_message[CECL_MESSAGE_BYTES];
};

/* config.c: defaults, configuration and environment. */
/* Refuses a field of the caller's struct `of` that is out of range; CECL_UNDEF is in all. */
ceclResult_t cecl_config_check_field(const char *of, const char *field, int64_t value, int64_t low,
                                     int64_t high);
static inline struct cecl_options cecl_config_options(const struct cecl_resolved *config)
{
    return (struct cecl_options){(uint8_t)config->sm_policy, (uint8_t)config->direction,
                                 (uint16_t)config->max_sms};
}
ceclResult_t cecl_config_resolve(const ceclConfig_t *config, struct cecl_resolved *out);
/* The thresholds of so many ranks on each device, CECL_TUNING's file among them. */
ceclResult_t cecl_config_tuning(int nranks, struct cecl_tuning tunings[CECL_TUNING_DEVICES]);

/* setup.c. Collective over `oob`, which stays the caller's. `local`: what this rank already knows
 * to be wrong (with its message
 * recorded); it takes part all the same, so that all ranks learn of it. Waits end at `deadline`. */
ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             int64_t deadline, ceclResult_t local, ceclComm_t *comm);
/* Frees whatever of a communicator exists. `drained`: no work is pending on its memory; otherwise
 * mappings are left alone. */
void cecl_comm_free(ceclComm_t comm, bool drained);

/* life.c */
/* Refuses NULL, foreign, destroyed and inherited handles. */
ceclResult_t cecl_comm_check_handle(ceclComm_t comm);
/* Those, and finalized and failed communicators. */
ceclResult_t cecl_comm_check(ceclComm_t comm);
/* Whether it is good, and its ranks compare their calls (CECL_CHECK). Says nothing. */
bool cecl_comm_is_checked(ceclComm_t comm);
/* Keeps what is left of a communicator for a while, so that its handle can be told from a live one;
 * then frees it. */
void cecl_comm_bury(ceclComm_t comm);
/* Keeps a communicator whose memory something may still touch, for good. */
void cecl_comm_lose(ceclComm_t comm);
/* Hears what peers have told by now; the asynchronous error, or success. What was seen of their
 * data before is good if this succeeds. */
ceclResult_t cecl_comm_hear(ceclComm_t comm);
/* Remembers the call that is enqueued now. The watchdog names it while work is pending: what is
 * enqueued last ends last. */
static inline void cecl_comm_called(ceclComm_t comm, const char *name)
{
    atomic_store_explicit(&comm->last_call, name, memory_order_relaxed);
}
static inline const char *cecl_comm_last_call(ceclComm_t comm)
{
    const char *name = atomic_load_explicit(&comm->last_call, memory_order_relaxed);
    return name ? name : "no call";
}
/* A peer has gone, and the last message says how: sets the asynchronous error. */
void cecl_comm_lost_peer(ceclComm_t comm, ceclResult_t result);
/* Hears of a small call's kernel that gave up; the asynchronous error, or success. */
ceclResult_t cecl_comm_hear_kernels(ceclComm_t comm);
/* `result` of an exchange over the mesh. One that was cut cannot be followed by another: the
 * communicator has failed. */
ceclResult_t cecl_comm_exchanged(ceclComm_t comm, ceclResult_t result);
/* Sets the asynchronous error; the first one stays. */
void cecl_comm_set_async(ceclComm_t comm, ceclResult_t result, const char *message);
/* The asynchronous error as this thread's own, or success. */
ceclResult_t cecl_comm_async(ceclComm_t comm);

/* watch.c */
#define CECL_WATCH_SLACK_MS 1200 /* by which the watchdog may be late */
ceclResult_t cecl_watch_start(ceclComm_t comm);
void cecl_watch_stop(ceclComm_t comm);
/* A failed communicator tells its peers, then lets go on whatever waits here. Again and again, for
 * a late signal of a peer may put a flag back. */
void cecl_watch_release(ceclComm_t comm);
/* Waits until nothing of this communicator is pending, or `deadline`: ceclTimeout. */
ceclResult_t cecl_watch_drain(ceclComm_t comm, int64_t deadline);

#endif
