/* All communication of the training, behind one table of functions: with cecl, or with NCCL for
 * comparison.
 *
 * Calls are enqueued on communication streams, in lanes. Each buffer has a lane, which is its queue
 * of calls. A call begins once all compute that was enqueued earlier has ended. comm_await makes
 * all compute that is enqueued later wait for the last call of a lane. All ranks make the same
 * calls in the same order. */
#ifndef CECL_FSDP_COMM_H
#define CECL_FSDP_COMM_H

#include <stdbool.h>
#include <stddef.h>

#include "compute.h"

/* One call. Elements are compute's elements.
 *   GATHER          `to` is [nranks * count]: this rank's part, at rank * count, goes to all ranks
 *   REDUCE_SCATTER  `from` is [nranks * count]: part `rank`, summed over all ranks, goes to `to` [count] */
struct transfer {
    enum { GATHER, REDUCE_SCATTER } kind;
    const void *from;
    void *to;
    size_t count;
};

struct comm {
    const char *name;
    int rank, nranks;
    int device; /* CUDA ordinal; -1: the host device */
    /* Only the first step communicates. Later steps compute on the parameters that it gathered, to
     * show how long a step takes without communication. */
    bool once;
    struct compute *compute;
    void *state;

    bool (*alloc)(struct comm *c, void **memory, size_t bytes); /* collective; freed by close */
    ceclStream_t (*stream)(struct comm *c, int lane);
    bool (*start)(struct comm *c, int lane, const struct transfer *t);
    bool (*wait)(struct comm *c, int lane); /* for compute on the host, which waits for the lane */
    bool (*healthy)(struct comm *c);        /* false, with a message on stderr: a peer has failed */
    void (*close)(struct comm *c);
};

/* Joins all ranks of MPI_COMM_WORLD. `kind` is "cecl", "nccl", "nccl-ce", or "none": cecl, but only
 * for the first step. If `hidden`, calls run at the same time as compute, and should slow it down
 * only a little. Returns false with a message on stderr. */
bool comm_open(struct comm *c, const char *kind, int lanes, bool hidden);

/* Begins a call in a lane. The call runs after the compute that is enqueued so far. */
bool comm_start(struct comm *c, int lane, struct transfer t);
/* Makes compute wait until the lane's last call is done. Records a tick before the wait and one
 * after. The time between the two is communication that compute does not hide. */
bool comm_await(struct comm *c, int lane);

/* Whether `mine` is true on all ranks. Collective, blocking; the ranks' hosts exchange it by MPI. */
bool all_agree(bool mine);
bool complain(const struct comm *c, const char *what, const char *why); /* on stderr; false */

bool comm_nccl(struct comm *c, bool copy_engines); /* comm_nccl.c, in builds with FSDP_NCCL 1 */

#endif
