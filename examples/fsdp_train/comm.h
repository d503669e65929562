/* All communication of the training, behind one table of functions: with cecl, or with NCCL for
 * comparison.
 *
 * Calls are enqueued on communication streams, in lanes. Each buffer has a lane, which is its queue
 * of calls. A call begins when the compute that was enqueued before it is done. comm_await lets all
 * compute that is enqueued afterwards wait for the last call of a lane. All ranks make the same
 * calls in the same order. */
#ifndef CECL_FSDP_COMM_H
#define CECL_FSDP_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "compute.h"

struct comm {
    const char *name;
    int rank, nranks;
    int device; /* CUDA ordinal; -1: the host device */
    /* calls run at the same time as compute, and should slow it down only a little */
    bool hidden;
    /* Only the first step communicates. The steps after it compute on what it gathered, so that they
     * show what a step takes without communication. */
    bool once;
    struct compute *compute;
    void *state;

    /* makes streams for so many lanes */
    bool (*prepare)(struct comm *c, int lanes);
    bool (*alloc)(struct comm *c, void **memory, size_t bytes); /* collective; freed by close */
    ceclStream_t (*stream)(struct comm *c, int lane);
    /* In place: buffer has [nranks * count] elements, and this rank's part begins at rank *
     * count. */
    bool (*gather)(struct comm *c, int lane, void *buffer, size_t count);
    /* gradients [nranks * count] of each rank; shard [count] gets the sum of part `rank`. Elements
     * are compute's elements, as in gather. */
    bool (*reduce_scatter)(struct comm *c, int lane, const void *gradients, void *shard,
                           size_t count);
    /* In place: each value becomes its mean over all ranks, with the same bits on each rank. */
    bool (*mean)(struct comm *c, int lane, double *values, size_t count);
    bool (*wait)(struct comm *c, int lane); /* the host waits for the lane */
    bool (*healthy)(struct comm *c);        /* false, with a message on stderr: a peer has failed */
    void (*close)(struct comm *c);
};

/* Joins all ranks of MPI_COMM_WORLD. kind: "cecl", "nccl", "nccl-ce", or "none": cecl, but only for the first
 * step. Returns false with a message on stderr. */
bool comm_open(struct comm *c, const char *kind, bool hidden);
/* The reason why this build does not have that kind, or NULL if it has. */
const char *comm_missing(const char *kind);

bool comm_gather(struct comm *c, int lane, void *buffer, size_t count);
bool comm_reduce_scatter(struct comm *c, int lane, const void *gradients, void *shard,
                         size_t count);
bool comm_mean(struct comm *c, int lane, double *values, size_t count);
/* Makes compute wait until the lane's last call is done. Records a tick before the wait and one
 * after. The time between them is communication that nothing hides. */
bool comm_await(struct comm *c, int lane);

/* Whether all ranks say yes. It uses only the hosts, and blocks. */
bool all_agree(bool mine);

/* The kinds. */
bool comm_cecl(struct comm *c);
extern const bool comm_nccl_built;
bool comm_nccl(struct comm *c, bool copy_engines);

#endif
