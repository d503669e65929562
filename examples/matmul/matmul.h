/* A matrix product C = A B that is divided among ranks as layers of tensor parallelism are. While some
 * chunks are multiplied, cecl brings the next chunks of A, or takes away the chunks of C that are
 * done.
 *
 *     matmul.c  numbers, checks, times
 *     ways.c    the two ways of dividing, each in order and at once */
#ifndef MATMUL_H
#define MATMUL_H

#include "../check.h"
#include "compute.h"

/* What a rank multiplies: A [nranks * rows][depth] and B [depth][columns]. */
struct job {
    int rank, nranks;
    int rows, depth, columns;
    int chunks; /* in which a rank's rows travel */
    ceclComm_t comm;
    ceclStream_t stream;
    struct compute compute;
    char *a, *b, *c;
    char *
        sums; /* [rows][columns] this rank's rows of the sum of all ranks' C; only where C is reduced */
};

struct way {
    const char *name, *order; /* order: what in_order does, for the table */
    /* Each rank has a block of A's rows, in its place in `a`, and some columns of B. Otherwise each has some
     * columns of A, and some rows of B. */
    bool gathers;
    void (*in_order)(struct job *j);
    void (*at_once)(struct job *j);
};
extern const struct way way_gather, way_reduce;

/* Multiplies `rows` rows of A, from row `from` on, and writes the product to C from row `to` on.
 * Does so `blocks` times, for the same rows of each rank's block. The work is enqueued. */
void multiply(struct job *j, int from, int to, int rows, int blocks);

/* compute_after: compute that is enqueued later runs after the work that the stream holds now.
 * stream_after: the reverse. */
void compute_after(struct job *j);
void stream_after(struct job *j);

#endif
