/* What the files of cecl_tune --against nccl share. */
#ifndef CECL_BENCH_AGAINST_H
#define CECL_BENCH_AGAINST_H

#include "nccl/gpu.h"
#include "nccl/learned_file.h"
#include "nccl/real.h"
#include "spans.h"
#include "tuner.h"

/* NCCL's communicator of all ranks, beside cecl's. */
struct nccl {
    struct cecl_nccl_real real;
    struct cecl_nccl_gpu gpu; /* the thread's current one; ordinal -1: the host device */
    ncclComm_t comm;
};

/* nccl.c. Both are collective; false: a call failed, and a message was printed. device: the GPU; -1: the host
 * device */
bool nccl_open(const struct run *run, int device, struct nccl *nccl);
bool nccl_close(const struct run *run, struct nccl *nccl);
/* The op's call in NCCL, with a sum where it reduces. */
bool nccl_call(const struct run *run, const struct nccl *nccl, const struct op *op,
               const void *send, void *recv, size_t count, ceclDataType_t type);

/* The measurements of one operation, which become rows of the table. */
struct contest {
    const struct op *op;
    const struct type *type;
    enum cecl_nccl_op nccl_op;
    int row_type; /* an ncclDataType_t, or CECL_NCCL_ANY_TYPE if the type does not matter */
    struct point
        points[MAX_POINTS]; /* us of NCCL and of cecl, in the placement where cecl gains least */
    int npoints;
    bool is_late; /* there was no time for all sizes */
};

/* table.c: rank 0 writes the file. Rows of other setups, operations and types stay in it, and so do
 * verdicts. */
bool table_write(const struct tuner *tuner, const struct cecl_nccl_setup *setup,
                 const struct contest *contests, int count);

#endif
