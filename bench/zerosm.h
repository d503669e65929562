/* cecl_zerosm: what a case is, and what came of it. The table of cases and what is said of them are
 * in cecl_zerosm.c, the carrying out in zerosm_run.c,
 * what an operation is in zerosm_ops.c. */
#ifndef CECL_ZEROSM_H
#define CECL_ZEROSM_H

#include <stdbool.h>
#include <stddef.h>

#include <cecl/cecl.h>

#define ZEROSM_MAX_GPUS 16 /* as many as hold_sms holds at a time */

enum zerosm_op {
    ZEROSM_ALL_GATHER,
    ZEROSM_ALL_TO_ALL,
    ZEROSM_ALL_GATHERV,
    ZEROSM_BROADCAST,
    ZEROSM_ALL_TO_ALLV, /* is never in place */
    ZEROSM_GATHER,
    ZEROSM_SCATTER,
    ZEROSM_ALL_GATHER_STRIDED, /* rows of 2 KiB, along the last dimension */
    ZEROSM_ALL_TO_ALL_STRIDED,
    ZEROSM_GROUP /* one of each */
};

/* A collective, and what the communicator is made with for it. */
struct zerosm_case {
    enum zerosm_op op;
    bool in_place;
    size_t bytes;       /* of the largest block, what one rank gets from another; of a group's calls
                              together */
    size_t staging;     /* CECL_STAGING_BYTES */
    const char *policy; /* CECL_SM_POLICY: never, allow */
    const char *direction; /* CECL_DIRECTION: push, pull */
    const char *flags;     /* CECL_FLAGS: copy, write */
    bool legacy;           /* on the legacy default stream, not on a stream of its own */
    const char *local;     /* CECL_LOCAL_COPY: probe, off */
};

struct zerosm_outcome {
    bool finished;  /* while every SM was held; otherwise once they were free */
    double ms;      /* from the first call until then, or until patience was lost */
    char path[64];  /* ceclGroupExplain's, of rank 0 */
    char why[1024]; /* what went wrong, where zerosm_run gave false */
};

/* Holds every SM of each GPU once, one after another, so that the kernel is loaded everywhere
 * before two of them are held at a time: loading may wait for a GPU. False with *gpu, which could
 * not be held (stderr says why). */
bool zerosm_hold_each_once(int gpus, int *gpu);

/* Carries out `c` on GPUs 0 .. gpus-1 with a communicator of its own: fresh input that depends on
 * `seed`, every SM held, the calls, and `patience_ms` for their streams to end. Then the SMs are
 * let go, what has not ended gets time to, and every byte is checked.
 *
 * False with out->why: something failed, a byte is wrong, or the SMs were not held throughout. An
 * end too late is no failure here: out->finished tells. */
bool zerosm_run(const struct zerosm_case *c, int gpus, unsigned seed, int patience_ms,
                struct zerosm_outcome *out);

#endif
