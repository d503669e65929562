/* A communicator: one rank's end of everything. Internal to src/comm. */
#ifndef CECL_COMM_COMM_H
#define CECL_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "alloc/pool.h"
#include "boot/mesh.h"
#include "ce/engine.h"
#include "device/device.h"

#define CECL_COMM_MAGIC 0x6365636cu

/* Settings with configuration and environment taken together. Negative: the device's default. */
struct cecl_resolved {
    int32_t device;      /* ceclDevice_t */
    int32_t cuda_device; /* ordinal or CECL_CUDA_DEVICE_...; the one in which ranks may differ */
    int32_t sm_policy;   /* ceclSmPolicy_t */
    int32_t direction;   /* CECL_DIRECTION's value */
    int32_t flags;       /* CECL_FLAGS's value */
    int32_t check;
    int32_t timeout_ms, init_timeout_ms;
    int64_t pool_bytes, segment_bytes, staging_bytes;
};

/* The watchdog: a thread that notices peers that died, left, or do not come, and releases what
 * waits for them. */
struct cecl_watch {
    pthread_t thread;
    bool running;
    _Atomic bool stop;
    uint32_t *row; /* [nranks] */
};

struct ceclComm {
    uint32_t magic;
    int rank, nranks;
    struct cecl_resolved config;
    struct cecl_device *dev;
    struct cecl_mesh *mesh;
    struct cecl_pool pool;
    struct cecl_engine engine;
    struct cecl_watch watch;
    bool finalized;
    void *check_room; /* [nranks] signatures, for CECL_CHECK */

    /* The asynchronous error: written once, words first, under the lock. */
    pthread_mutex_t async_lock;
    _Atomic int async_result;
    char async_message[CECL_MESSAGE_BYTES];
};

/* config.c: defaults, configuration and environment. */
ceclResult_t cecl_config_resolve(const ceclConfig_t *config, struct cecl_resolved *out);

/* setup.c. Collective over `oob`, which stays the caller's. `local`: what this rank already knows
 * to be wrong (with its message
 * recorded); it takes part all the same, so that all ranks learn of it. */
ceclResult_t cecl_comm_setup(struct cecl_oob *oob, const struct cecl_resolved *config,
                             ceclResult_t local, ceclComm_t *comm);
/* Frees whatever of a communicator exists. `drained`: no work is pending on its memory; otherwise
 * mappings are left alone. */
void cecl_comm_free(ceclComm_t comm, bool drained);

/* life.c */
/* Refuses NULL, foreign, finalized and failed communicators. */
ceclResult_t cecl_comm_check(ceclComm_t comm);
/* Sets the asynchronous error; the first one stays. */
void cecl_comm_set_async(ceclComm_t comm, ceclResult_t result, const char *message);
/* The asynchronous error as this thread's own, or success. */
ceclResult_t cecl_comm_async(ceclComm_t comm);

/* watch.c */
ceclResult_t cecl_watch_start(ceclComm_t comm);
void cecl_watch_stop(ceclComm_t comm);
/* Waits until nothing of this communicator is pending, or `deadline`: ceclTimeout. */
ceclResult_t cecl_watch_drain(ceclComm_t comm, int64_t deadline);

#endif
