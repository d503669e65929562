/* A matrix product C = A B that is divided among ranks like a layer under tensor parallelism. While
 * one chunk is multiplied, cecl gathers the next chunk of A, or reduces and scatters the previous chunk
 * of C.
 *
 *     matmul.c  numbers, checks, times
 *     ways.c    the two ways of dividing, each in order (the whole matrix at a time) and at once (chunks) */
#ifndef MATMUL_H
#define MATMUL_H

#include "../check.h"
#include "compute.h"

/* What a rank multiplies: A [nranks * rows][depth] and B [depth][columns]. */
struct job {
    int rank, nranks;
    int rows, depth, columns;
    int chunks; /* how many chunks a rank's rows are cut into */
    ceclComm_t comm;
    ceclStream_t stream;
    struct compute compute;
    char *a, *b, *c;
    char *
        sums; /* [rows][columns] this rank's rows of the sum of all ranks' C; only where C is reduced */
};

struct way {
    const char *name, *order; /* order: what in_order does, in words */
    /* true: each rank has a block of A's rows, at its place in `a`, and some columns of B. false: each rank
     * has some columns of A, and the matching rows of B. */
    bool gathers;
    void (*in_order)(struct job *j);
    void (*at_once)(struct job *j);
};
extern const struct way way_gather, way_reduce;

/* Enqueues `blocks` products of `rows` rows of A with B. Product i reads A from row `from` + i * j->rows on,
 * and writes C from row `to` + i * rows on. */
void multiply(struct job *j, int from, int to, int rows, int blocks);

/* compute_after: compute that is enqueued later runs after the work that the stream holds now.
 * stream_after: work that the stream gets later runs after the compute that is enqueued now. */
void compute_after(struct job *j);
void stream_after(struct job *j);

#endif
