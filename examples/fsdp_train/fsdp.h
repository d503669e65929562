/* One rank's part of a fully sharded training: its shards of parameters and Adam state, and the
 * steps, in which each group's parameters are whole only while they are used.
 *
 *     compute:  | block 0 | block 1 | block 2 | ... | block 2 back | block 1 back | ... | Adam
 *     streams:  | gather 1| gather 2| gather 3| ... | gather 1     | gather 0     |
 *                                                   | reduce 3     | reduce 2     | ...
 *
 * `prefetch` groups are gathered ahead, into prefetch + 1 buffers in rotation: compute reads one
 * while gathers fill the others. Gradients have two buffers: compute fills one while the other is
 * reduced. */
#ifndef CECL_FSDP_FSDP_H
#define CECL_FSDP_FSDP_H

#include "comm.h"
#include "model.h"

enum { LOSSES = 10 }; /* the host reads losses at least once in this many steps */

struct fsdp {
    struct shape shape;
    struct compute *compute;
    struct comm *comm;
    int prefetch; /* 0: communication and compute do not overlap */
    uint64_t seed;
    unsigned char *text; /* where samples come from, on the device */
    size_t text_bytes;

    struct model model;

    /* Shards of all groups, one after the other. */
    size_t *offset;                     /* [groups + 1], elements */
    float *parameters, *first, *second; /* one allocation; first, second: Adam's moments */
    void *gradients;                    /* elements */

    /* [prefetch + 1] buffers, each with room for a whole group. With comm->once: [groups], and each
     * buffer keeps its group's parameters. */
    void **buffers;
    void *whole_gradients[2];
    double *losses; /* [LOSSES] of this rank; fsdp_losses computes their means over the ranks */
    int issued;     /* how many gathers of this pass are enqueued */
    bool alone;     /* set after the first step if comm->once: no step gathers or reduces then */
};
static inline int fsdp_buffers(const struct fsdp *f)
{
    return f->comm->once ? group_count(&f->shape) : f->prefetch + 1;
}

/* Collective. The caller sets the members up to text_bytes; fsdp_close also frees `text`. Parameters
 * begin as initial_parameters makes them. If a rank fails, all return false, and stderr says why. */
bool fsdp_open(struct fsdp *f);
void fsdp_close(struct fsdp *f);
/* How often compute waits for communication in a step: for each gather of the forward and backward pass,
 * and for the reduction of each group. Each wait is between two ticks. */
static inline int fsdp_waits(const struct shape *s)
{
    return 3 * group_count(s) - 2;
}
/* How many lanes are used: for buffers and gradients. */
static inline int fsdp_lanes(int prefetch)
{
    return prefetch + 1 + 2;
}
size_t fsdp_shard_elements(const struct fsdp *f); /* of all groups, on this rank */

/* Enqueues step `number`, which counts from 0. The last step begins no gathers for a next one. The
 * host waits only where compute is synchronous. */
bool fsdp_step(struct fsdp *f, int number, float rate, bool last);
/* Collective. The means over all ranks of the `count` losses since the last call. The host
 * waits. */
bool fsdp_losses(struct fsdp *f, double *means, int count);

#endif
