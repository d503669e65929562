/* All communication of the training, behind one table of functions: by cecl, or by NCCL to compare
 * with.
 *
 * Calls are enqueued on communication streams, in lanes: each buffer has a lane, which is its queue
 * of calls. A call begins when the compute that was enqueued before it is done. comm_await makes
 * the compute that is enqueued after it wait for the last call of a lane. All ranks make the same
 * calls in the same order. */
#ifndef CECL_FSDP_COMM_H
#define CECL_FSDP_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "compute.h"

struct comm {
    const char *name;
    int rank, nranks;
    int device;  /* CUDA ordinal; -1: the host device */
    bool hidden; /* calls are made to run beside compute, which then should lose little by them */
    struct compute *compute;
    void *state;

    bool (*prepare)(struct comm *c, int lanes);                 /* streams for so many */
    bool (*alloc)(struct comm *c, void **memory, size_t bytes); /* collective; until close */
    ceclStream_t (*stream)(struct comm *c, int lane);
    /* In place: buffer is [nranks * count], this rank's own part lies at rank * count. */
    bool (*gather)(struct comm *c, int lane, void *buffer, size_t count);
    /* gradients [nranks * count] of each rank; shard [count] gets the sum of the parts `rank`.
     * Elements, as gather's, are compute's. */
    bool (*reduce_scatter)(struct comm *c, int lane, const void *gradients, void *shard,
                           size_t count);
    /* In place: each of the values becomes its mean over all ranks, the same bits on each. */
    bool (*mean)(struct comm *c, int lane, double *values, size_t count);
    bool (*wait)(struct comm *c, int lane); /* the host waits for the lane */
    bool (*healthy)(struct comm *c);        /* false with words on stderr: a peer has failed */
    void (*close)(struct comm *c);
};

/* Joins all ranks of MPI_COMM_WORLD. kind: "cecl", "nccl", "nccl-ce". False with words on
 * stderr. */
bool comm_open(struct comm *c, const char *kind, bool hidden);
/* Why this build cannot have that kind; NULL: it can. */
const char *comm_missing(const char *kind);

bool comm_gather(struct comm *c, int lane, void *buffer, size_t count);
bool comm_reduce_scatter(struct comm *c, int lane, const void *gradients, void *shard,
                         size_t count);
bool comm_mean(struct comm *c, int lane, double *values, size_t count);
/* Compute goes on when the lane's last call is done. A tick before and one after: between them
 * compute waits, which is the time exposed to communication. */
bool comm_await(struct comm *c, int lane);

/* Whether all ranks say yes. Between the hosts, blocking. */
bool all_agree(bool mine);

/* The kinds. */
bool comm_cecl(struct comm *c);
extern const bool comm_nccl_built;
bool comm_nccl(struct comm *c, bool copy_engines);

#endif
