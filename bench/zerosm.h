/* What a case of cecl_zerosm and its outcome are. cecl_zerosm.c has the table of cases and the output, zerosm_run.c
 * runs a case, zerosm_ops.c has the operations, zerosm_split.c splits. */
#ifndef CECL_ZEROSM_H
#define CECL_ZEROSM_H

#include <stdbool.h>
#include <stddef.h>

#include <cecl/cecl.h>

#include "kinds.h"

#define ZEROSM_MAX_GPUS 16 /* as many as hold_sms can hold at the same time */

enum zerosm_op {
    ZEROSM_ALL_GATHER,
    ZEROSM_ALL_TO_ALL,
    ZEROSM_ALL_GATHERV,
    ZEROSM_BROADCAST,
    ZEROSM_ALL_TO_ALLV, /* never in place */
    ZEROSM_GATHER,
    ZEROSM_SCATTER,
    ZEROSM_ALL_GATHER_STRIDED, /* rows of 2 KiB, along the last dimension */
    ZEROSM_ALL_TO_ALL_STRIDED,
    ZEROSM_GROUP,         /* one call of each operation above */
    ZEROSM_REDUCE_SCATTER /* never in place or in a group: it always needs SMs */
};

/* A collective and the settings of its communicator. */
struct zerosm_case {
    enum zerosm_op op;
    bool in_place;
    /* the most bytes that one rank gets from another one: in the call, or in all calls of a group */
    size_t bytes;
    size_t staging;        /* CECL_STAGING_BYTES */
    const char *policy;    /* CECL_SM_POLICY: never, allow */
    const char *direction; /* CECL_DIRECTION: push, pull */
    const char *flags;     /* CECL_FLAGS: auto, host */
    bool legacy;           /* on the legacy default stream; false: on a stream of its own */
    int memory;            /* the kind of both buffers (kinds.h) */
    bool late;             /* each rank but the first one comes late to each call */
    bool split;            /* on communicators that ceclCommSplit made (zerosm_split.h) */
};

struct zerosm_outcome {
    bool finished;  /* it ended while every SM was held; false: it ended later */
    double ms;      /* from the first call to the end, or until patience_ms were over */
    char path[64];  /* what ceclGroupExplain says on rank 0 */
    char why[1024]; /* what went wrong, when zerosm_run returned false */
};

/* Holds every SM of each GPU once, one GPU after another. So the kernel is loaded on all GPUs before two are held at
 * the same time: loading may wait for a held GPU. Returns false if GPU *gpu could not be held; stderr says why. */
bool zerosm_hold_each_once(int gpus, int *gpu);

/* Runs `c` on GPUs 0 .. gpus-1 with communicators of its own. Fills the input from `seed`, holds every SM, makes
 * the calls, and gives their streams `patience_ms` to end. Then releases the SMs, lets unfinished calls end, and
 * checks every byte.
 *
 * Returns false with out->why if something failed, a byte is wrong, or the SMs were not held throughout. A late end
 * is no failure; out->finished reports it. */
bool zerosm_run(const struct zerosm_case *c, int gpus, unsigned seed, int patience_ms,
                struct zerosm_outcome *out);

#endif
